"""What a prompt has to meet before a network answers it: every reason against it, at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.construction.problem import Precondition, require_all
from layerstep.tasks.kernels import distance

if TYPE_CHECKING:
    from layerstep.construction.network import Construction

_ENTRIES = 2**22  # distances held at a time


def require_fitting(
    network: Construction,
    x: Float[Tensor, "B n d"],
    y: Float[Tensor, "B n"],
    xq: Float[Tensor, "B M d"],
    n: Int[Tensor, "contexts"],
) -> None:
    """Refuse, with every reason, inputs, labels, queries and example counts outside the theorem."""
    problem, flexible = network.problem, network.scheme.flexible
    longest, shortest = int(n.max()), int(n.min())
    count = f"at most {problem.N}" if flexible else f"exactly {problem.N}"
    # Inner products of two inputs in units of v, and the sum of a few such, must be finite.
    narrowest = min(part.v for _, part in problem.kernel.parts)
    limit = math.sqrt(torch.finfo(network.dtype).max) / 4 * min(1.0, narrowest)
    reach = problem.kernel.reach if problem.kernel.doubt else math.inf
    size = spread(x, xq) if flexible else spread(x[:, :0], x, xq)
    require_all(
        "this prompt does not fit this network",
        [
            Precondition(
                longest <= problem.N and (flexible or shortest == problem.N),
                f"n = {longest if longest > problem.N else shortest} training tokens",
                f"{count}, which this network was built for",
                f"Construct one with N = {longest}.",
            ),
            Precondition(
                size <= limit,
                f"largest |x - mean| = {size:.3g}",
                f"at most {limit:.2g}: in {network.dtype} the square of a larger one, in units of v, is infinite",
                "Leave out the inputs and queries that are so far away. float64 has the widest range.",
            ),
            Precondition(
                reach == math.inf or max(farthest(a, b) for a, b in zip(x, xq, strict=True)) <= reach,
                "points farther apart than the mixture's reach",
                f"at most {reach:.3g} apart: nothing is known of the kernel beyond",
                "Give the mixture's target, or a larger reach.",
            ),
            problem.precision(network.dtype),
            *([] if flexible else network.scheme.demands(x, y, xq)),
        ],
    )


def spread(x: Float[Tensor, "*B n d"], *others: Float[Tensor, "*B _ d"]) -> float:
    """The largest distance of a point from the mean of its prompt's examples x."""
    centre = x.double().mean(-2, keepdim=True) if x.shape[-2] else 0.0
    points = [each.double() - centre for each in (x, *others)]
    return max((float(each.norm(dim=-1).max()) for each in points if each.numel()), default=0.0)


def farthest(x: Float[Tensor, "n d"], xq: Float[Tensor, "M d"]) -> float:
    """The largest distance between an example and an example or a query."""
    points = torch.cat([x, xq]).double()
    rows = points.split(max(1, _ENTRIES // max(1, len(x))))
    return max((float(distance(some, x.double()).max()) for some in rows if len(x)), default=0.0)
