"""Conjugate gradients on the normal equations: CGLS."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.solvers.base import IterativeSolver
from layerstep.solvers.conjugate_gradient import TOLERANCE
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class ConjugateGradientInWeights(IterativeSolver):
    """CG on (XᵀX + lam I) θ = Xᵀy. Not CG on (K + lam I) w = y: with θ = Xᵀw its inner product is <u, w> = uᵀK w.

    Computed on the eigenvectors of K, residuals kept orthogonal to all earlier ones: exact CG to rounding.
    """

    @property
    def label(self) -> str:
        return "Conjugate gradient in weights"

    def iterates(self, system: System) -> Iterator[Float[Tensor, "B n"]]:
        m, Q = system.eigen
        inside = m > system.rounding
        m, s = torch.where(inside, m, 0), m.clamp_min(0) + system.lam

        def dot(a: Tensor, b: Tensor) -> Tensor:
            return (m * a * b).sum(-1, keepdim=True)

        r = torch.where(inside, (Q.mT @ system.y.unsqueeze(-1)).squeeze(-1), 0)
        w, p, rho = torch.zeros_like(r), r, dot(r, r)
        kind = torch.finfo(r.dtype)
        stop, tiny = max(TOLERANCE, system.n * kind.eps) ** 2 * rho, kind.tiny
        earlier: list[Tensor] = []
        for step in itertools.count():
            yield (Q @ w.unsqueeze(-1)).squeeze(-1)
            live = rho > stop
            if step == system.n or not bool(live.any()):
                return
            curvature = dot(p, s * p)
            eta = torch.where(live & (curvature > 0), rho / curvature.clamp_min(tiny), 0)
            w = torch.addcmul(w, eta, p)
            earlier.append(torch.where(live, r / rho.sqrt().clamp_min(tiny), 0))
            r = torch.addcmul(r, eta, s * p, value=-1)
            basis = torch.stack(earlier, dim=1)
            for _ in range(2):  # once is not enough in floating point, twice is (Kahan, Parlett)
                r = r - torch.einsum("bsi,bs->bi", basis, torch.einsum("bsi,bi->bs", basis, m * r))
            new_rho = torch.where(live, dot(r, r), rho)
            p = torch.addcmul(r, new_rho / rho.clamp_min(tiny), p)
            rho = new_rho
