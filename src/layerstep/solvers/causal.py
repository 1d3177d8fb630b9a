"""Masked variants: token i may combine only the points j <= i, as under a causal mask.

No token sees a later one, so what the tokens of a prefix hold is the first part of what those of all N points hold: the
iteration is run once for all prefixes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.base import Solver
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class CausalRichardson(Solver):
    """w_i += (y_i - sum_{j<=i} K_ij w_j - lam w_i) / sum_{j<=i} K_ij. Its fixed point is not KRR."""

    most_steps: ClassVar[int] = 10**6
    needs: ClassVar[frozenset[str]] = frozenset({"row sums"})

    @property
    def label(self) -> str:
        return "Causal Richardson"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        w = system.batch.once((self, tuple(steps.tolist())), lambda: kept(_richardson(system.batch.whole), steps))
        return torch.einsum("bn,btn->bt", system.k, w[..., : system.n])


@dataclass(frozen=True, kw_only=True)
class CausalBoosting(Solver):
    """Boosting whose residuals are averaged over j <= i; the query averages all of the prefix."""

    most_steps: ClassVar[int] = 10**6
    needs: ClassVar[frozenset[str]] = frozenset({"row sums", "K >= 0"})

    @property
    def label(self) -> str:
        return "Causal boosting"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        rounds = torch.arange(max(1, int(steps[-1])))
        residuals = system.batch.once((self, len(rounds)), lambda: kept(_residuals(system.batch.whole), rounds))
        query = system.average(system.k.new_ones(1)).squeeze(-1)
        gains = torch.einsum("bn,btn->bt", query, residuals[..., : system.n])
        return torch.nn.functional.pad(gains.cumsum(-1), (1, 0))[:, steps]  # before the first round: 0


def kept(iterates: Iterator[Float[Tensor, "B N"]], steps: Int[Tensor, "T"]) -> Float[Tensor, "B T N"]:
    """The iterates after these steps."""
    wanted = set(steps.tolist())
    numbered = enumerate(itertools.islice(iterates, int(steps[-1]) + 1))
    return torch.stack([iterate for step, iterate in numbered if step in wanted], dim=1)


def _richardson(system: System) -> Iterator[Float[Tensor, "B N"]]:
    lower = system.K.tril()
    row_sums = system.row_sums(lower)
    w = torch.zeros_like(system.y)
    while True:
        yield w
        seen = torch.einsum("bij,bj->bi", lower, w)
        w = w + (system.y - seen - system.lam * w) / row_sums


def _residuals(system: System) -> Iterator[Float[Tensor, "B N"]]:
    lower = system.K.tril()
    average = lower / system.row_sums(lower).unsqueeze(-1)
    residual = system.y
    while True:
        yield residual
        residual = residual - torch.einsum("bij,bj->bi", average, residual)
