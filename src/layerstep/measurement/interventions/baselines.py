"""The baseline of the reading: the state of the same solver on the same points, from the labels of other prompts."""

from __future__ import annotations

import torch

from layerstep.measurement.interventions.alignment import Inputs, Moments
from layerstep.measurement.interventions.channels import in_channels
from layerstep.measurement.interventions.library import READ_STEPS, Library
from layerstep.measurement.interventions.search import Match

#: Draws, and the steps at which a state is looked for.
DRAWS, STEPS = 99, READ_STEPS[:12:2]


def p_value(library: Library, match: Match, moments: Moments, inputs: Inputs, seed: int, draws: int = DRAWS) -> float:
    """(1 + draws that are read at least as well in the channels of the match) / (1 + draws)."""

    def best(quantities: torch.Tensor) -> torch.Tensor:
        return in_channels(quantities, match.channels, moments, inputs)[1].unflatten(0, (-1, len(STEPS))).amax(1)

    observed = best(library.states_of(match.candidate, STEPS))
    generator = torch.Generator().manual_seed(seed)
    sizes = [batch.prefix.B for batch in library.fit]
    orders = [torch.stack([torch.randperm(B, generator=generator) for _ in range(draws)]) for B in sizes]
    scores = best(library.relabelled(match.candidate, orders, STEPS))
    return (1 + int((scores >= observed).sum())) / (1 + draws)
