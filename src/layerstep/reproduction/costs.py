"""What a training run costs on one H200, from measured steps (LOG.md, "A step")."""

from __future__ import annotations

from collections.abc import Sequence

from layerstep.reproduction.runs import RUNS, PaperRun
from layerstep.training import Model

#: Milliseconds of a step: the default model alone, and each of four stacked.
ALONE, OF_FOUR = 2.11, 1.392
#: alone = launches + arithmetic, four = launches + 4 arithmetic.
ARITHMETIC = (4 * OF_FOUR - ALONE) / 3
LAUNCHES = ALONE - ARITHMETIC
#: Milliseconds of a step of six models round-robin (LOG.md, "Models of other shapes at the same time"), and who could
#: be the six: there 8 heads stood for 4.
ROUND_ROBIN = 6.5
INTERLEAVED = ("heads-1", "heads-2", "heads-4", "width-32", "width-64", "width-128")


def step_milliseconds(run: PaperRun) -> float:
    """A step of this run alone: launches grow with the layers, arithmetic with layers and width."""
    model, tokens = run.run.model, 2 * (run.run.task.N + 1)
    default = Model()
    depth = model.layers / default.layers
    work = _products(model.width, tokens) / _products(default.width, tokens)
    return depth * (LAUNCHES + ARITHMETIC * work)


def _products(width: int, tokens: int) -> float:
    """Arithmetic per layer and token: matrix products and attention."""
    return 24 * width**2 + 4 * tokens * width


def stacked_milliseconds(runs: Sequence[PaperRun]) -> float:
    """A step of models of one shape that are stacked: they share their launches."""
    shared = LAUNCHES * runs[0].run.model.layers / Model().layers
    return sum(map(step_milliseconds, runs)) - (len(runs) - 1) * shared


def gpu_minutes(run: PaperRun) -> float:
    """Minutes of a run that has the GPU to itself, at the length of the list."""
    return step_milliseconds(run) * run.run.steps / 60_000


def total_minutes(*, ours: bool, shared: bool = False) -> float:
    """Minutes of the paper's own runs, or of the ones we add, one after another.

    shared: models of one shape are stacked and share their launches, small ones of other shapes go round-robin.
    """
    if not shared:
        return sum(gpu_minutes(run) for run in RUNS.values() if run.ours == ours)
    groups: dict[tuple[Model, int], list[PaperRun]] = {}
    for run in RUNS.values():
        if run.ours == ours and run.name not in INTERLEAVED:
            groups.setdefault((run.run.model, run.run.steps), []).append(run)
    small = 0 if ours else ROUND_ROBIN * RUNS[INTERLEAVED[0]].run.steps
    return (small + sum(stacked_milliseconds(group) * group[0].run.steps for group in groups.values())) / 60_000
