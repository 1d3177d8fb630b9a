"""Polyak's heavy ball on the row-sum preconditioned system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.base import Solver
from layerstep.solvers.spectral_sums import momentum_sums
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class HeavyBall(Solver):
    """w' = w + eta D⁻¹ (y - (K + lam I) w) + beta (w - w_before), the best constants for the spectrum [lo, hi].

    eta = 4 / (√hi + √lo)², beta = ((√hi - √lo) / (√hi + √lo))².

    The error rises before it falls: the first step is the full eta, twice that of Chebyshev, so that the share missing
    at hi is (1 + 2t / (1 + q)) beta^(t/2) after t steps, q = √(lo / hi): at most about 1 / (e q), near t = 1 / (2q).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"row sums"})
    remark: ClassVar[str] = "rises before it falls, by its first step, twice as long as Chebyshev's"

    @property
    def label(self) -> str:
        return "Heavy ball"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        s, g = system.row_sum.values, system.row_sum.weights / system.row_sum.values
        return g.sum(-1, keepdim=True) - heavy_ball_sums(g, s, s[:, :1], s[:, -1:], steps)


def heavy_ball_sums(
    weights: Float[Tensor, "B n"],
    s: Float[Tensor, "B n"],
    lo: Float[Tensor, "B 1"],
    hi: Float[Tensor, "B 1"],
    steps: Int[Tensor, "T"],
) -> Float[Tensor, "B T"]:
    """sum_k weights_k e_k(t): the missing share obeys e'' = (1 + beta - eta s) e' - beta e, with e(0) = e(-1) = 1."""
    low, high = lo.sqrt(), hi.sqrt()
    eta = 4 / (high + low).square()
    beta = ((high - low) / (high + low)).square()
    first = 1 - eta * s
    return momentum_sums(weights, first + beta, beta.expand_as(s), first, steps)
