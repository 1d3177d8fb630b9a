"""Batch = members, prefix = stand-alone problem, dtype kept, memory bounded, and mistakes answered in words."""

from inspect import unwrap  # past the tests' own check of types

import pytest
import torch

import layerstep as ls
from layerstep.solvers import SOLVERS, solving
from layerstep.solvers.solving import step_numbers

TASK = ls.Task(N=9)
PROMPTS = ls.sample(TASK, 6, seed=1)
STEPS = 7  # few enough for CG to be reproducible
#: Their step is that of the longest prefix.
LOOK_AHEAD = ("richardson-fixed", "gd-weights-fixed", "causal-gd")
DIVIDES = {name for name, solver in SOLVERS.items() if "row sums" in solver.needs}


def test_solvers_say_what_they_need_of_a_kernel():
    divide = "richardson cg-row-sum chebyshev heavy-ball boost causal-richardson causal-boost"
    assert set(divide.split()) == DIVIDES
    assert {name for name, solver in SOLVERS.items() if "K >= 0" in solver.needs} == {
        "boost",
        "causal-boost",
        "nadaraya-watson",
    }


@pytest.mark.parametrize("name", SOLVERS)
def test_a_batch_is_its_members(name):
    together = ls.solve(SOLVERS[name], PROMPTS, TASK, STEPS).values
    for b in range(PROMPTS.B):
        alone = ls.solve(SOLVERS[name], PROMPTS[b], TASK, STEPS).values
        torch.testing.assert_close(together[:, b : b + 1], alone, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", [name for name in SOLVERS if name not in LOOK_AHEAD])
def test_a_prefix_is_a_problem_of_its_own(name):
    """Predictions at n <= 4 do not change when the later points are cut off (the fixed step looks at them all)."""
    whole = ls.solve(SOLVERS[name], PROMPTS, TASK, STEPS).values
    cut = ls.solve(SOLVERS[name], ls.Prompts(PROMPTS.x[:, :5], PROMPTS.y[:, :5]), TASK, STEPS).values
    torch.testing.assert_close(whole[..., :4], cut, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", SOLVERS)
def test_predictions_are_linear_in_the_labels_except_for_cg(name):
    path = ls.solve(SOLVERS[name], PROMPTS, TASK, STEPS).values
    doubled = ls.solve(SOLVERS[name], ls.Prompts(PROMPTS.x, -2 * PROMPTS.y), TASK, STEPS).values
    torch.testing.assert_close(doubled, -2 * path, rtol=0, atol=1e-8)
    mixed = ls.Prompts(PROMPTS.x, PROMPTS.y + PROMPTS.y.flip(0))
    flipped = ls.Prompts(PROMPTS.x, PROMPTS.y.flip(0))
    sum_of_parts = path + ls.solve(SOLVERS[name], flipped, TASK, STEPS).values
    apart = (ls.solve(SOLVERS[name], mixed, TASK, STEPS).values - sum_of_parts).abs().max()
    assert apart > 1e-2 if name.startswith("cg") else apart < 1e-8


@pytest.mark.parametrize("name", SOLVERS)
def test_the_dtype_is_kept_and_float32_agrees_to_its_precision(name):
    task = ls.Task(N=9, sigma=0.5)
    prompts = ls.sample(task, 6, seed=1)
    single = ls.solve(SOLVERS[name], prompts.to(torch.float32), task, 4)
    assert single.values.dtype == torch.float32
    double = ls.solve(SOLVERS[name], prompts, task, 4)
    torch.testing.assert_close(single.values.double(), double.values, rtol=0, atol=2e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SOLVERS)
def test_a_gpu_gives_the_same_numbers(name):
    there = ls.solve(SOLVERS[name], PROMPTS.to(device="cuda"), TASK, STEPS).values
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), ls.solve(SOLVERS[name], PROMPTS, TASK, STEPS).values, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", SOLVERS)
def test_blocks_of_sequences_change_nothing(name, monkeypatch):
    whole, exact = ls.solve(SOLVERS[name], PROMPTS, TASK, STEPS).values, ls.exact(PROMPTS, TASK)
    monkeypatch.setattr(solving, "BLOCK", 250)
    torch.testing.assert_close(ls.solve(SOLVERS[name], PROMPTS, TASK, STEPS).values, whole, rtol=0, atol=1e-8)
    torch.testing.assert_close(ls.exact(PROMPTS, TASK), exact)


@pytest.mark.parametrize("name", SOLVERS)
def test_duplicate_points_are_solved_not_divided_by(name):
    x = PROMPTS.x.clone()
    x[:, 1] = x[:, 0]
    x[:3] = x[:3, :1]  # all points of three sequences the same
    for dtype in (torch.float64, torch.float32):
        path = ls.solve(SOLVERS[name], ls.Prompts(x, PROMPTS.y).to(dtype), TASK, [0, 1, 5, 1000])
        assert torch.isfinite(path.values).all()


@pytest.mark.parametrize("name", SOLVERS)
def test_labels_that_are_all_zero_predict_zero(name):
    path = ls.solve(SOLVERS[name], ls.Prompts(PROMPTS.x, 0 * PROMPTS.y), TASK, STEPS)
    assert path.values.abs().max() == 0


@pytest.mark.parametrize("name", SOLVERS)
def test_some_context_lengths_are_a_part_of_all(name):
    whole = ls.solve(SOLVERS[name], PROMPTS, TASK, STEPS)
    part = ls.solve(SOLVERS[name], PROMPTS, TASK, STEPS, contexts=[2, 5, 9])
    assert part.contexts.tolist() == [2, 5, 9]
    torch.testing.assert_close(part.values, whole.values[..., [1, 4, 8]], rtol=0, atol=1e-8)


def test_several_solvers_share_the_work_and_report_progress():
    seen = []
    paths = ls.solve_all(
        {"a": (ls.Richardson(), 5), "b": (ls.NadarayaWatson(), [0.5, 1.5])}, PROMPTS, TASK, progress=seen.append
    )
    assert paths["a"].S == 6
    assert paths["b"].stages.tolist() == [0.5, 1.5]
    assert seen == sorted(seen)
    assert seen[-1] == 1


@pytest.mark.parametrize("name", [name for name in SOLVERS if name != "causal-richardson"])  # that one diverges
@pytest.mark.parametrize("odd", [{"sigma": 1e75}, {"sigma": 1e8, "v": 1e150, "kernel": "gaussian"}], ids=str)
def test_a_ridge_above_everything_gives_no_nan(name, odd):
    task = ls.Task(**{"N": 4, "d": 2, "inputs": "gaussian", "kernel": "arccos1"} | odd)
    assert ls.solve(SOLVERS[name], ls.sample(task, 2, seed=256), task, [0, 1, 5]).values.isfinite().all()


def test_a_ridge_that_rounding_swallows_is_a_sentence():
    task = ls.Task(d=1, sigma=1e-9)
    with pytest.raises(ls.InputError, match=r"lam = 1e-18: must be large enough .* Raise sigma"):
        ls.exact(ls.sample(task, 2, seed=0), task)


@pytest.mark.parametrize("name", ["boost", "causal-boost", "nadaraya-watson"])
def test_a_query_far_from_everything_is_still_the_average_of_its_formula(name):
    """At distance 100 every kernel value is 0 in float64; their ratios are not."""
    far = ls.Prompts(100 * PROMPTS.x, PROMPTS.y)
    got = ls.solve(SOLVERS[name], far, TASK, [1]).values[0, :, -1]
    log_k = -(far.x[:, -1:] - far.x[:, :-1]).square().sum(-1) / 2
    torch.testing.assert_close(got, (log_k.softmax(-1) * far.y[:, :-1]).sum(-1))
    # A kernel value of 1e-400 to the power .01 is 1e-4, not that of the smallest number there is.
    if name == "nadaraya-watson":
        got = ls.solve(SOLVERS[name], far, TASK, [1e-4]).values[0, :, -1]
        torch.testing.assert_close(got, ((1e-4 * log_k).softmax(-1) * far.y[:, :-1]).sum(-1))


@pytest.mark.parametrize("name", SOLVERS)
def test_a_point_whose_kernel_values_are_all_zero_is_left_alone_or_refused_in_words(name):
    """The arccos1 kernel is 0 at x = 0: such a point has no row sum to divide by, and says nothing about others."""
    task, x = ls.Task(N=9, kernel="arccos1"), PROMPTS.x.clone()
    x[:, 0] = 0
    averages = dict.fromkeys(("nadaraya-watson", "softmax-average"), PROMPTS.y[:, 0])  # of one label
    if name in DIVIDES:
        with pytest.raises(
            ls.InputError, match=r"a row sum of K = 0: must be above 0\. The arccos1 kernel is 0 at x = 0"
        ):
            ls.solve(SOLVERS[name], ls.Prompts(x, PROMPTS.y), task, STEPS)
        return
    path = ls.solve(SOLVERS[name], ls.Prompts(x, PROMPTS.y), task, STEPS).values
    assert torch.isfinite(path).all()
    torch.testing.assert_close(path[-1, :, 0], averages.get(name, torch.zeros(PROMPTS.B)).to(path))


@pytest.mark.parametrize("name", SOLVERS)
def test_a_kernel_with_values_below_zero_is_solved_or_refused_in_words(name, monkeypatch):
    """Linear regression has a kernel: positive semidefinite, and half of its values are negative."""
    monkeypatch.setitem(ls.KERNELS, "linear", lambda x, z, v: x @ z.mT / v**2)
    task = ls.Task(N=9, kernel="linear", sigma=0.5)
    if SOLVERS[name].needs:
        with pytest.raises(
            ls.InputError, match=r"a row sum of K = -.*below 0: move.*gd-weights|a kernel value = -.*softmax-average"
        ):
            ls.solve(SOLVERS[name], PROMPTS, task, STEPS)
        return
    path = ls.solve(SOLVERS[name], PROMPTS, task, [0, 1, 10**6] if name in ("cg", "gd", "richardson-plain") else STEPS)
    assert torch.isfinite(path.values).all()
    if path.S == 3:
        torch.testing.assert_close(path.values[-1], ls.exact(PROMPTS, task), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_sequence_does_not_see_how_large_the_others_are(name):
    """Inputs of size 1e-8 have arccos1 values of 1e-16: their spectrum, over the row sums, ends at 1e13."""
    task = ls.Task(N=9, kernel="arccos1")
    x = PROMPTS.x.clone()
    x[1:] *= 1e-8
    beside = ls.solve(SOLVERS[name], ls.Prompts(x, PROMPTS.y), task, STEPS).values
    alone = ls.solve(SOLVERS[name], PROMPTS[0], task, STEPS).values
    torch.testing.assert_close(beside[:, :1], alone, rtol=0, atol=1e-8)


def test_solvers_are_frozen_values():
    assert ls.Richardson() == ls.Richardson()
    assert hash(ls.Richardson()) != hash(ls.Richardson(eta=0.5))
    with pytest.raises(AttributeError):
        ls.Richardson().eta = 1.0


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (-1, "steps = -1: must be an integer of at least 0"),
        ([], "at least one number"),
        ([3, 2], "strictly increasing"),
        ([1, 1], "strictly increasing"),
        ([-2, 1], "0 or more"),
        ([0.5], "whole numbers for Preconditioned Richardson"),
        ([float("nan")], "finite"),
        ([1e19], r"below 2\*\*53"),
    ],
)
def test_bad_steps_are_refused_in_words(steps, words):
    with pytest.raises(ls.InputError, match=words):
        ls.solve(ls.Richardson(), PROMPTS, TASK, steps)


@pytest.mark.parametrize("name", ["causal-richardson", "causal-boost", "causal-gd"])
def test_who_takes_one_step_after_another_is_not_asked_for_a_billion(name):
    prompts = ls.sample(ls.Task(N=2, d=1, inputs="uniform"), 1, seed=0)
    with pytest.raises(
        ls.InputError, match=r"steps = 1,000,000,000: must be at most 1,000,000 for Causal .* another\."
    ):
        ls.solve(ls.SOLVERS[name], prompts, ls.Task(N=2, d=1, inputs="uniform"), [10**9])


@pytest.mark.parametrize(
    ("contexts", "words"),
    [([], "at least one"), ([0, 2], "from 1 to 9"), ([3, 3], "increasing")],
)
def test_bad_contexts_are_refused_in_words(contexts, words):
    with pytest.raises(ls.InputError, match=words):
        ls.solve(ls.Richardson(), PROMPTS, TASK, 3, contexts=contexts)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ls.Richardson(eta=-1.0), "eta = -1.0: must be a finite number above 0"),
        (lambda: ls.Richardson(step="fixed"), "step = 'fixed': must be 'per-prefix'"),
        (lambda: ls.Richardson(step="fixed", eta=0.5), "For one step size give eta instead"),
        (lambda: ls.Chebyshev(lo=1.0), "given together"),
        (lambda: ls.Chebyshev(lo=2.0, hi=1.0), "increasing order"),
        (lambda: ls.solve(ls.Richardson(), PROMPTS, ls.Task(d=3, N=9), 2), r"prompts\.d = 5: must be 3"),
        (lambda: ls.solve(ls.Richardson(), PROMPTS.to(torch.float16), TASK, 2), "float32 or torch.float64"),
        (lambda: ls.exact(PROMPTS.to(torch.bfloat16), TASK), "float32 or torch.float64"),
        (lambda: ls.solve_all({}, PROMPTS, TASK), "at least one solver"),
        (
            lambda: unwrap(ls.solve_all)({"a": ls.Richardson()}, PROMPTS, TASK),
            r"solvers = .*: must be a dictionary of \(so",
        ),
        (
            lambda: ls.solve(ls.Richardson(), PROMPTS, TASK, 10**30),
            r"steps = 10{30}: needs .* GiB .* Give step numbers",
        ),
        (lambda: ls.solve(ls.Richardson(), PROMPTS, TASK, 10**400), r"steps = 1.*: needs inf GiB of memory"),
        (
            lambda: unwrap(step_numbers)(3, "richardson"),
            r"solver = 'richardson': must be a solver such as Richardson\(\)",
        ),
    ],
)
def test_bad_solvers_are_refused_in_words(make, words):
    with pytest.raises(ls.InputError, match=words):
        make()
