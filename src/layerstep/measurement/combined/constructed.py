"""A constructed transformer as a reader: its stream after chosen iterations, read and edited like any model's."""

from __future__ import annotations

from torch import Tensor

from layerstep.construction import Construction
from layerstep.measurement.interventions.library import MOST_STEPS
from layerstep.measurement.reading.hooks import Hooked
from layerstep.tasks import Prompts

SITES = 12  # at most, evenly spaced


def why_no_interventions(network: Construction) -> str:
    """Why the layers of this network cannot be written into; empty where they can."""
    if not network.scheme.flexible:
        return "it takes prompts of one length and states its bound for them alone"
    if network.L > MOST_STEPS:
        return f"it takes {network.L:,} iterations, and the search knows solvers with up to {MOST_STEPS} steps left"
    return ""


def constructed_reader(network: Construction) -> Hooked:
    """The stream after iterations of the network: tokens [dummy; examples 1..n; query], an open mask."""
    ends, last = [], -1
    for length in network.iterations:
        last += length
        ends.append(last)
    every = -(-len(ends) // SITES)
    row = network.stream.row("y")

    def inputs(prompts: Prompts) -> tuple[Tensor, Tensor]:
        x, y = prompts.x, prompts.y
        return network.stream.embed(x[:, :-1], y[:, :-1], x[:, -1:])

    return Hooked(
        model=network.eval(),
        inputs=inputs,
        modules=[f"blocks.{end}" for end in ends[::every]],
        tokens=slice(-1, None),
        examples=slice(1, -1),
        readout=lambda Z: Z[:, -1:, row],
        mask="open",
    )
