"""Chebyshev semi-iteration on the row-sum preconditioned system."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.errors import require, require_positive
from layerstep.solvers.solver import Solver
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class Chebyshev(Solver):
    """The three-term recursion whose error after t steps is T_t((θ - s) / δ) / T_t(θ / δ) on [lo, hi] = [θ - δ, θ + δ].

    [lo, hi] is the spectrum of D^-1/2 (K + lam I) D^-1/2 of every (sequence, prefix), or the interval given.
    """

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
        spectrum = system.row_sum
        s = spectrum.values
        lo = s[:, :1] if self.lo is None else torch.full_like(s[:, :1], self.lo)
        hi = s[:, -1:] if self.hi is None else torch.full_like(s[:, :1], self.hi)
        # One eigenvalue only (n = 1): any small width makes the first step exact.
        delta = ((hi - lo) / 2).clamp_min(1e-12 * float(hi.max()))
        theta = (hi + lo) / 2
        error = chebyshev_ratio((theta - s) / delta, theta / delta, steps)
        return spectrum.sum((1 - error) / s.unsqueeze(-1))


def chebyshev_ratio(
    x: Float[Tensor, "B n"], sigma: Float[Tensor, "B 1"], steps: Int[Tensor, "T"]
) -> Float[Tensor, "B n T"]:
    """T_t(x) / T_t(sigma) for sigma > 1, any real x, any t, without overflow."""
    t = steps.to(x)
    inside = torch.cos(t * torch.acos(x.clamp(-1, 1)).unsqueeze(-1))
    growth = torch.acosh(x.abs().clamp_min(1)).unsqueeze(-1)
    sign = torch.where((x < 0).unsqueeze(-1) & (t % 2 == 1), -1.0, 1.0).to(x)
    top = torch.where(x.abs().unsqueeze(-1) <= 1, inside, sign * (1 + torch.exp(-2 * t * growth)) / 2)
    fall = torch.acosh(sigma).unsqueeze(-1)
    return top * torch.exp(t * (growth - fall)) * 2 / (1 + torch.exp(-2 * t * fall))
