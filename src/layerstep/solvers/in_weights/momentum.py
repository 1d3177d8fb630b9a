"""Gradient descent on weights with momentum: Nesterov's and Polyak's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.base import Solver
from layerstep.solvers.heavy_ball import HeavyBall, heavy_ball_sums
from layerstep.solvers.nesterov import nesterov_momentum
from layerstep.solvers.spectral_sums import momentum_sums
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class NesterovInWeights(Solver):
    """z' = θ + eta (Xᵀ(y - Xθ) - lam θ); θ = z' + beta (z' - z); eta = 1 / hi, beta = (√κ - 1) / (√κ + 1), κ = hi / lo.

    [lo, hi] is the spectrum of XᵀX + lam I on the span of the examples, of every (sequence, prefix).
    """

    @property
    def label(self) -> str:
        return "Nesterov in weights"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        s, g, lo, hi = system.in_weights
        beta = nesterov_momentum(lo, hi)
        r = 1 - s / hi
        first = r + beta * (r - 1)
        return g.sum(-1, keepdim=True) - momentum_sums(g, (1 + beta) * r, beta * r, first, steps)


@dataclass(frozen=True, kw_only=True)
class HeavyBallInWeights(Solver):
    """θ' = θ + eta (Xᵀ(y - Xθ) - lam θ) + beta (θ - θ_before), the best constants for the spectrum [lo, hi].

    eta = 4 / (√hi + √lo)², beta = ((√hi - √lo) / (√hi + √lo))²; [lo, hi] as for `NesterovInWeights`. The error rises
    before it falls, as that of `HeavyBall` does.
    """

    remark: ClassVar[str] = HeavyBall.remark

    @property
    def label(self) -> str:
        return "Heavy ball in weights"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        s, g, lo, hi = system.in_weights
        return g.sum(-1, keepdim=True) - heavy_ball_sums(g, s, lo, hi, steps)
