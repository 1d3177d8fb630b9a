"""Baselines through the same search: what a match must beat that says nothing about a solver.

The score is the share explained with the gain fixed at 1, since a random direction has no unit. Two baselines: random
directions of the states' own covariance, read and written like a state; and readers of the same quantity made from
the labels of other prompts.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.interventions.alignment import Inputs, Moments, align
from layerstep.measurement.interventions.search import MOST_STEPS, READ_STEPS, Library, Match

#: Draws of each baseline.
DRAWS = 99


def p_value(
    library: Library,
    match: Match,
    moments: Moments,
    inputs: Inputs,
    J: Float[Tensor, "entries W"],
    seed: int,
    draws: int = DRAWS,
) -> float:
    """(1 + draws that score at least as well) / (1 + draws), the larger of both baselines."""
    rows = library.rows_of(match.candidate, library.choose, MOST_STEPS)
    observed = float(_unit_gain(J @ match.writer[:, None], rows).amax())
    generator = torch.Generator().manual_seed(seed)
    worst = 0.0
    for writers in (
        _random_directions(match, moments, draws, generator),
        _other_labels(library, match, moments, inputs, draws, generator),
    ):
        scores = _unit_gain(J @ writers, rows).amax(0).unflatten(0, (draws, -1)).amax(1)
        worst = max(worst, (1 + int((scores >= observed).sum())) / (1 + draws))
    return worst


def _unit_gain(R: Float[Tensor, "entries w"], rows: Float[Tensor, "k entries"]) -> Float[Tensor, "k w"]:
    """1 - |R - p|² / |p|²."""
    size = rows.square().sum(1, keepdim=True)
    error = size - 2 * rows @ R + R.square().sum(0, keepdim=True)
    return torch.where(size > 0, 1 - error / size.clamp_min(1e-300), torch.full_like(error, -torch.inf))


def _random_directions(match: Match, moments: Moments, draws: int, generator: torch.Generator) -> Tensor:
    """Writers of random readers, in the unit of the match: each reads something that varies as much as the state."""
    g = torch.randn(moments.root.shape[0], draws, dtype=torch.float64, generator=generator)
    pattern = moments.root @ g  # Sigma u for u = Sigma^-1/2 g
    read = (pattern * (moments.inverse @ pattern)).sum(0)  # u' Sigma u
    spread = float(match.reader @ moments.covariance @ match.reader) ** 0.5
    return pattern / read.clamp_min(1e-300).sqrt() / max(spread, 1e-300)


def _other_labels(
    library: Library, match: Match, moments: Moments, inputs: Inputs, draws: int, generator: torch.Generator
) -> Tensor:
    """Writers of the candidate's states at every second step that is looked for, made from other prompts' labels."""
    sizes = [batch.prefix.B for batch in library.fit]
    orders = [torch.stack([torch.randperm(B, generator=generator) for _ in range(draws)]) for B in sizes]
    return align(moments, inputs, library.relabelled(match.candidate, orders, READ_STEPS[::2])).writers
