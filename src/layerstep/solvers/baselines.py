"""Predictors that improve with a parameter but iterate nothing: what an identification must be able to tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from layerstep.errors import require_flag, require_positive
from layerstep.solvers.base import Solver
from layerstep.solvers.system import System
from layerstep.tasks.posterior import cholesky


@dataclass(frozen=True, kw_only=True)
class RidgePath(Solver):
    """Exact ridge regression with the ridge scale / t: no iteration. With scale 1, t = 1 / lam is exact KRR."""

    continuous: ClassVar[bool] = True
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_positive(scale=self.scale)

    @property
    def label(self) -> str:
        return "Ridge path"

    def predictions(self, system: System, steps: Num[Tensor, "T"]) -> Float[Tensor, "B T"]:
        lam = self.scale / steps.to(system.y)  # t = 0: an infinite ridge, prediction 0
        return system.plain.sum(1 / (system.plain.values.unsqueeze(-1) + lam))


@dataclass(frozen=True, kw_only=True)
class NadarayaWatson(Solver):
    """sum_j K_j^t y_j / sum_j K_j^t: a kernel average that sharpens with t. Solves nothing; t = 0 is the mean."""

    continuous: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"K >= 0"})

    @property
    def label(self) -> str:
        return "Nadaraya-Watson"

    def predictions(self, system: System, steps: Num[Tensor, "T"]) -> Float[Tensor, "B T"]:
        return (system.y.unsqueeze(-2) @ system.average(steps.to(system.y))).squeeze(-2)


@dataclass(frozen=True, kw_only=True)
class Shrinkage(Solver):
    """min(t / horizon, 1) times exact KRR."""

    continuous: ClassVar[bool] = True
    horizon: float = 100.0

    def __post_init__(self) -> None:
        require_positive(horizon=self.horizon)

    @property
    def label(self) -> str:
        return "Shrunken KRR"

    def predictions(self, system: System, steps: Num[Tensor, "T"]) -> Float[Tensor, "B T"]:
        return torch.outer(system.exact, (steps.to(system.y) / self.horizon).clamp_max(1))


@dataclass(frozen=True, kw_only=True)
class NearestNeighbors(Solver):
    """Exact KRR on the t points nearest to the query (all points once t >= n), in the metric of the kernel.

    |φ(x) - φ(z)|² = K(x, x) + K(z, z) - 2 K(x, z): with the linear kernel the distance |x - z|, and where K(x, x) is
    the same everywhere, the points with the largest kernel values.
    """

    @property
    def label(self) -> str:
        return "KRR on nearest points"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        own = system.K.diagonal(dim1=-2, dim2=-1)
        # 2 k - 1 would lose the digits of small kernel values.
        near = system.k if bool((own == own[:, :1]).all()) else 2 * system.k - own
        order = torch.argsort(near, dim=-1, descending=True, stable=True)
        return krr_point_by_point(system, order, steps)


@dataclass(frozen=True, kw_only=True)
class RecursiveKRR(Solver):
    """Exact KRR on the first t points of the prefix, as recursive least squares absorbs them; or on the last t."""

    newest_first: bool = False

    def __post_init__(self) -> None:
        require_flag(newest_first=self.newest_first)

    @property
    def label(self) -> str:
        return "KRR on the last points" if self.newest_first else "Recursive KRR"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        order = torch.arange(system.n, device=system.y.device)
        order = order.flip(0) if self.newest_first else order
        return krr_point_by_point(system, order.expand(len(system.y), -1), steps)


def krr_point_by_point(system: System, order: Int[Tensor, "B n"], steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
    """KRR on the first t points of `order`, all t from one Cholesky factor: a running sum of (L⁻¹k)_i (L⁻¹y)_i."""
    K = system.K.gather(1, order.unsqueeze(-1).expand_as(system.K))
    K = K.gather(2, order.unsqueeze(-2).expand_as(system.K))
    both = torch.stack([system.k.gather(1, order), system.y.gather(1, order)], -1)
    # Without a ridge there is no factor past the rank of K; with this one the answer is that to about six digits.
    lam = system.lam or 1e-10 * float(K.diagonal(dim1=-2, dim2=-1).mean())
    solved = torch.linalg.solve_triangular(cholesky(K, lam), both, upper=False)
    sums = torch.nn.functional.pad(solved.prod(-1).cumsum(-1), (1, 0))
    return sums[:, steps.clamp_max(system.n)]
