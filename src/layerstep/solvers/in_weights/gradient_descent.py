"""What the field calls gradient descent: on the weights of a linear model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from layerstep.solvers.base import Solver
from layerstep.solvers.richardson import Richardson
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class GradientDescentInWeights(Solver):
    """θ += eta (Xᵀ(y - Xθ) - lam θ), which is Richardson iteration on K + lam I without row sums: θ = Xᵀw.

    eta: 1 / eig_max(XᵀX + lam I) of every (sequence, prefix) with step="per-prefix"; of the sequence's longest prefix
    with step="fixed"; or the number given, one step for all prompts.
    """

    step: Literal["per-prefix", "fixed"] = "per-prefix"
    eta: float | None = None

    def __post_init__(self) -> None:
        self._dual()

    @property
    def label(self) -> str:
        one = self.step == "fixed" or self.eta is not None
        return "Gradient descent in weights" + (", fixed step" if one else "")

    def _dual(self) -> Richardson:
        return Richardson(preconditioner="none", step=self.step, eta=self.eta)

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        return self._dual().predictions(system, steps)
