"""Iterative Newton for the inverse of XᵀX + lam I, with the start as an option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Num
from torch import Tensor

from layerstep.errors import require_choice
from layerstep.solvers.base import Solver
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class Newton(Solver):
    """M' = M (2 I - S M), S = XᵀX + lam I; after t iterations θ_t = M_t Xᵀy.

    start: M_0 = "square" S / eig_max(S)², "frobenius" S / |S²|_F (Fu et al.'s), or "identity" I / eig_max(S), which is
    gradient descent in weights at 2^t steps. What is left of a component is (1 - M_0 s)^(2^t): t may be a fraction.
    """

    continuous: ClassVar[bool] = True
    start: Literal["square", "frobenius", "identity"] = "square"

    def __post_init__(self) -> None:
        require_choice("start", self.start, ["square", "frobenius", "identity"])

    @property
    def label(self) -> str:
        return (
            "Iterative Newton" + {"square": "", "frobenius": " (Frobenius start)", "identity": " (I start)"}[self.start]
        )

    def predictions(self, system: System, steps: Num[Tensor, "T"]) -> Float[Tensor, "B T"]:
        s, g, _, hi = system.in_weights
        if self.start == "frobenius":
            # S has d eigenvalues and K + lam I has n: the others are lam, and enter the norm.
            d = system.batch.x.shape[-1]
            fourth = ((system.plain.values + system.lam) / hi).pow(4).sum(-1, keepdim=True)
            first = (s / hi).square() / (fourth + (d - system.n) * (system.lam / hi).pow(4)).clamp_min(1e-30).sqrt()
        else:
            first = s / hi if self.start == "identity" else (s / hi).square()
        rate = torch.log1p(-first.clamp_max(1)).clamp_min(-1e5).unsqueeze(-1)
        return (g.unsqueeze(-2) @ -torch.expm1(rate * 2 ** steps.to(s).clamp_max(60))).squeeze(-2)
