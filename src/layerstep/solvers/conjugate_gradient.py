"""Conjugate gradients, plain or preconditioned by the row sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require_choice
from layerstep.solvers.solver import IterativeSolver
from layerstep.solvers.system import System

#: A sequence stops moving when its residual has shrunk by this much; going on would only stir rounding errors.
TOLERANCE = 1e-12


@dataclass(frozen=True, kw_only=True)
class ConjugateGradient(IterativeSolver):
    """CG on (K + lam I) w = y with r_0 = p_0 = y (appendix "Classical solvers"); a sequence freezes at 1e-12.

    In float64 the plain recursion loses orthogonality: from about step 12 (n = 40, lam = .0025) it differs from
    exact CG. `reorthogonalize` keeps residuals orthogonal to all earlier ones, which is exact CG to rounding.
    """

    preconditioner: Literal["none", "row-sum"] = "none"
    reorthogonalize: bool = False

    def __post_init__(self) -> None:
        require_choice("preconditioner", self.preconditioner, ["none", "row-sum"])

    @property
    def label(self) -> str:
        return "Conjugate gradient" if self.preconditioner == "none" else "Preconditioned conjugate gradient"

    def iterates(self, system: System) -> Iterator[Float[Tensor, "B n"]]:
        # CG on P^-1/2 A P^-1/2 with P = D or I is CG preconditioned by P, written without a second inner product.
        scale = system.D.rsqrt() if self.preconditioner == "row-sum" else torch.ones_like(system.y)
        A = scale.unsqueeze(-1) * system.A * scale.unsqueeze(-2)
        w = torch.zeros_like(system.y)
        r = scale * system.y
        p = r
        rho = _dot(r, r)
        stop = TOLERANCE**2 * rho
        earlier: list[Tensor] = []
        yield w
        while bool((rho > stop).any()):
            if self.reorthogonalize and len(earlier) == system.n:
                return  # n orthogonal residuals span the space: exact CG has ended
            live = rho > stop
            Ap = torch.einsum("bij,bj->bi", A, p)
            eta = torch.where(live, rho / _dot(p, Ap), 0)
            w = w + eta * p
            if self.reorthogonalize:
                earlier.append(r / rho.sqrt().clamp_min(torch.finfo(r.dtype).tiny))
            r = torch.where(live, r - eta * Ap, r)
            if self.reorthogonalize:
                basis = torch.stack(earlier, dim=1)
                for _ in range(2):  # once is not enough in floating point, twice is (Kahan, Parlett)
                    r = r - torch.einsum("bsi,bs->bi", basis, torch.einsum("bsi,bi->bs", basis, r))
            new_rho = torch.where(live, _dot(r, r), rho)
            p = torch.where(live, r + new_rho / rho.clamp_min(torch.finfo(r.dtype).tiny) * p, p)
            rho = torch.where(live, new_rho, rho)
            yield scale * w


def _dot(a: Float[Tensor, "B n"], b: Float[Tensor, "B n"]) -> Float[Tensor, "B 1"]:
    return (a * b).sum(-1, keepdim=True)
