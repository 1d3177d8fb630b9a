"""What a causal mask allows in weights: one pass over the examples, or steps in which token i sees only j <= i.

No token sees a later one, so both are run once, on all N points, for all prefixes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from layerstep.errors import require_positive
from layerstep.solvers.base import Solver
from layerstep.solvers.causal import kept
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class OnlineGD(Solver):
    """Least mean squares: one pass θ += eta x_i (y_i - x_i·θ), eta = scale t. In w: (stril(K) + I / eta) w = y."""

    continuous: ClassVar[bool] = True
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_positive(scale=self.scale)

    @property
    def label(self) -> str:
        return "Online gradient descent"

    def predictions(self, system: System, steps: Num[Tensor, "T"]) -> Float[Tensor, "B T"]:
        etas = self.scale * steps.to(system.y)
        w = system.batch.once((self, tuple(steps.tolist())), lambda: _one_pass(system.batch.whole, etas))
        found = torch.einsum("bn,btn->bt", system.k, w[..., : system.n])
        return found.masked_fill(found.isnan(), math.inf)  # it diverges: a difference of numbers that overflowed


def _one_pass(system: System, etas: Float[Tensor, "T"]) -> Float[Tensor, "B T N"]:
    """(eta stril(K) + I)⁻¹ eta y, one triangular system per step size."""
    eye = torch.eye(system.n, dtype=system.K.dtype, device=system.K.device)
    found = []
    for eta in etas:
        lower = eta * system.K.tril(-1) + eye
        found.append(torch.linalg.solve_triangular(lower, eta * system.y.unsqueeze(-1), upper=False).squeeze(-1))
    return torch.stack(found, dim=1)


@dataclass(frozen=True, kw_only=True)
class CausalGD(Solver):
    """w_i += eta (y_i - sum_{j<=i} K_ij w_j - lam w_i): gradient descent under a causal mask, prediction k · w.

    eta: 1 / eig_max(K + lam I) of the sequence's longest prefix, or the number given.
    """

    most_steps: ClassVar[int] = 10**6
    eta: float | None = None

    def __post_init__(self) -> None:
        if self.eta is not None:
            require_positive(eta=self.eta)

    @property
    def label(self) -> str:
        return "Causal gradient descent"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        key = (self, tuple(steps.tolist()))
        w = system.batch.once(key, lambda: kept(self._iterates(system.batch.whole), steps))
        return torch.einsum("bn,btn->bt", system.k, w[..., : system.n])

    def _iterates(self, system: System) -> Iterator[Float[Tensor, "B N"]]:
        lower = system.A.tril()
        tiny = torch.finfo(lower.dtype).tiny
        eta = 1 / system.batch.eig_max.clamp_min(tiny).unsqueeze(-1) if self.eta is None else self.eta
        w = torch.zeros_like(system.y)
        for _ in itertools.count():
            yield w
            w = w + eta * (system.y - torch.einsum("bij,bj->bi", lower, w))
