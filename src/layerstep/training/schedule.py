"""Schedules are pure functions of the step: a resumed run needs nothing but its number."""

from __future__ import annotations

import math

from layerstep.training.config import Run


def learning_rate(run: Run, step: int) -> float:
    """lr (s+1)/warmup while s < warmup, then lr_final + (lr - lr_final)(1 + cos πu)/2, u from 0 to 1."""
    if step < run.warmup:
        return run.lr * (step + 1) / run.warmup
    u = min(1.0, (step - run.warmup) / (run.steps - run.warmup))
    return run.lr_final + (run.lr - run.lr_final) * (1 + math.cos(math.pi * u)) / 2


def active_points(run: Run, step: int) -> int:
    """n(s) = min(start + add ⌊s / every⌋, N+1): the points whose loss counts. All of them when `every` is 0.

    A causal attention does not see points that come later, so that those which do not count are as if absent. Under an
    open mask contexts have fewer than n(s) examples (see `context_lengths`).
    """
    if run.curriculum_every == 0:
        return run.task.N + 1
    grown = run.curriculum_start + run.curriculum_add * (step // run.curriculum_every)
    return min(grown, run.task.N + 1)


def active_dims(run: Run, step: int) -> int:
    """d(s) = min(start + ⌊s / every⌋, d): the coordinates of the inputs that are not 0. All of them when start is 0."""
    if run.curriculum_every == 0 or run.curriculum_dims == 0:
        return run.task.d
    return min(run.curriculum_dims + step // run.curriculum_every, run.task.d)


def context_lengths(run: Run, step: int) -> list[int]:
    """Examples of each prompt of a step under an open mask: 0 .. n(s) - 1 in turn, going on from the step before.

    So the loss is, as under a causal mask, the mean over these lengths; nothing about it is random.
    """
    return [(step * run.batch + b) % active_points(run, step) for b in range(run.batch)]
