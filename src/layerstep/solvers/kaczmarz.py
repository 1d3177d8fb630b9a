"""Kaczmarz: one example after the other, its equation solved exactly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.solvers.base import IterativeSolver
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class Kaczmarz(IterativeSolver):
    """One step is one sweep over the examples in order, θ += x_i (y_i - x_i·θ - lam w_i) / (K_ii + lam), θ = Xᵀw.

    That is a Gauss-Seidel sweep on (K + lam I) w = y: w' = w + tril(K + lam I)⁻¹ (y - (K + lam I) w).
    """

    most_steps: ClassVar[int] = 10**6

    @property
    def label(self) -> str:
        return "Kaczmarz sweeps"

    def iterates(self, system: System) -> Iterator[Float[Tensor, "B n"]]:
        A = system.A
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        # An example at x = 0 says nothing; without a ridge there would be a division by 0.
        still = diagonal <= 0
        lower = A.tril() + torch.diag_embed(still.to(A))
        w, tiny = torch.zeros_like(system.y), torch.finfo(A.dtype).eps

        def size(w: Tensor) -> Tensor:
            return w.abs().sum(-1)

        for step in itertools.count():
            yield w
            residual = system.y - (A @ w.unsqueeze(-1)).squeeze(-1)
            residual = torch.where(still, 0, residual)
            # Sixteen sweeps at a time: asking makes the host wait for a GPU. What is left then is rounding.
            if step % 16 == 15 and bool((residual.abs().amax(-1) <= tiny * A.abs().amax((-2, -1)) * size(w)).all()):
                return
            w = w + torch.linalg.solve_triangular(lower, residual.unsqueeze(-1), upper=False).squeeze(-1)
