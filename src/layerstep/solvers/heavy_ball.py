"""Polyak's heavy ball on the row-sum preconditioned system."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.powers import momentum_sums
from layerstep.solvers.solver import Solver
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class HeavyBall(Solver):
    """w' = w + eta D⁻¹ (y - (K + lam I) w) + beta (w - w_before), the best constants for the spectrum [lo, hi].

    eta = 4 / (√hi + √lo)², beta = ((√hi - √lo) / (√hi + √lo))².
    """

    @property
    def label(self) -> str:
        return "Heavy ball"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "T B"]:
        """The share of a component missing now and one step before moves by [[1 + beta - eta s, -beta], [1, 0]]."""
        s, g = system.row_sum.values, system.row_sum.weights / system.row_sum.values
        low, high = s[:, :1].sqrt(), s[:, -1:].sqrt()
        eta = 4 / (high + low).square()
        beta = ((high - low) / (high + low)).square()
        now = torch.stack([1 + beta - eta * s, (-beta).expand_as(s)], -1)
        before = torch.stack([torch.ones_like(s), torch.zeros_like(s)], -1)
        return g.sum(-1) - momentum_sums(g, torch.stack([now, before], -2), steps)
