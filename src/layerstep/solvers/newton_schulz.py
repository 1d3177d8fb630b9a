"""Newton-Schulz iteration for the inverse: every step doubles the number of Richardson steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.base import Solver
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class NewtonSchulz(Solver):
    """X' = X (2 I - A X), X_0 = I / eig_max(A), A = K + lam I; w_t = X_t y, and w = 0 before the first step.

    Step t >= 1 is X_{t-1}, whose error (1 - eta s)^(2^(t-1)) is that of Richardson after 2^(t-1) steps.
    """

    @property
    def label(self) -> str:
        return "Newton-Schulz"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        s = system.ridged.values
        rate = torch.log1p(-(s / s[:, -1:])).clamp_min(-1e5).unsqueeze(-1)
        doubled = torch.where(steps == 0, 0, 2.0 ** (steps.to(s) - 1).clamp_max(60))
        return system.ridged.sum(-torch.expm1(rate * doubled) / s.unsqueeze(-1))
