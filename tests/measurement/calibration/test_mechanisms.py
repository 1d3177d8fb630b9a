"""Planted networks do what they say: their outputs are the solvers', their decoys are readable and unused."""

import pytest
import torch

import layerstep as ls
from layerstep.measurement.calibration.causal_error_rates import assess, jobs, score, table
from layerstep.measurement.calibration.mechanisms import Mechanism, near_misses, positives
from layerstep.measurement.interventions.rule import CausalRule

TASK = ls.Task(inputs="uniform", d=3, N=9)
PROMPTS = ls.sample(TASK, 4, seed=2)
SOLVERS = {
    ("open", "richardson"): ls.Richardson(),
    ("open", "richardson-fixed"): ls.Richardson(preconditioner="none"),
    ("open", "gd"): ls.GradientDescent(),
    ("open", "boost"): ls.SOLVERS["boost"],
    ("causal", "causal-richardson"): ls.CausalRichardson(),
    ("causal", "causal-boost"): ls.CausalBoosting(),
}


@pytest.mark.parametrize("form", ["functional", "dual"])
@pytest.mark.parametrize(("mask", "solver"), SOLVERS)
def test_the_output_is_that_of_the_solver(mask, solver, form):
    mechanism = Mechanism(solver=solver, form=form, mask=mask, steps=(2, 1, 3), v=TASK.v, seed=5)
    reader = mechanism.reader(TASK)
    made = reader.predictions(reader.run(PROMPTS))
    theirs = ls.solve(SOLVERS[mask, solver], PROMPTS, TASK, 6).values[6]
    ours = made[:, 1:] if mask == "causal" else made
    torch.testing.assert_close(ours, theirs if mask == "causal" else theirs[:, -1:], rtol=1e-8, atol=1e-10)


def test_steps_of_one_size_are_those_of_the_solver_with_that_size():
    mechanism = Mechanism(solver="richardson-fixed", form="dual", mask="open", steps=(2, 1), v=TASK.v, size=0.6)
    reader = mechanism.reader(TASK)
    made = reader.predictions(reader.run(PROMPTS))
    solver = ls.Richardson(preconditioner="none", eta=mechanism.eta(TASK))
    torch.testing.assert_close(made, ls.solve(solver, PROMPTS, TASK, 3).values[3][:, -1:], rtol=1e-8, atol=1e-10)


def test_two_halves_are_a_step():
    halves = Mechanism(solver="gd", form="dual", mask="open", kind="halves", steps=(1,) * 6, v=TASK.v)
    reader = halves.reader(TASK)
    made = reader.predictions(reader.run(PROMPTS))
    wanted = ls.solve(ls.GradientDescent(), PROMPTS, TASK, 3).values[3][:, -1:]
    torch.testing.assert_close(made, wanted, rtol=1e-8, atol=1e-10)
    assert halves.steps_left == (3, 2, 2, 1, 1, 0, 0)


@pytest.mark.parametrize("mask", ["open", "causal"])
def test_the_decoy_is_exact_kernel_ridge_regression_and_changes_nothing(mask):
    solver = "richardson" if mask == "open" else "causal-richardson"
    mechanism = Mechanism(solver=solver, mask=mask, steps=(1, 1, 1), v=TASK.v)
    reader = mechanism.reader(TASK)
    plain = reader.run(PROMPTS)
    frame = reader.model.frame
    read = frame.read(plain["layers.1"][:, reader.queries], "decoy_f")
    exact = ls.exact(PROMPTS, TASK)
    torch.testing.assert_close(read[:, -1], exact[:, -1], rtol=1e-6, atol=1e-8)
    direction = frame.directions[frame.slices["decoy"]][0]
    changed = reader.run(PROMPTS, {"layers.0": lambda h: h + 3 * direction})
    torch.testing.assert_close(changed.output, plain.output, rtol=0, atol=1e-9)


def test_the_scales_of_a_stream_span_decades():
    norms = Mechanism(solver="richardson", mask="open", distractors=20).network(TASK).frame.directions.norm(dim=1)
    assert norms.max() / norms.min() > 100


def test_what_is_drawn_depends_on_the_seed_alone_and_covers_all_solvers():
    drawn = list(positives(TASK, 28, seed=3))
    assert drawn == list(positives(TASK, 28, seed=3))
    assert drawn != list(positives(TASK, 28, seed=4))
    assert {(m.mask, m.solver, m.form) for m in drawn} == {m.truth and (m.mask, *m.truth) for m in drawn}
    assert len({(m.mask, m.solver, m.form) for m in drawn}) == 14
    others = list(near_misses(TASK, 36, seed=3))
    assert all(m.truth is None for m in others)
    assert {m.group for m in others} == {"decoy", "near miss", "random"}
    for mechanism in others:
        assert torch.isfinite(mechanism.reader(TASK).run(PROMPTS).output).all()


def test_results_are_counted():
    prompts = {"fit": 60, "choose": 18, "score": 24, "check": 9}
    work = jobs(5, {"positive": 1, "negative": 1, "untrained": 0}, prompts)
    assert [job.group for job in work] == ["positive", "left out", "decoy"]
    rows = [assess(job) for job in work[:1]]
    counts = score(rows, CausalRule())["positive"]
    assert (counts.models, counts.right + counts.silent + counts.wrong) == (1, 1)
    strict = score(rows, CausalRule(rival=1e12))["positive"]
    assert strict.silent == 1
    assert "| positive, open | 1 |" in table(score(rows, CausalRule()))
