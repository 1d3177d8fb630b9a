"""Any solver in another metric of the inputs: x'Pz in place of x'z."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require, require_kind
from layerstep.solvers.base import Solver
from layerstep.solvers.in_weights.gradient_descent import GradientDescentInWeights
from layerstep.solvers.system import System
from layerstep.tasks.prompts import as_float_tensor


@dataclass(frozen=True, kw_only=True)
class Preconditioned(Solver):
    """`inner` with the kernel x'Pz: with gradient descent in weights θ += eta (P Xᵀ(y - Xθ) - lam θ).

    P: a positive semidefinite matrix [d, d], such as the inverse covariance of the inputs (`inverse_covariance`);
    None is the identity. It replaces the kernel of the task.
    """

    inner: Solver = field(default_factory=GradientDescentInWeights)
    P: Any = None  # a tensor or rows of numbers; kept as tuples

    def __post_init__(self) -> None:
        require_kind("inner", self.inner, Solver)
        object.__setattr__(self, "continuous", self.inner.continuous)
        object.__setattr__(self, "needs", self.inner.needs)
        if self.P is not None:
            P = as_float_tensor("P", self.P, 2)
            require(P.shape[0] == P.shape[1], "P.shape", list(P.shape), "square")
            least = float(torch.linalg.eigvalsh((P + P.T) / 2)[0])
            lost = 1e-8 * float(P.abs().max())
            ok = bool((P - P.T).abs().max() <= lost) and least >= -lost
            require(ok, "P", "a matrix", "symmetric, with no eigenvalue below 0")
            object.__setattr__(self, "P", tuple(map(tuple, P.tolist())))

    @property
    def label(self) -> str:
        return f"{self.inner.label}, preconditioned"

    def predictions(self, system: System, steps: Tensor) -> Tensor:
        batch, x = system.batch, system.batch.x
        if self.P is None:
            gram = x @ x.mT
        else:
            d = x.shape[-1]
            require(len(self.P) == d, "P.shape", [len(self.P)] * 2, f"[{d}, {d}], the dimension of the inputs")
            gram = x @ torch.tensor(self.P, dtype=x.dtype, device=x.device) @ x.mT
        return self.inner.predictions(replace(batch, gram=(gram + gram.mT) / 2, _made={}).system(system.n), steps)


def inverse_covariance(x: Float[Tensor, "B M d"], power: float = 1.0) -> Float[Tensor, "d d"]:
    """Σ^-power of the inputs of all sequences, Σ their second moment; directions without any inputs stay 0."""
    flat = x.flatten(0, 1).double()
    values, vectors = torch.linalg.eigh(flat.T @ flat / len(flat))
    there = values > len(values) * torch.finfo(torch.float64).eps * values[-1]
    scaled = torch.where(there, values.clamp_min(1e-300) ** -power, 0)
    return (vectors * scaled) @ vectors.T
