"""Gradient descent on the paper's loss, Euclidean in w."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.base import Solver
from layerstep.solvers.spectral_sums import power_sums
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class GradientDescent(Solver):
    """w -= eta K ((K + lam I) w - y), eta = 1 / eig_max(K (K + lam I)) of every (sequence, prefix)."""

    @property
    def label(self) -> str:
        return "Gradient descent"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        """sum_k g_k (1 - (1 - eta m_k s_k)^t) / s_k over the eigenvalues m of K and s = m + lam."""
        s, g = system.ridged.values, system.ridged.weights / system.ridged.values
        curvature = system.plain.values * s
        return g.sum(-1, keepdim=True) - power_sums(g, relative(curvature), steps)


def relative(curvature: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
    """Eigenvalues in increasing order over the largest: what one step takes away. 0 where K = 0 and nothing moves."""
    return curvature / curvature[:, -1:].clamp_min(torch.finfo(curvature.dtype).tiny)
