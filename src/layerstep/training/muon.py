"""Muon: matrices of the blocks move along the polar factor of their momentum, everything else as with AdamW.

K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), with the size of a step that of
"Muon is scalable for LLM training" (2502.16982), so that one learning rate serves both kinds of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.training.adamw import COLUMNS
from layerstep.training.stack import Layout

#: p(s) = 3.4445 s - 4.775 s³ + 2.0315 s⁵: five times takes singular values in [.01, 1] to [.68, 1.13].
QUINTIC = (3.4445, -4.7750, 2.0315)
STEPS = 5
#: The root mean square of a step over the learning rate: about what AdamW's is.
SIZE = 0.2

Update = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None]


class Muon:
    """w ← w (1 - lr wd) - lr .2 √max(r, c) polar(m̂), m̂ = (1 + β) m - β m₋₁ (Nesterov), for the r x c matrices.

    `adamw` updates all parameters and both moments; the matrices' steps are then replaced. Queries, keys and values
    are matrices of their own. `low`: the copy of the weights that products read, if there is one.
    """

    def __init__(self, adamw: Update, layout: Layout, low: Tensor | None, products: torch.dtype) -> None:
        self.adamw, self.layout, self.low, self.products = adamw, layout, low, products

    @torch.no_grad()
    def __call__(
        self,
        w: Float[Tensor, "S P"],
        g: Float[Tensor, "S P"],
        m: Float[Tensor, "S P"],
        v: Float[Tensor, "S P"],
        numbers: Float[Tensor, "S K"],
    ) -> None:
        weights, before = self._matrices(w), [each.clone() for each in self._matrices(m)]
        old = [each.clone() for each in weights]
        self.adamw(w, g, m, v, numbers)
        decay, one_minus_beta, lr = (numbers[:, COLUMNS.index(name)] for name in ("decay", "one_minus_beta1", "lr"))
        for new, was, now, then in zip(weights, old, self._matrices(m), before, strict=True):
            shape = (-1, *[1] * (new.ndim - 1))
            direction = now + (1 - one_minus_beta).view(shape) * (now - then)
            size = SIZE * math.sqrt(max(new.shape[-2:]))
            step = size * lr.view(shape) * polar(direction.to(self.products)).to(new.dtype)
            new.copy_(was * decay.view(shape) - step)
        if self.low is not None:
            for low, new in zip(self._matrices(self.low), weights, strict=True):
                low.copy_(new)

    def _matrices(self, buffer: Float[Tensor, "S P"]) -> list[Tensor]:
        """Views [S, L, ..., r, c] of the blocks' matrices."""
        layers = [self.layout.layers(buffer, f"{name}.weight") for name in ("attention.out", "up", "down")]
        return [self.layout.layers(buffer, "attention.qkv.weight").unflatten(2, (3, -1)), *layers]


def polar(matrices: Float[Tensor, "*K r c"]) -> Float[Tensor, "*K r c"]:
    """About U Vᵀ of M = U S Vᵀ: the odd quintic five times on M / |M|, by products alone."""
    tall = matrices.shape[-2] >= matrices.shape[-1]
    x = matrices if tall else matrices.mT
    x = x / x.float().norm(dim=(-2, -1), keepdim=True).clamp_min(1e-30).to(x.dtype)
    a, b, c = QUINTIC
    for _ in range(STEPS):
        gram = x.mT @ x
        x = a * x + x @ (b * gram + c * (gram @ gram))
    return x if tall else x.mT
