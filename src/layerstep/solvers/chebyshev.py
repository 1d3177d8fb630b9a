"""Chebyshev semi-iteration on the row-sum preconditioned system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.errors import require, require_positive
from layerstep.solvers.base import Solver
from layerstep.solvers.spectral_sums import momentum_sums
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class Chebyshev(Solver):
    """The three-term recursion whose error after t steps is T_t((θ - s) / δ) / T_t(θ / δ) on [lo, hi] = [θ - δ, θ + δ].

    [lo, hi] is the spectrum of D^-1/2 (K + lam I) D^-1/2 of every (sequence, prefix), or the interval given.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"row sums"})

    lo: float | None = None
    hi: float | None = None

    def __post_init__(self) -> None:
        require((self.lo is None) == (self.hi is None), "lo, hi", f"{self.lo}, {self.hi}", "given together")
        if self.lo is not None and self.hi is not None:
            require_positive(lo=self.lo, hi=self.hi)
            require(self.lo < self.hi, "lo, hi", f"{self.lo}, {self.hi}", "in increasing order")

    @property
    def label(self) -> str:
        return "Chebyshev"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        s = system.row_sum.values
        lo = s[:, :1] if self.lo is None else torch.full_like(s[:, :1], self.lo)
        hi = s[:, -1:] if self.hi is None else torch.full_like(s[:, :1], self.hi)
        g = system.row_sum.weights / s
        return g.sum(-1, keepdim=True) - chebyshev_sums(g, s, lo, hi, steps)


def chebyshev_sums(
    weights: Float[Tensor, "B n"],
    s: Float[Tensor, "B n"],
    lo: Float[Tensor, "B 1"],
    hi: Float[Tensor, "B 1"],
    steps: Int[Tensor, "T"],
) -> Float[Tensor, "B T"]:
    """sum_k weights_k T_t(x_k) / T_t(σ), x = (θ - s) / δ, σ = θ / δ, for every t in `steps`, without overflow.

    With ρ = σ + √(σ² - 1): T_t(σ) = ρ^t (1 + ρ^-2t) / 2, and T_t(x) / ρ^t obeys e(t+1) = 2x/ρ e(t) - e(t-1)/ρ².
    """
    # One eigenvalue only (n = 1): any small width makes the first step exact.
    theta, delta = (hi + lo) / 2, torch.maximum((hi - lo) / 2, 1e-12 * hi)
    sigma = theta / delta
    rho = sigma + ((sigma - 1) * (sigma + 1)).sqrt()
    x = (theta - s) / delta / rho
    bounded = momentum_sums(weights, 2 * x, (rho**-2).expand_as(s), x, steps)
    return bounded * 2 / (1 + torch.exp(-2 * steps.to(s) * rho.log()))
