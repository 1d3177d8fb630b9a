"""Verdicts on linear regression: families of the field, schedules and variants, anchors, tasks of the user's."""

from dataclasses import dataclass, replace

import pytest
import torch

import layerstep as ls
from layerstep.measurement import identify
from layerstep.measurement.identification.decision import Rule, result_on
from layerstep.measurement.identification.descriptions import Schedule, Variants
from layerstep.solvers import Solver

TASK = ls.LinearRegression(d=5, N=16, sigma=0.3)
PROMPTS = ls.sample(TASK, 128, seed=3)


@pytest.fixture(scope="module")
def small():
    return ls.Instrument.prepare(PROMPTS, TASK, ridges=())


def planted(name, steps, std=0.0):
    solver = name if isinstance(name, Solver) else ls.SOLVERS[name]
    made = ls.solve(solver, PROMPTS, TASK, steps)
    noise = torch.randn(made.values.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return ls.Trajectory(made.values + std * noise, range(1, len(steps) + 1), f"planted {made.label}")


PLANTED = {
    "gd-weights": ([1, 4, 9, 16, 25, 36], "gd-weights", "quadratic"),
    "gd-weights-fixed": ([2, 4, 8, 16, 32, 64], "gd-weights", "geometric"),
    "newton": ([1.5, 3, 4.5, 6, 7.5, 9], "newton", "linear"),
    "gd": ([4, 12, 36, 108, 324, 972], "newton", "linear"),  # Newton's filter at 2^t steps
    "cg-weights": ([1, 2, 3, 4], "cg-weights", "linear"),
    "kaczmarz": ([1, 2, 3, 4, 5, 6], "kaczmarz", "linear"),
    "causal-gd": ([2, 4, 8, 16, 32, 64], "causal-gd", "geometric"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_solvers_are_named_and_so_is_how_their_steps_grow(small, name):
    steps, kind, form = PLANTED[name]
    verdict = identify(planted(name, steps, std=0.05), PROMPTS, TASK, instrument=small)
    assert verdict.solver == kind, str(verdict)
    assert verdict.schedule == form, verdict.description(Schedule)
    path = planted(name, steps)
    residuals = small.cross_fit(path.values[:, :, [n - 1 for n in small.library.contexts]], path.stages)
    assert result_on(residuals, Rule(), without=[kind], seed=0).solver is None


def test_a_schedule_of_another_form_is_not_named(small):
    verdict = identify(planted("gd-weights", [1, 2, 3, 40, 41, 42]), PROMPTS, TASK, instrument=small)
    assert verdict.solver == "gd-weights"
    assert verdict.schedule is None
    assert "schedule: none named; nearest" in verdict.report()


def test_which_gradient_descent_it_is_is_a_second_answer(small):
    steps = [2, 5, 10, 20, 40, 80]
    for name, words in (("gd-weights", "every prompt and length"), ("gd-weights-fixed", "for every prompt")):
        variant = identify(planted(name, steps), PROMPTS, TASK, instrument=small).description(Variants)
        assert variant.decided, variant
        assert variant.best.endswith(words)
    near = identify(planted(ls.GradientDescentPlusPlus(gamma=0.01), [1, 2, 3, 4]), PROMPTS, TASK, instrument=small)
    assert near.solver in ("gd-weights", None)


def test_descent_in_another_metric_is_not_claimed(small):
    P = torch.diag(torch.tensor([0.3, 0.6, 1.0, 1.7, 3.0]))
    path = planted(ls.Preconditioned(P=P), [2, 5, 10, 20, 40, 80])
    verdict = identify(path, PROMPTS, TASK, instrument=small)
    assert verdict.solver is None
    assert verdict.overall.V > 0.05  # the features of coordinates see it
    ill = ls.LinearRegression(d=5, N=16, sigma=0.3, covariance=[1.0, 0.5, 0.2, 0.1, 0.05])
    names = {family.name for family in ls.linear_families(ill)}
    assert names - {family.name for family in ls.linear_families(TASK)} == {"pgd 1", "pgd 0.5"}


def test_no_context_length_carries_more_than_the_median_one(small):
    library = small.library
    assert library.contexts == (1, 2, 4, 5, 6, 8, 10, 12, 16)
    assert float(library.weight.max()) == 1
    squares = library.table.double().square().mean(1)
    plain = squares / library.weight.square()
    share, evened = ((each / each.sum(-1, keepdim=True)).nanmean(0) for each in (plain, squares))
    assert float(share.max()) > 0.15
    assert float(evened.max()) < float(share.max())
    few = {"bandwidths": (1.0,), "ridges": (), "families": ls.FAMILIES[5:6]}
    kernel = ls.Instrument.prepare(ls.sample(ls.Task(N=8), 64, 0), ls.Task(N=8), **few)
    assert torch.equal(kernel.library.weight, torch.ones_like(kernel.library.weight))


def test_an_anchor_takes_the_place_of_the_exact_answer(small):
    path = planted("newton", [1.5, 3, 4.5, 6, 7.5, 9], std=0.05)
    exact = identify(path, PROMPTS, TASK, instrument=small)
    few = [family for family in ls.linear_families(TASK) if family.name in ("newton", "gd-weights")]
    given = identify(path, PROMPTS, TASK, anchor=ls.exact(PROMPTS, TASK), families=few)
    assert given.solver == exact.solver == "newton"
    final = identify(path, PROMPTS, TASK, anchor="final", families=few)
    assert "distances are measured from the final layer, not from exact KRR" in str(final)
    assert final.overall.usable[-1] < 6
    assert final.overall.nearest == "newton"
    for wrong, words in (
        ("last", "anchor = 'last': must be 'exact', 'final', or predictions"),
        (torch.zeros(3, 16), r"anchor = \[3, 16\]: must be \[128, 16\], as the path"),
    ):
        with pytest.raises(ls.InputError, match=words):
            identify(path, PROMPTS, TASK, anchor=wrong)
    with pytest.raises(ls.InputError, match="anchor = given beside an instrument"):
        identify(path, PROMPTS, TASK, anchor="final", instrument=small)


@dataclass(frozen=True, kw_only=True)
class Halved(Solver):
    """Gradient descent in weights towards half the labels."""

    label = "Halved"

    def predictions(self, system, steps):
        return ls.GradientDescentInWeights().predictions(system, steps) * 0.5 ** (1 / (1 + steps))


def test_a_family_of_the_users_enters_beside_the_fields():
    mine = ls.Family(name="mine", kind="mine", solver=Halved(), steps=range(1, 100))
    path = planted(Halved(), [1, 3, 7, 15, 30, 60])
    few = [family for family in ls.linear_families(TASK) if family.name in ("gd-weights", "newton", "ridge")]
    for families, solver in (([*few, mine], "mine"), (few, None)):
        prepared = ls.Instrument.prepare(PROMPTS, TASK, families=families, ridges=())
        verdict = identify(path, PROMPTS, TASK, instrument=prepared)
        assert verdict.solver == solver, str(verdict)
        assert ("rates unknown for class mine" in str(verdict)) == (solver == "mine")


def test_the_papers_families_on_a_linear_task_name_what_was_not_asked():
    path = planted("gd-weights", [1, 4, 9, 16, 25, 36])
    prepared = ls.Instrument.prepare(PROMPTS, TASK, families=ls.FAMILIES, ridges=())
    verdict = identify(path, PROMPTS, TASK, instrument=prepared)
    assert verdict.solver == "richardson"  # its form without row sums is gradient descent in weights
    said = " ".join(verdict.remarks)
    assert "richardson, richardson-slow" in said
    assert "need row sums of K above 0 and kernel values of 0 or more" in said


def test_a_linear_kernel_is_linear_regression(small):
    task = ls.Task(kernel="linear", inputs="gaussian", input_std=1.0, d=5, N=16, sigma=0.3)
    path = planted("newton", [1.5, 3, 4.5, 6, 7.5, 9])
    few = [family for family in ls.linear_families(task) if family.kind in ("newton", "gd-weights", "ridge")]
    found = ls.Instrument.prepare(PROMPTS, task, families=few, ridges=())
    assert found.features.shape == small.features.shape
    assert identify(path, PROMPTS, task, instrument=found).solver == "newton"


def test_without_noise_labels_are_relabelled_and_a_verdict_given():
    task = ls.LinearRegression(d=4, N=10)
    prompts = ls.sample(task, 64, seed=2)
    few = [family for family in ls.linear_families(task) if family.name in ("newton", "gd-weights")]

    def model_fn(given):
        return ls.solve(ls.SOLVERS["gd-weights"], given, task, [1, 3, 6, 12, 25])

    verdict = identify(model_fn(prompts), prompts, task, families=few, model_fn=model_fn)
    assert verdict.solver == "gd-weights", str(verdict)
    tests = verdict.to_dict()["descriptions"]["label interventions"]
    assert max(tests["additivity"]) < 1e-6


class Bare:
    """The least a task may be."""

    d, N = 5, 16

    def sample(self, B, seed, step=0):
        return ls.sample(TASK, B, seed, step)


def test_tasks_of_the_users_are_asked_for_what_is_needed():
    path = planted("newton", [1, 2, 3, 4])
    with pytest.raises(ls.InputError, match=r"a Bare without gram\(\.\.\.\).*ls\.match and ls\.probe work without it"):
        identify(path, PROMPTS, Bare())

    class Gram(Bare):
        lam = 0.09

        def gram(self, x, z):
            return x @ z.mT

    few = ls.linear_families(TASK)[:3]
    verdict = identify(path, PROMPTS, Gram(), families=few, anchor="final")
    assert verdict.to_dict()["status"] == verdict.status
    with pytest.raises(ls.InputError, match=r"without relabel\(\.\.\.\).*interventions=False"):
        identify(path, PROMPTS, Gram(), families=few, anchor="final", model_fn=lambda given: path)


def test_features_of_a_users_task_have_a_shape():
    @dataclass(frozen=True, kw_only=True)
    class Odd(ls.LinearRegression):
        def features(self, prompts, contexts):
            return torch.zeros(3, prompts.B)

    with pytest.raises(ls.InputError, match=r"Odd\.features = \[3, 128\]: must be \[F, 128, 9\]"):
        ls.Instrument.prepare(PROMPTS, Odd(d=5, N=16, sigma=0.3), families=ls.linear_families(TASK)[:1], ridges=())


def test_families_of_linear_tasks_are_refused_elsewhere():
    with pytest.raises(ls.InputError, match=r"task = a Task: must be a task whose kernel is x · z"):
        ls.linear_families(ls.Task())


@pytest.fixture(scope="module")
def ridged():
    """With the grid's ridges, for the families whose constants are made of them."""
    names = ("gd-weights", "nesterov-weights", "heavy-ball-weights", "chebyshev-weights")
    few = [family for family in ls.linear_families(TASK) if family.name in names]
    return ls.Instrument.prepare(PROMPTS, TASK, families=few)


def test_ridges_between_those_of_the_grid_are_found(ridged):
    lam = 1.31 * TASK.lam  # the grid has 1 and 1.6
    own = replace(TASK, sigma=lam**0.5)
    path = ls.solve(ls.SOLVERS["heavy-ball-weights"], PROMPTS, own, [2, 4, 6, 8])
    fit = identify(path, PROMPTS, TASK, instrument=ridged).overall.fit("heavy-ball-weights")
    assert fit.lam == pytest.approx((lam, lam), rel=0.03)
    assert fit.score < 2e-3
    coarse = identify(path, PROMPTS, TASK, instrument=replace(ridged, blends=()))
    assert coarse.overall.fit("heavy-ball-weights").score > 10 * fit.score


def test_the_loss_of_a_blend_is_that_of_its_predictions(ridged):
    library = ridged.library
    path = ls.solve(ls.SOLVERS["nesterov-weights"], PROMPTS, TASK, [3, 9], contexts=library.contexts)
    away = path.values[:, library.order] * library.weight - library.krr
    assert len(ridged.blends) == len(library.families)
    for blends in ridged.blends:
        for h, half in enumerate(ridged.halves):
            table = library.predictions(blends.candidate(7, library))[:, half].double()
            expected = (away[:, None, half] - table).square().sum(-1).mean(-1)
            found = blends.losses(ridged._losses(away, h), h, library)[7].double()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
