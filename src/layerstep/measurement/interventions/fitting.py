"""Between the points of a search's grid: bandwidth, size of steps and steps left of the nearest candidate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.interventions.candidates import Candidate
from layerstep.measurement.interventions.channels import Channels
from layerstep.measurement.interventions.library import MOST_STEPS, Library

#: How many numbers of steps left have their bandwidth refined.
SEARCHED = 6
#: How far, in log bandwidth, the best of one step more or less is looked for.
RIDGE = 0.1
#: A number of steps more, or less, must leave so much less.
ENOUGH = 0.98
#: Least squares: a difference for slopes, the longest step, and how often one is shortened.
NEAR, FAR, TRIES = 1e-4, 0.4, 4
GOLDEN = (math.sqrt(5) - 1) / 2


def fit_bandwidth(
    library: Library, grid: list[Candidate], channels: Channels, table: Float[Tensor, "grid k"]
) -> tuple[Candidate, int]:
    """The candidate between grid points and the steps left: golden-section searches of log v.

    Steps and bandwidth trade off, so that the share has a peak for every number of steps: each of the SEARCHED best is
    looked at, and the highest peak once more.
    """
    widths = [math.log(candidate.v) for candidate in grid]
    likely = table.amax(0).argsort(descending=True)[:SEARCHED].tolist()
    most = min(max(likely) + 4, MOST_STEPS)
    kept: dict[float, Tensor] = {}

    def rows(log_v: float) -> Tensor:
        if log_v not in kept:
            kept[log_v] = library.rows_of(replace(grid[0], v=math.exp(log_v)), library.choose, most)
        return kept[log_v]

    def score(log_v: float, k: int) -> float:
        return float(channels.shares(rows(log_v)[k : k + 1])[0, -1])

    peaks = []
    for k in likely:
        start = int(table[:, k].argmax())
        bounds = widths[max(start - 1, 0)], widths[min(start + 1, len(widths) - 1)]
        log_v = _golden(lambda log_v, k=k: score(log_v, k), *bounds, rounds=7)
        peaks.append((score(log_v, k), log_v, k, (bounds[1] - bounds[0]) * GOLDEN**6))
    best, log_v, k, width = max(peaks)
    log_v = _golden(lambda each: score(each, k), log_v - width, log_v + width, rounds=10)
    best = score(log_v, k)
    for step in (1, -1):  # along the ridge of steps and bandwidths
        while 0 < k + step <= most:
            near = _golden(lambda each, k=k + step: score(each, k), log_v - RIDGE, log_v + RIDGE, rounds=12)
            if score(near, k + step) <= best:
                break
            best, log_v, k = score(near, k + step), near, k + step
    return replace(grid[0], v=math.exp(log_v)), k


def fit_steps(
    library: Library, grid: list[Candidate], channels: Channels, table: Float[Tensor, "grid k"]
) -> tuple[Candidate, int]:
    """The same with one size of steps for all prompts: least squares of (log v, log eta) from the best points of the
    grid, the best of them once more, then along the ridge of steps left and their size."""
    likely = table.amax(0).argsort(descending=True)[:SEARCHED].tolist()
    starts = [(grid[int(table[:, k].argmax())], k) for k in likely]
    found = [(*_least_squares(library, channels, start, k, rounds=3), k) for start, k in starts]
    best, candidate, k = max(found, key=lambda each: each[0])
    best, candidate = _least_squares(library, channels, candidate, k, rounds=9)
    for step in (1, -1):
        while 0 < k + step <= MOST_STEPS:
            assert candidate.eta is not None
            start = replace(candidate, eta=candidate.eta * k / (k + step))
            share, near = _least_squares(library, channels, start, k + step, rounds=5)
            if 1 - share > ENOUGH * (1 - best):
                break
            best, candidate, k = share, near, k + step
    return candidate, k


def fit_with_size(
    library: Library, channels: Channels, near: Candidate, steps: int, eta: float
) -> tuple[Candidate, int]:
    """The same where the size of the steps is given: about as far as `steps` steps of `near` go."""
    assert near.eta is not None
    about = round(steps * near.eta / eta)
    counts = {min(max(k, 1), MOST_STEPS) for k in (about - 1, about, about + 1, steps)}
    start = replace(near, eta=eta)
    found = [(*_least_squares(library, channels, start, k, rounds=8, free=(0,)), k) for k in sorted(counts)]
    _, candidate, k = max(found, key=lambda each: each[0])
    return candidate, k


def _least_squares(
    library: Library, channels: Channels, start: Candidate, steps: int, rounds: int, free: tuple[int, ...] = (0, 1)
) -> tuple[float, Candidate]:
    """Levenberg and Marquardt's search for the (v, eta) whose row, of length 1, lies nearest to the channels."""
    assert start.eta is not None
    here = torch.tensor([start.v, start.eta], dtype=torch.float64).log()
    axes = torch.eye(2, dtype=torch.float64)[list(free)]

    def at(point: Float[Tensor, "2"]) -> tuple[Tensor, Candidate]:
        v, eta = point.exp().tolist()
        candidate = replace(start, v=v, eta=eta)
        row = library.row_of(candidate, steps)
        row = row / row.norm().clamp_min(1e-300)
        return row - channels.answers @ (channels.answers.mT @ row), candidate

    missed, candidate = at(here)
    damping = 1e-3
    for _ in range(rounds):
        slopes = torch.stack([(at(here + NEAR * axis)[0] - missed) / NEAR for axis in axes])
        gram, down = slopes @ slopes.mT, -slopes @ missed
        size = gram.diagonal().mean().clamp_min(1e-12)
        for _ in range(TRIES):
            step = torch.linalg.solve(gram + damping * size * torch.eye(len(gram), dtype=gram.dtype), down)
            there = here + step * (FAR / step.abs().amax().clamp_min(FAR)) @ axes
            trial, other = at(there)
            if float(trial @ trial) < float(missed @ missed):
                break
            damping *= 10
        else:
            break
        better = float(missed @ missed) / max(float(trial @ trial), 1e-300)
        here, missed, candidate, damping = there, trial, other, damping / 10
        if better < 1 + 1e-4:
            break
    return 1 - float(missed @ missed), candidate


def _golden(score: Callable[[float], float], low: float, high: float, rounds: int) -> float:
    """Where `score` is largest between two points, by golden-section search."""
    seen: dict[float, float] = {}

    def at(point: float) -> float:
        seen[point] = score(point) if point not in seen else seen[point]
        return seen[point]

    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    for _ in range(rounds):
        if at(left) >= at(right):
            high, right = right, left
            left = high - GOLDEN * (high - low)
        else:
            low, left = left, right
            right = low + GOLDEN * (high - low)
    return max(seen, key=seen.__getitem__)
