"""Nesterov's accelerated gradient on the same loss as gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.base import Solver
from layerstep.solvers.gradient_descent import relative
from layerstep.solvers.spectral_sums import momentum_sums
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class Nesterov(Solver):
    """z' = w - eta K ((K + lam I) w - y); w = z' + beta (z' - z); the prediction uses w, as the paper writes it.

    eta = 1 / eig_max(M), beta = (√κ - 1) / (√κ + 1), κ = eig_max(M) / eig_min(M), M = K (K + lam I).
    """

    @property
    def label(self) -> str:
        return "Nesterov"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        """The missing share of a component obeys e_w'' = (1 + beta) r e_w' - beta r e_w, with e_w(0) = e_z(0) = 1."""
        s, g = system.ridged.values, system.ridged.weights / system.ridged.values
        curvature = system.plain.values * s
        # Directions without examples, up to rounding, do not move: they set no momentum.
        moving = torch.where(system.plain.values > system.rounding, curvature, torch.inf)
        beta = nesterov_momentum(moving.amin(-1, keepdim=True).clamp_max(curvature[:, -1:]), curvature[:, -1:])
        r = 1 - relative(curvature)
        first = r + beta * (r - 1)
        return g.sum(-1, keepdim=True) - momentum_sums(g, (1 + beta) * r, beta * r, first, steps)


def nesterov_momentum(lo: Float[Tensor, "B 1"], hi: Float[Tensor, "B 1"]) -> Float[Tensor, "B 1"]:
    """beta = (√κ - 1) / (√κ + 1), κ = hi / lo."""
    # The limits keep √κ finite beyond float32, and where all eigenvalues are 0.
    root = (hi.double() / lo.double().clamp_min(1e-300)).sqrt().clamp_max(1e150)
    return ((root - 1) / (root + 1)).to(hi)
