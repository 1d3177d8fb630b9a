"""AdamW with clipping by the global norm, on all models at once; every number of it is a device tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.training.config import Run
from layerstep.training.schedule import active_points, learning_rate

# One row of numbers per model and step; the host works them out in float64, the device only multiplies.
COLUMNS = ("clip", "decay", "one_minus_beta1", "beta2", "one_minus_beta2", "rate", "root", "eps", "lr", "points")


def coefficients(run: Run, step: int) -> tuple[float, ...]:
    """The COLUMNS of one step: rate = lr / (1 - beta1ᵗ), root = (1 - beta2ᵗ)^(-1/2), decay = 1 - lr·weight_decay."""
    lr, t = learning_rate(run, step), step + 1
    return (
        run.clip,
        1 - lr * run.weight_decay,
        1 - run.beta1,
        run.beta2,
        1 - run.beta2,
        lr / (1 - run.beta1**t),
        (1 - run.beta2**t) ** -0.5,
        run.eps,
        lr,
        float(active_points(run, step)),
    )


def table(runs: Sequence[Run], steps: range) -> Float[Tensor, "C S K"]:
    """The numbers of many steps, for one copy to the device."""
    return torch.tensor([[coefficients(run, s) for run in runs] for s in steps], dtype=torch.float64)


def update(
    w: Float[Tensor, "S P"],
    g: Float[Tensor, "S P"],
    m: Float[Tensor, "S P"],
    v: Float[Tensor, "S P"],
    numbers: Float[Tensor, "S K"],
) -> None:
    """g ← g min(1, clip/|g|); m, v ← means of g, g²; w ← w (1 - lr wd) - rate m / (√v root + eps). In place."""
    clip, decay, one_minus_beta1, beta2, one_minus_beta2, rate, root, eps, *_ = numbers.unsqueeze(-1).unbind(1)
    # Row by row: a model's norm must not depend, even in its last bit, on the others of its stack.
    norm = torch.stack([row.norm() for row in g]).unsqueeze(-1)
    g.mul_((clip / (norm + 1e-6)).clamp(max=1))
    w.mul_(decay)
    m.lerp_(g, one_minus_beta1)
    v.mul_(beta2).addcmul_(g * one_minus_beta2, g)
    w.sub_(rate * m / (v.sqrt().mul_(root).add_(eps)))
