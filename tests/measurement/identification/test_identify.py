"""Verdicts: the planted solver is named, what no solver made is not, and bad input is answered in words."""

import json
import re
from dataclasses import dataclass, replace
from inspect import unwrap  # past the tests' own check of types

import numpy as np
import pytest
import torch
from torch import nn

import layerstep as ls
from layerstep.measurement import Instrument, identify
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.identification.decision import Rule, result_on
from layerstep.measurement.identification.descriptions import RowSums, Slopes
from layerstep.measurement.identification.label_interventions import LabelInterventions, intervene_on_labels
from layerstep.solvers import Solver

TASK = ls.Task(inputs="gaussian")
STEPS = {
    "richardson": (3, 8, 20, 50, 120),
    "richardson-fixed": (4, 10, 25, 60, 150),
    "gd": (10, 40, 150, 600, 3000),
    "nesterov": (5, 12, 25, 50, 100),
    "cg": (1, 2, 4, 6, 8),
    "chebyshev": (4, 9, 15, 22, 30),
    "ridge": (0.2, 0.8, 3, 10, 40),
    "shrink": (15, 30, 45, 60, 80),
    "nadaraya-watson": (0.5, 1, 2, 4, 8),
    "knn": (2, 5, 9, 14, 20),
    "boost": (1, 3, 6, 12, 25),
    "causal-richardson": (1, 3, 6, 12, 25),
    "causal-boost": (1, 3, 6, 12, 25),
}


def planted(prompts, solver, std=0.03, steps=None, **task):
    path = ls.solve(ls.SOLVERS[solver], prompts, replace(TASK, **task), steps or STEPS[solver])
    noise = torch.from_numpy(np.random.default_rng(3).normal(0, std, path.values.shape)) if std else 0
    return ls.Trajectory(path.values + noise, range(1, path.S + 1), f"planted {solver}")


@pytest.mark.parametrize("solver", STEPS)
def test_a_planted_solver_is_named(prompts, instrument, solver):
    verdict = identify(planted(prompts, solver), prompts, TASK, instrument=instrument)
    assert verdict.solver == solver, str(verdict)
    assert verdict.status == "identified"
    assert verdict.overall.margin >= verdict.rule.margin_limit


def test_the_fitted_steps_are_the_planted_ones(prompts, instrument):
    verdict = identify(planted(prompts, "richardson", std=0), prompts, TASK, instrument=instrument)
    fit = verdict.overall.fit("richardson")
    np.testing.assert_allclose(fit.step.numpy(), STEPS["richardson"], rtol=0.1)
    assert fit.v == (1.0, 1.0)
    assert verdict.description(RowSums).row_sums is True


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (ls.Task(N=12, kernel="arccos1", v=0.5), "need K(x, x) of at most 1"),
        (ls.Task(N=12, sigma=1.0), ""),  # some diverge at the larger ridge, none at both
    ],
    ids=["kernel", "ridge"],
)
def test_families_that_cannot_run_here_do_not_blind_the_instrument(task, words):
    """A step that is safe for the Gaussian kernel or a small ridge is not for others: such families are left out."""
    prompts = ls.sample(task, 64, seed=0)
    small = Instrument.prepare(prompts, task, bandwidths=(0.7, 1.0), ridges=(6.5,))
    assert small.library.table.isfinite().all()
    path = ls.solve(ls.Richardson(), prompts, task, (1, 2, 3, 5, 8, 14))
    verdict = identify(path, prompts, task, instrument=small)
    assert verdict.overall.nearest == "richardson", str(verdict)
    absent = {f.name for f in ls.FAMILIES} - {f.name for f in small.library.families}
    said = [remark for remark in verdict.remarks if "not in the library" in remark]
    assert {name for remark in said for name in re.split(": not in| diverge ", remark)[0].split(", ")} == absent
    assert words in " ".join(said)
    assert bool(words) == bool(absent)


def linear_regression(monkeypatch):
    monkeypatch.setitem(ls.KERNELS, "linear", lambda x, z, v: x @ z.mT / v**2)
    task = ls.Task(kernel="linear", N=12, inputs="gaussian", sigma=0.3)
    return task, ls.sample(task, 64, seed=1)


def test_a_kernel_with_values_below_0_is_met_by_the_families_it_allows(monkeypatch):
    task, prompts = linear_regression(monkeypatch)
    path = ls.solve(ls.GradientDescent(), prompts, task, [2, 5, 10, 20])
    small = Instrument.prepare(prompts, task, bandwidths=(1.0,), ridges=())
    verdict = identify(path, prompts, task, instrument=small)
    kinds = {family.kind for family in small.library.families}
    assert kinds == {"richardson", "richardson-fixed", "gd", "nesterov", "cg", "ridge", "shrink", "knn"}
    assert verdict.solver == "gd", str(verdict)
    assert "richardson, richardson-slow, " in str(verdict)
    assert "for they need row sums of K above 0 and kernel values of 0 or more and K(x, x) of at most 1" in str(verdict)
    assert "kernel linear (calibrated with gaussian)" in str(verdict)
    with pytest.raises(ls.InputError, match="families = boost: must be some that do not need row sums of K above 0"):
        identify(path, prompts, task, families=[f for f in ls.FAMILIES if f.name == "boost"])


@dataclass(frozen=True, kw_only=True)
class Damped(Solver):
    """Richardson without row sums, every prediction shrunk by 1 - 1 / (t + 2)."""

    label = "Damped"

    def predictions(self, system, steps):
        found = ls.Richardson(preconditioner="none").predictions(system, steps)
        return found * (1 - 1 / (steps + 2))


def test_a_solver_of_the_users_enters_a_verdict(prompts):
    mine = ls.Family(name="mine", kind="mine", solver=Damped(), steps=range(1, 200))
    path = ls.solve(Damped(), prompts, TASK, (3, 8, 20, 50, 120))
    small = {"bandwidths": (0.95, 1.0, 1.05), "ridges": ()}
    for families, solver in (([*ls.FAMILIES, mine], "mine"), (ls.FAMILIES, None)):
        verdict = identify(
            path, prompts, TASK, instrument=Instrument.prepare(prompts, TASK, families=families, **small)
        )
        assert verdict.solver == solver, str(verdict)
        assert ("rates unknown for class mine" in str(verdict)) == (solver == "mine")


class Wrong(Damped):
    """A solver that is not one, in the way named."""

    def __init__(self, way):
        object.__setattr__(self, "way", way)

    def predictions(self, system, steps):
        if self.way == "raises":
            raise KeyError("w")
        if self.way == "shape":
            return system.y
        return system.batch.y[:, -1:].expand(-1, len(steps))


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("raises", "mine: its solver raised KeyError: 'w'"),
        ("shape", r"mine: predictions = a Tensor of shape .*: must be a tensor of shape \[4, 2\], sequences by steps"),
        ("looks", r"mine: predictions = changed by y_\{n\+1\} or a later label"),
    ],
)
def test_a_solver_of_the_users_that_is_not_one_is_refused_in_words(prompts, way, words):
    mine = ls.Family(name="mine", kind="mine", solver=Wrong(way), steps=[1, 2])
    with pytest.raises(ls.InputError, match=words):
        Instrument.prepare(prompts, TASK, families=[mine], bandwidths=(1.0,), ridges=())


def test_a_library_without_richardson_answers(prompts):
    some = [f for f in ls.FAMILIES if f.name in ("gd", "ridge", "cg")]
    small = Instrument.prepare(prompts, TASK, families=some, bandwidths=(1.0,), ridges=())
    verdict = identify(planted(prompts, "gd", std=0), prompts, TASK, instrument=small)
    assert verdict.solver == "gd"
    assert verdict.description(Slopes) is None
    one = Instrument.prepare(prompts, TASK, families=some[:1], bandwidths=(1.0,), ridges=())
    assert identify(planted(prompts, "gd", std=0), prompts, TASK, instrument=one).solver == "gd"


def test_row_sums_are_undecided_when_the_family_without_them_is_not_there(prompts):
    some = [family for family in ls.FAMILIES if family.name != "richardson-plain"]
    fewer = Instrument.prepare(prompts, TASK, families=some, bandwidths=(1.0,), ridges=())
    verdict = identify(planted(prompts, "richardson", std=0), prompts, TASK, instrument=fewer)
    assert verdict.solver == "richardson"
    assert verdict.description(RowSums).row_sums is None
    assert any("row sums" in claim for claim in verdict.cannot_say)


def mixture(prompts):
    return 0.6 * planted(prompts, "richardson").values + 0.4 * planted(prompts, "nadaraya-watson").values


OUTSIDE = {
    "a mixture": mixture,
    "heavy ball": lambda prompts: ls.solve(ls.HeavyBall(), prompts, TASK, (5, 12, 25, 50, 100)).values,
    "krr on the first points": lambda prompts: ls.solve(ls.RecursiveKRR(), prompts, TASK, (4, 9, 15, 22, 30)).values,
    "tanh of richardson": lambda prompts: torch.tanh(2 * planted(prompts, "richardson").values) / 2,
    "other sequences": lambda prompts: planted(prompts, "richardson").values.roll(1, dims=1),
    "krr and noise": lambda prompts: (
        ls.exact(prompts, TASK)
        + 0.2 * torch.from_numpy(np.random.default_rng(0).standard_normal((5, prompts.B, prompts.N)))
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_no_solver_made_is_not_claimed(prompts, instrument, name):
    path = ls.Trajectory(OUTSIDE[name](prompts), range(1, 6), name)
    verdict = identify(path, prompts, TASK, instrument=instrument)
    assert verdict.solver is None, str(verdict)
    assert "calibration" in str(verdict)


@pytest.mark.parametrize("solver", ["richardson", "ridge", "cg", "boost"])
def test_with_its_class_left_out_a_solver_is_not_claimed_as_another(prompts, instrument, solver):
    values = planted(prompts, solver).values[:, :, [n - 1 for n in instrument.library.contexts]]
    residuals = instrument.cross_fit(values, torch.arange(1, 6, dtype=torch.float64))
    assert result_on(residuals, Rule(**read_record()["rule"]), without=[solver], seed=0).solver is None


@pytest.mark.parametrize("solver", STEPS)
def test_a_bandwidth_and_a_ridge_that_are_both_off_may_cost_the_claim_but_make_no_other(prompts, instrument, solver):
    path = planted(prompts, solver, std=0, v=1.1, sigma=0.1)
    values = path.values[:, :, [n - 1 for n in instrument.library.contexts]]
    residuals = instrument.cross_fit(values, path.stages)
    assert result_on(residuals, Rule(**read_record()["rule"]), seed=0).solver in (solver, None)


def test_layers_and_windows_are_judged_apart(prompts, instrument):
    first = planted(prompts, "richardson", std=0.0, steps=(3, 6, 12, 25)).values
    second = planted(prompts, "boost", std=0.0, steps=(3, 6, 12, 25)).values
    path = ls.Trajectory(torch.cat([first, second]), range(1, 9), "two halves")
    verdict = identify(path, prompts, TASK, instrument=instrument)
    assert verdict.solver is None
    assert verdict.ranges[0].solver == "richardson"
    assert verdict.ranges[-1].solver == "boost"
    assert {judged.solver for judged in verdict.layers[:4]} <= {"richardson", None}
    assert {judged.solver for judged in verdict.layers[4:]} <= {"boost", None}


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0, 1, 2, 3, 4), ()),
        ((4, 3, 2, 1, 0), ("steps fall at layers 2, 3, 4, 5",)),
        ((1, 0, 3, 2, 4), ("steps fall at layers 2, 4",)),
        ((0, 2, 2, 2, 4), ("layers 3, 4 predict what the layer before does",)),
    ],
)
def test_layers_out_of_order_or_repeated_get_a_remark(prompts, instrument, order, words):
    path = planted(prompts, "richardson", std=0)
    path = ls.Trajectory(path.values[list(order)], range(1, 6), "moved")
    verdict = identify(path, prompts, TASK, instrument=instrument)
    assert verdict.solver == "richardson"
    said = [remark for remark in verdict.remarks if "steps fall" in remark or "layer before" in remark]
    assert len(said) == len(words)
    assert all(word in remark for word, remark in zip(words, said, strict=True))


def test_none_says_that_predictions_cannot_show_a_solver_inside(prompts, instrument):
    path = ls.Trajectory(mixture(prompts), range(1, 6), "mixture")
    verdict = identify(path, prompts, TASK, instrument=instrument)
    assert verdict.solver is None
    assert any("no solver runs inside" in claim for claim in verdict.cannot_say)
    sound = identify(planted(prompts, "richardson"), prompts, TASK, instrument=instrument)
    assert not any("no solver runs inside" in claim for claim in sound.cannot_say)


def test_order_of_the_sequences_changes_nothing(prompts):
    few = prompts[:64]
    order = torch.from_numpy(np.random.default_rng(1).permutation(64))
    path = planted(few, "gd")
    verdicts = []
    for given, values in ((few, path.values), (few[order], path.values[:, order])):
        small = Instrument.prepare(given, TASK, bandwidths=(1.0,), ridges=())
        verdicts.append(identify(ls.Trajectory(values, path.stages, "m"), given, TASK, instrument=small))
    a, b = (verdict.overall for verdict in verdicts)
    assert (a.status, a.nearest, a.rival) == (b.status, b.nearest, b.rival)
    assert (a.U, a.V, a.margin) == pytest.approx((b.U, b.V, b.margin), rel=1e-4, abs=1e-6)


def with_nan(path):
    values = path.values.clone()
    values[2, 0, 0] = torch.nan
    return ls.Trajectory(values, path.stages, "nan")


def test_a_nan_layer_is_left_out_and_said(prompts, instrument):
    verdict = identify(with_nan(planted(prompts, "richardson")), prompts, TASK, instrument=instrument)
    assert "layers 3 have predictions that are NaN" in str(verdict)
    assert verdict.overall.layers == (1, 2, 4, 5)
    assert verdict.solver == "richardson"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (lambda prompts: torch.full((3, prompts.B, prompts.N), 0.3, dtype=torch.float64), "predict a constant"),
        (lambda prompts: torch.full((3, prompts.B, prompts.N), torch.nan, dtype=torch.float64), "NaN"),
        (lambda prompts: prompts.x[:, 1:, 0].sin().expand(3, -1, -1), "ignore the labels"),
        (lambda prompts: ls.exact(prompts, TASK).expand(3, -1, -1), "at exact KRR"),
    ],
)
def test_paths_with_nothing_to_identify_say_why(prompts, instrument, values, words):
    verdict = identify(ls.Trajectory(values(prompts), [1, 2, 3], "m"), prompts, TASK, instrument=instrument)
    assert verdict.status == "nothing to identify"
    assert verdict.solver is None
    assert words in str(verdict)


def test_too_few_sequences_are_no_verdict(prompts):
    few = prompts[:10]
    verdict = identify(planted(few, "richardson"), few, TASK)
    assert verdict.solver is None
    assert "10 sequences are too few" in str(verdict)


def test_a_path_of_another_length_is_refused(prompts, instrument):
    path = planted(prompts, "richardson")
    with pytest.raises(ls.InputError, match="on the prompts given"):
        identify(ls.Trajectory(path.values[:, :-1], path.stages), prompts, TASK)
    with pytest.raises(ls.InputError, match="context lengths"):
        identify(ls.Trajectory(path.values[..., :-1], path.stages), prompts, TASK)


def test_an_instrument_for_other_prompts_or_another_task_is_refused(prompts, instrument):
    path = planted(prompts, "richardson")
    moved = ls.Prompts(prompts.x + 1, prompts.y)
    with pytest.raises(ls.InputError, match="instrument = prepared on other prompts"):
        identify(path, moved, TASK, instrument=instrument)
    with pytest.raises(ls.InputError, match=r"prepared for Task\(.*sigma=0\.05.*the task given, Task\(.*sigma=0\.1"):
        identify(path, prompts, replace(TASK, sigma=0.1), instrument=instrument)


@pytest.fixture(scope="module")
def short():
    return ls.sample(replace(TASK, N=12), 64, seed=4)


def judged(prompts, labels=1.0, offset=0.0):
    """The verdict on Richardson, with one bandwidth, on these prompts in other units."""
    given = ls.Prompts(prompts.x + offset, labels * prompts.y)
    small = Instrument.prepare(given, TASK, bandwidths=(1.0,), ridges=())
    return identify(planted(given, "richardson", std=0), given, TASK, instrument=small)


def test_a_verdict_is_about_the_length_of_the_prompts(short):
    assert any("N = 12 (calibrated at 40)" in claim for claim in judged(short).cannot_say)


def test_units_of_labels_and_origin_of_inputs_change_no_number(short):
    # 2**20 away float64 keeps 2**-33 of an input: round the inputs to that, so that the shift is exact.
    exact = ls.Prompts((short.x * 2**30).round() / 2**30, short.y)
    here = judged(exact)
    for other in (judged(exact, labels=2.0**-46), judged(exact, labels=2.0**27), judged(exact, offset=2.0**20)):
        for mine, theirs in zip(other.overall.fits, here.overall.fits, strict=True):
            assert mine.family == theirs.family
            assert (mine.score, mine.V) == pytest.approx((theirs.score, theirs.V), rel=1e-9)
        torch.testing.assert_close(other.table.cosine, here.table.cosine)
        torch.testing.assert_close(other.table.sime, here.table.sime)


def test_labels_too_large_for_single_precision_are_refused_in_words(short):
    with pytest.raises(ls.InputError, match=r"labels of size 9.6e\+24: must be a root mean square from 1e-15 to 1e15"):
        judged(short, labels=1e25)


def test_interventions_tell_linear_from_nonlinear(prompts, instrument):
    few = prompts[:64]

    def run(solver, squash=False):
        def model_fn(given):
            path = ls.solve(ls.SOLVERS[solver], given, TASK, STEPS[solver])
            return ls.Trajectory(torch.tanh(path.values) if squash else path.values, range(1, 6), solver)

        return model_fn

    layers = torch.arange(1, 6, dtype=torch.float64)
    linear = intervene_on_labels(run("richardson"), few, TASK, layers, seed=0)
    assert linear.additivity.max() < 1e-9
    assert linear.oddness.max() < 1e-9
    assert linear.order.max() < 1e-6
    bent = intervene_on_labels(run("cg"), few, TASK, layers, seed=0)
    assert bent.additivity.min() > 0.3
    assert bent.oddness.max() < 1e-9
    assert intervene_on_labels(run("causal-boost"), few, TASK, layers, seed=0).order[1:].min() > 0.05
    # Some contexts are enough; without n = N there is nothing to say about order.
    for contexts, known in (([3, 40], True), ([3, 20], False)):
        some = intervene_on_labels(
            lambda given, n=contexts: ls.solve(ls.Richardson(), given, TASK, range(1, 6), contexts=n),
            few,
            TASK,
            layers,
            seed=0,
        )
        assert some.additivity.max() < 1e-9
        assert bool(some.order.isfinite().all()) is known


@pytest.mark.parametrize("bent", [5, 2])
def test_what_is_not_linear_in_the_labels_is_not_claimed(prompts, instrument, bent):
    """A path that looks like Richardson on these labels, from a model whose first layers are not linear in them."""
    honest = planted(prompts, "richardson", std=0)

    def model_fn(given):
        values = planted(given, "richardson", std=0).values.clone()
        values[:bent] = planted(given, "cg", std=0).values[:bent]
        return ls.Trajectory(values, honest.stages)

    verdict = identify(honest, prompts, TASK, instrument=instrument, model_fn=model_fn)
    sound = identify(honest, prompts, TASK, instrument=instrument)
    assert verdict.description(LabelInterventions).additivity[:bent].min() > 0.3
    assert verdict.solver == (None if 2 * bent >= 5 else "richardson")
    assert ("fits, but half of the usable layers or more are not linear in the labels" in str(verdict)) == (bent == 5)
    # Four layers a window: 1-4 and 2-5.
    assert [judged.solver for judged in sound.ranges] == ["richardson"] * 2
    assert [judged.solver for judged in verdict.ranges] == [
        None if share >= 2 else "richardson" for share in (min(bent, 4), bent - 1)
    ]
    assert all(judged.solver is None for judged in verdict.layers[:bent])
    assert [judged.solver for judged in verdict.layers[bent:]] == [judged.solver for judged in sound.layers[bent:]]
    assert verdict.layers[0].reason == "richardson fits, but the usable layer is not linear in the labels, as it is"


def test_interventions_are_in_the_unit_of_the_labels(short):
    """tanh saturates at the size of a label: a model in another unit bends as much."""

    def tests(unit):
        def model_fn(given):
            path = planted(given, "richardson", std=0)
            return ls.Trajectory(unit * torch.tanh(0.1 + path.values / unit), path.stages)

        given = ls.Prompts(short.x, unit * short.y)
        return intervene_on_labels(model_fn, given, TASK, torch.arange(1, 6, dtype=torch.float64), seed=0)

    here = tests(1.0)
    assert here.additivity.min() > 0.1
    assert here.at_zero.min() > 0.05
    for unit in (2.0**10, 2.0**-46):
        there = tests(unit)
        for name in ("additivity", "oddness", "at_zero", "order"):
            torch.testing.assert_close(getattr(there, name), getattr(here, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": ls.Trajectory(torch.zeros(0, 96, 40), [])}, "path = no stages: must be one stage or more"),
        ({"path": torch.zeros(2, 96, 40)}, r"path = a Tensor: must be a Trajectory\. Make one with ls\.Trajectory"),
        (
            {"model_fn": nn.Linear(1, 1)},
            "model_fn = a Linear: must be a function from prompts to the trajectory, such as probes.path",
        ),
        ({"model_fn": "model"}, "model_fn = a str: must be a function"),
        (
            {"model_fn": lambda given: given.y},
            "model_fn = a function that gives a Tensor: must be a function from prompts",
        ),
    ],
)
def test_mistaken_arguments_are_refused_before_the_library_is_built(prompts, arguments, words, monkeypatch):
    def build(*_, **options):
        raise AssertionError("the library is built")

    monkeypatch.setattr(Instrument, "prepare", build)
    given = {"path": planted(prompts, "richardson"), "prompts": prompts, "task": TASK}
    with pytest.raises(ls.InputError, match=words):
        unwrap(identify)(**(given | arguments))


def test_a_constructed_transformer_is_named_with_one_step_an_iteration(prompts, instrument):
    network = ls.construct(TASK.d, TASK.N, TASK.v, TASK.lam, scheme="exact", eta=1.0, L=6)
    path = network.path(prompts, contexts=instrument.library.contexts)
    verdict = identify(path, prompts, TASK, instrument=instrument)
    assert verdict.solver == "richardson"
    assert verdict.overall.fit("richardson").step.tolist() == [1, 2, 3, 4, 5, 6]


def test_a_verdict_is_text_json_and_a_figure(prompts, instrument, tmp_path):
    verdict = unwrap(identify)(planted(prompts, "richardson"), prompts, TASK, instrument=instrument, seed=np.int64(0))
    assert "planted richardson: richardson" in str(verdict)
    loaded = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert loaded["solver"] == "richardson"
    assert len(loaded["table"]["U"]) == len(instrument.library.families)
    assert loaded["library_hash"] == instrument.library.hash
    assert any("linear in the labels" in claim for claim in loaded["cannot_say"])
    assert "candidates" not in loaded["overall"]["fits"][0]
    verdict.figure(str(tmp_path / "verdict.png"))
    assert (tmp_path / "verdict.png").stat().st_size > 10_000
    with pytest.raises(ls.InputError, match=r"suffix of file = 'txt': must be one of .*png"):
        verdict.figure(str(tmp_path / "verdict.txt"))
