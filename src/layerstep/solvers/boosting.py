"""Boosting of a kernel smoother: average the residuals, add, repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.base import Solver
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class Boosting(Solver):
    """r = y; each round f_q += (k / sum k) · r, then r -= D⁻¹K r. Interpolates in the limit: there is no ridge."""

    needs: ClassVar[frozenset[str]] = frozenset({"row sums", "K >= 0"})

    @property
    def label(self) -> str:
        return "Smoother boosting"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        """sum_k g_k (1 - (1 - s_k)^t) / s_k over the spectrum s of the smoother; the limit at s = 0 is t."""
        t = steps.to(system.y)
        s = system.smoother.values.unsqueeze(-1)
        rounds = -torch.expm1(t * torch.log1p(-s).clamp_min(-1e5)) / s
        return system.smoother.sum(torch.where(s > 0, rounds, t.expand_as(rounds)))
