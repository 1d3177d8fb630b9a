"""Predictors that know the prior: the Bayes answer for a finite pool of weights; and an average that knows nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Num
from torch import Tensor

from layerstep.errors import require, require_kind
from layerstep.files import digest
from layerstep.solvers.base import Solver
from layerstep.solvers.system import System
from layerstep.tasks.prompts import as_float_tensor


@dataclass(frozen=True, kw_only=True)
class DiscreteMMSE(Solver):
    """sum_m p_m x·θ_m, p_m ∝ exp(-t |y - Xθ_m|² / 2): the posterior mean over a pool of M weights (dMMSE).

    t is the inverse variance of the noise: 1 / sigma² is the Bayes answer, t = 0 the mean of the pool. pool: M weights
    of d numbers.
    """

    continuous: ClassVar[bool] = True
    pool: Any  # a tensor or rows of numbers; kept as tuples

    def __post_init__(self) -> None:
        require_kind("pool", self.pool, (Sequence, Tensor))
        pool = as_float_tensor("pool", self.pool, 2)
        require(pool.numel() > 0, "pool", list(pool.shape), "one row of weights or more")
        object.__setattr__(self, "pool", tuple(map(tuple, pool.tolist())))

    def __repr__(self) -> str:
        return f"DiscreteMMSE(pool={len(self.pool)} weights, {digest(self.pool)})"

    @property
    def label(self) -> str:
        return f"dMMSE over {len(self.pool)} weights"

    def predictions(self, system: System, steps: Num[Tensor, "T"]) -> Float[Tensor, "B T"]:
        x, n = system.batch.x, system.n
        pool = torch.tensor(self.pool, dtype=x.dtype, device=x.device)
        d = x.shape[-1]
        require(pool.shape[1] == d, "pool", f"weights of {pool.shape[1]} numbers", f"of d = {d}, as the inputs")
        missed = (system.y.unsqueeze(-1) - x[:, :n] @ pool.T).square().sum(1)  # [B, M]
        p = torch.softmax(-missed.unsqueeze(-1) * steps.to(system.y) / 2, dim=1)
        return ((x[:, n] @ pool.T).unsqueeze(-1) * p).sum(1)


@dataclass(frozen=True, kw_only=True)
class SoftmaxAverage(Solver):
    """sum_j p_j y_j, p = softmax(t k): softmax attention that solves nothing; t = 0 is the mean of the labels."""

    continuous: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "Softmax average"

    def predictions(self, system: System, steps: Num[Tensor, "T"]) -> Float[Tensor, "B T"]:
        p = torch.softmax(system.k.unsqueeze(-1) * steps.to(system.k), dim=1)
        return (system.y.unsqueeze(-1) * p).sum(1)
