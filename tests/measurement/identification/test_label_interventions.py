"""Interventions on labels and order: what they tell, in which unit, and what they veto."""

from dataclasses import replace

import pytest
import torch

import layerstep as ls
from layerstep.measurement import identify
from layerstep.measurement.identification.label_interventions import LabelInterventions, intervene_on_labels
from oracles.planted import STEPS, planted

TASK = ls.Task(inputs="gaussian")


@pytest.fixture(scope="module")
def short():
    return ls.sample(replace(TASK, N=12), 64, seed=4)


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
    assert ("fits, but half of the usable layers or more are not linear in the labels" in verdict.report()) == (
        bent == 5
    )
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


def test_a_function_that_raises_is_named(short):
    with pytest.raises(ls.InputError, match=r"model_fn: raised TypeError: .* from prompts to the trajectory"):
        intervene_on_labels(lambda given: 1.5 * given, short, replace(TASK, N=12), torch.ones(1).double(), seed=0)
