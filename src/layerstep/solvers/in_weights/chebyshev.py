"""Chebyshev semi-iteration on the weights."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.base import Solver
from layerstep.solvers.chebyshev import chebyshev_sums
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class ChebyshevInWeights(Solver):
    """The three-term recursion on XᵀX + lam I whose error after t steps is T_t((θ - s) / δ) / T_t(θ / δ).

    [θ - δ, θ + δ] is the spectrum on the span of the examples, of every (sequence, prefix).
    """

    @property
    def label(self) -> str:
        return "Chebyshev in weights"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        s, g, lo, hi = system.in_weights
        return g.sum(-1, keepdim=True) - chebyshev_sums(g, s, lo, hi, steps)
