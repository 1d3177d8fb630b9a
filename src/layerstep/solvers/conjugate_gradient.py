"""Conjugate gradients, plain or preconditioned by the row sums."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require_choice, require_flag
from layerstep.solvers.base import IterativeSolver
from layerstep.solvers.system import System

#: A sequence stops moving when its residual has shrunk by this much; going on would only stir rounding errors.
TOLERANCE = 1e-12
#: Of a system that is singular to rounding it never does. So many steps without a smaller residual end a sequence, too.
PATIENCE = 1000


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
        require_flag(reorthogonalize=self.reorthogonalize)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"row sums"}) if self.preconditioner == "row-sum" else frozenset()

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
        least = torch.full_like(rho, torch.inf)
        earlier: list[Tensor] = []
        tiny = torch.finfo(r.dtype).tiny
        for step in itertools.count():
            yield scale * w
            if step % PATIENCE == 0:
                stop = torch.where(rho < least, stop, torch.inf)
                least = rho
            live = rho > stop
            # Asking whether any sequence moves makes the host wait for a GPU: there only now and then.
            if (step % 8 == 0 or not live.is_cuda) and not bool(live.any()):
                return
            if self.reorthogonalize and len(earlier) == system.n:
                return  # n orthogonal residuals span the space: exact CG has ended
            Ap = (A @ p.unsqueeze(-1)).squeeze(-1)
            eta = torch.where(live, rho / _dot(p, Ap), 0)  # 0: w and r of a frozen sequence stay
            w = torch.addcmul(w, eta, p)
            if self.reorthogonalize:
                earlier.append(r / rho.sqrt().clamp_min(tiny))
            r = torch.addcmul(r, eta, Ap, value=-1)
            if self.reorthogonalize:
                basis = torch.stack(earlier, dim=1)
                for _ in range(2):  # once is not enough in floating point, twice is (Kahan, Parlett)
                    r = r - torch.einsum("bsi,bs->bi", basis, torch.einsum("bsi,bi->bs", basis, r))
            new_rho = torch.where(live, _dot(r, r), rho)
            p = torch.addcmul(r, new_rho / rho.clamp_min(tiny), p)
            rho = new_rho


def _dot(a: Float[Tensor, "B n"], b: Float[Tensor, "B n"]) -> Float[Tensor, "B 1"]:
    return (a * b).sum(-1, keepdim=True)
