"""The paper's metrics equal their definitions, written out in NumPy."""

import math
import warnings

import numpy as np
import pytest
import torch

import layerstep as ls
from layerstep.measurement.similarity import Match, layers_won, match

TASK = ls.Task(N=12)


def planted():
    prompts = ls.sample(TASK, 20, seed=3)
    steps = [0, 2, 4, 7, 11, 16, 22]
    path = ls.solve(ls.Richardson(), prompts, TASK, steps)
    noise = torch.from_numpy(np.random.default_rng(0).normal(0, 0.05, path.values.shape))
    return prompts, ls.Trajectory(path.values + noise, range(7), "planted")


def literal_cosine(model, iterate, label):
    a, b = model - label, iterate - label
    na, nb = np.sqrt(a @ a), np.sqrt(b @ b)
    return 0.0 if min(na, nb) < 1e-12 else (a @ b) / (na * nb)


@pytest.mark.parametrize("solver", ["richardson", "cg", "gd", "nesterov"])
def test_metrics_equal_their_definitions(solver):
    prompts, path = planted()
    reference = ls.solve(ls.SOLVERS[solver], prompts, TASK, 30)
    got = match(path, reference, prompts)
    model, iterates, labels = path.values.numpy(), reference.values.numpy(), prompts.target.numpy()
    cosine = np.array(
        [
            [[literal_cosine(model[k, b], iterates[t, b], labels[b]) for b in range(20)] for t in range(31)]
            for k in range(7)
        ]
    )
    np.testing.assert_allclose(got.sime.numpy(), cosine.mean(-1), atol=1e-10)
    # A step is the first whose cosine is the largest; where rounding decides, either of the tied steps is right.
    best = got.best_step.numpy().astype(int)
    chosen = np.take_along_axis(cosine.transpose(2, 0, 1), best[..., None], -1)[..., 0]
    np.testing.assert_allclose(chosen, cosine.max(1).T, atol=1e-10)
    mean_step = best.mean(0)[2:6]
    slope, intercept = np.polyfit(np.arange(2, 6), mean_step, 1)
    residual = mean_step - intercept - slope * np.arange(2, 6)
    r2 = 1 - (residual @ residual) / ((mean_step - mean_step.mean()) ** 2).sum()
    assert got.r2(2, 5) == pytest.approx(r2, abs=1e-10)
    line = got.line(2, 5, seed=0, resamples=200)
    assert (line.slope, line.intercept) == pytest.approx((slope, intercept), abs=1e-9)
    assert line.interval[0] <= line.r2 <= line.interval[1] or line.r2 > 0.99


def test_the_first_of_equal_steps_is_chosen():
    prompts, _ = planted()
    one = ls.solve(ls.Richardson(), prompts, TASK, [5]).values
    reference = ls.Trajectory(torch.cat([one + 1, one, one, one]), range(4), "repeats")
    got = match(ls.Trajectory(one, [1], "model"), reference, prompts)
    assert (got.best_step == 1).all()


def test_an_error_of_length_zero_has_cosine_zero():
    prompts, _ = planted()
    perfect = ls.Trajectory(prompts.target[None], [0], "perfect")
    assert match(perfect, perfect, prompts).sime.item() == 0


@pytest.mark.parametrize("scale", [1e-14, 1e8])
def test_the_unit_of_the_labels_changes_nothing(scale):
    prompts, path = planted()
    reference = ls.solve(ls.Richardson(), prompts, TASK, 20)
    scaled = [ls.Trajectory(scale * each.values, each.stages) for each in (path, reference)]
    got = match(*scaled, ls.Prompts(prompts.x, scale * prompts.y))
    torch.testing.assert_close(got.cosine, match(path, reference, prompts).cosine)


def test_constant_steps_have_no_r2():
    prompts, _ = planted()
    reference = ls.solve(ls.Richardson(), prompts, TASK, 5)
    same = ls.Trajectory(reference.values[3].expand(4, -1, -1), range(4), "constant")
    found = match(same, reference, prompts)
    assert math.isnan(found.r2(0, 3))
    # Equal means that are not binary fractions: nine of them have a mean of their own.
    third = torch.zeros(9, 11, 3)
    third[:, 3, :2] = third[:, 4, 2] = 1
    thirds = Match(cosine=third, layers=torch.arange(9.0), steps=torch.arange(11.0), label="thirds")
    assert math.isnan(thirds.r2(0, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(map(math.isnan, found.line(0, 3, seed=0, resamples=10).interval))


def test_a_planted_solver_wins_every_layer_and_a_tie_is_won_by_nobody():
    prompts, _ = planted()
    path = ls.solve(ls.ConjugateGradient(), prompts, TASK, [0, 1, 2, 3, 4])
    references = {name: ls.solve(ls.SOLVERS[name], prompts, TASK, 20) for name in ("richardson", "cg", "gd")}
    won = layers_won({name: match(path, reference, prompts) for name, reference in references.items()})
    assert won == {"richardson": 0, "cg": 4, "gd": 0}
    copies = {name: match(path, references["cg"], prompts) for name in ("first", "second")}
    assert layers_won(copies) == {"first": 0, "second": 0}
    zero = ls.Trajectory(torch.zeros_like(path.values), path.stages)  # what every solver predicts before its first step
    assert set(layers_won({name: match(zero, each, prompts) for name, each in references.items()}).values()) == {0}


def test_nan_matches_nothing():
    prompts, path = planted()
    richardson, gd = (ls.solve(ls.SOLVERS[name], prompts, TASK, 20) for name in ("richardson", "gd"))
    broken, diverged = path.values.clone(), gd.values.clone()
    broken[3], diverged[-1] = torch.nan, torch.inf
    broken, diverged = ls.Trajectory(broken, path.stages), ls.Trajectory(diverged, gd.stages)
    matches = {"gd": match(broken, diverged, prompts), "richardson": match(broken, richardson, prompts)}
    assert layers_won(matches) == {"gd": 0, "richardson": 5}  # layers 1 to 6 but 3
    best = matches["gd"].best_step
    assert best[:, 3].isnan().all()
    assert torch.equal(
        best[:, 4:], match(path, ls.Trajectory(gd.values[:-1], gd.stages[:-1]), prompts).best_step[:, 4:]
    )
    assert math.isnan(matches["gd"].r2(2, 6))


def test_labels_may_be_an_array_and_mistakes_are_answered_in_words():
    prompts, path = planted()
    found = match(path, path, prompts.target.numpy())
    assert torch.equal(found.cosine, match(path, path, prompts).cosine)
    with pytest.raises(ls.InputError, match="seed = -1"):
        found.line(1, 5, seed=-1)
    with pytest.raises(ls.InputError, match="matches = of different layers: must be of the same path"):
        layers_won({"whole": found, "part": match(ls.Trajectory(path.values[:3], path.stages[:3]), path, prompts)})


def test_paths_on_other_prompts_are_refused():
    prompts, path = planted()
    short = ls.solve(ls.Richardson(), prompts[:5], TASK, 5)
    with pytest.raises(ls.InputError, match="same prompts"):
        match(path, short, prompts)
    few, others = (ls.solve(ls.Richardson(), prompts, TASK, 5, contexts=n) for n in ([3, 6, 12], [4, 6, 12]))
    with pytest.raises(ls.InputError, match=r"contexts \[3, 6, 12\] and \[4, 6, 12\].*same context lengths"):
        match(few, others, prompts)
    assert match(few, few, prompts).sime.diagonal() == pytest.approx(torch.ones(6))
    with pytest.raises(ls.InputError, match="at most N = 12"):
        match(*[ls.Trajectory(few.values, few.stages, "m", [3, 6, 13])] * 2, prompts)
    with pytest.raises(ls.InputError, match="3 layers or more"):
        match(path, path, prompts).r2(2, 3)
