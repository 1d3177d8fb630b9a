"""Between the points of a search's grid: bandwidth, size of steps and steps left of the nearest candidate.

Least squares of the part of a candidate's row, of length 1, that lies outside the channels, by (log v, log eta), or by
log v alone where the steps are the solver's own. Steps left trade off against both, so that there is a minimum for
every number of them: the likeliest are looked at, the best once more, and then its neighbours.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.interventions.candidates import ALL, Candidate
from layerstep.measurement.interventions.channels import Channels
from layerstep.measurement.interventions.library import MOST_STEPS, SIZES, Library

#: Steps per layer that GD++ may take.
PER_LAYER = (1, 2, 3)
#: How many numbers of steps left are looked at.
SEARCHED = 4
#: A number of steps more, or less, must leave so much less.
LESS = 0.98
#: A difference for slopes, the longest move of a logarithm, and how often one is shortened.
NEAR, FAR, TRIES = 1e-4, 0.4, 4


def fit(
    library: Library, grid: list[Candidate], channels: Channels, table: Float[Tensor, "grid k"]
) -> tuple[Candidate, int]:
    """The candidate and the steps left whose row the channels hold best; the grid has steps of one kind."""
    likely = table.amax(0).argsort(descending=True)[:SEARCHED].tolist()
    starts = [(grid[int(table[:, k].argmax())], k) for k in likely if k > 0]
    found = [(*_least_squares(library, channels, start, k, rounds=3), k) for start, k in starts]
    left, candidate, k = min(found, key=lambda each: each[0])
    left, candidate = _least_squares(library, channels, candidate, k, rounds=9)
    for step in (1, -1):
        while 0 < k + step <= MOST_STEPS:
            start = candidate if candidate.eta is None else replace(candidate, eta=candidate.eta * k / (k + step))
            trial, near = _least_squares(library, channels, start, k + step, rounds=5)
            if trial > LESS * left:
                break
            left, candidate, k = trial, near, k + step
    return candidate, k


def fit_changing(
    library: Library, channels: Channels, name: tuple[str, str], depth: tuple[float, float], fitted: bool
) -> tuple[Candidate, int]:
    """The same where the steps before the intervention matter too: as many per layer on both sides of the site.

    Steps before and after, their size and gamma trade off: freely fitted, seventeen short ones come as near as five.
    """
    found = []
    for per_layer in PER_LAYER:
        before, after = (round(per_layer * layers) for layers in depth)
        if after < 1:
            continue
        grid = library.candidates(*name, start=before)
        if fitted:
            grid = [replace(each, eta=size * library.typical(each)) for each in grid for size in SIZES]
        shares = [float(channels.shares(library.row_of(each, after)[None])[0, -1]) for each in grid]
        likely = [grid[at] for at in torch.tensor(shares).argsort(descending=True)[:SEARCHED].tolist()]
        found += [(*_least_squares(library, channels, each, after, rounds=12), after) for each in likely]
    if not found:
        return library.candidates(*name)[0], 0
    _, candidate, after = min(found, key=lambda each: each[0])
    return candidate, after


def fit_with_size(
    library: Library, channels: Channels, near: Candidate, steps: int, eta: float
) -> tuple[Candidate, int]:
    """The same where the size of the steps is given: about as far as `steps` steps of `near` go."""
    assert near.eta is not None
    about = round(steps * near.eta / eta)
    counts = {min(max(k, 1), MOST_STEPS) for k in (about - 1, about, about + 1, steps)}
    start = replace(near, eta=eta)
    if ALL[near.solver].changing:
        return _least_squares(library, channels, start, steps, rounds=8, sized=False)[1], steps
    found = [(*_least_squares(library, channels, start, k, rounds=8, sized=False), k) for k in sorted(counts)]
    _, candidate, k = min(found, key=lambda each: each[0])
    return candidate, k


def _least_squares(
    library: Library, channels: Channels, start: Candidate, steps: int, rounds: int, sized: bool = True
) -> tuple[float, Candidate]:
    """What is left, and the candidate, after `rounds` rounds of Levenberg and Marquardt's search; sized=False: of v
    alone. Of a solver without a bandwidth v stays where it is."""
    sized = sized and start.eta is not None
    here = torch.tensor([start.v, start.eta or 1.0], dtype=torch.float64).log()
    axes = torch.eye(2, dtype=torch.float64)[[axis for axis, free in enumerate((start.shaped, sized)) if free]]

    def at(point: Float[Tensor, "2"]) -> tuple[Tensor, Candidate]:
        v, eta = point.exp().tolist()
        candidate = replace(start, v=v, eta=eta if sized else start.eta)
        row = library.row_of(candidate, steps)
        row = row / row.norm().clamp_min(1e-300)
        return row - channels.answers @ (channels.answers.mT @ row), candidate

    missed, candidate = at(here)
    damping = 1e-3
    for _ in range(rounds if len(axes) else 0):
        slopes = torch.stack([(at(here + NEAR * axis)[0] - missed) / NEAR for axis in axes])
        gram, down = slopes @ slopes.mT, -slopes @ missed
        size = gram.diagonal().mean().clamp_min(1e-12)
        for _ in range(TRIES):
            move = torch.linalg.solve(gram + damping * size * torch.eye(len(gram), dtype=gram.dtype), down)
            there = here + move * (FAR / move.abs().amax().clamp_min(FAR)) @ axes
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
    return float(missed @ missed), candidate
