"""Masked variants: token i may combine only the points j <= i, as under a causal mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.solver import IterativeSolver, Solver
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class CausalRichardson(IterativeSolver):
    """w_i += (y_i - sum_{j<=i} K_ij w_j - lam w_i) / sum_{j<=i} K_ij. Its fixed point is not KRR."""

    @property
    def label(self) -> str:
        return "Causal Richardson"

    def iterates(self, system: System) -> Iterator[Float[Tensor, "B n"]]:
        lower = system.K.tril()
        row_sums = system.row_sums(lower)
        w = torch.zeros_like(system.y)
        while True:
            yield w
            seen = torch.einsum("bij,bj->bi", lower, w)
            w = w + (system.y - seen - system.lam * w) / row_sums


@dataclass(frozen=True, kw_only=True)
class CausalBoosting(Solver):
    """Boosting whose residuals are averaged over j <= i; the query averages all of the prefix."""

    @property
    def label(self) -> str:
        return "Causal boosting"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        lower = system.K.tril()
        average = lower / system.row_sums(lower).unsqueeze(-1)
        query = system.average(system.k.new_ones(1)).squeeze(-1)
        total, residual = torch.zeros_like(system.y[:, 0]), system.y
        wanted, kept = set(steps.tolist()), []
        for step in range(int(steps[-1]) + 1):
            if step in wanted:
                kept.append(total)
            total = total + (query * residual).sum(-1)
            residual = residual - torch.einsum("bij,bj->bi", average, residual)
        return torch.stack(kept, -1)
