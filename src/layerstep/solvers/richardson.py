"""Richardson iteration, with the paper's row-sum preconditioner or without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from layerstep.errors import require, require_choice, require_positive
from layerstep.solvers.base import Solver
from layerstep.solvers.spectral_sums import power_sums
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class Richardson(Solver):
    """w += eta P⁻¹ (y - (K + lam I) w), P = diag(K 1) (the paper's eq. 4) or P = I.

    eta: 1 / eig_max(P⁻¹(K + lam I)) of every (sequence, prefix) with step="per-prefix"; of the sequence's longest
    prefix, one for all n, with step="fixed" (P = I only); or the number given.
    """

    preconditioner: Literal["row-sum", "none"] = "row-sum"
    step: Literal["per-prefix", "fixed"] = "per-prefix"
    eta: float | None = None

    def __post_init__(self) -> None:
        require_choice("preconditioner", self.preconditioner, ["row-sum", "none"])
        require_choice("step", self.step, ["per-prefix", "fixed"])
        if self.eta is not None:
            require_positive(eta=self.eta)
        unscaled = self.preconditioner == "none" or self.step == "per-prefix"
        require(
            unscaled,
            "step",
            "'fixed'",
            "'per-prefix' with the row-sum preconditioner",
            "For one step size give eta instead.",
        )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"row sums"}) if self.preconditioner == "row-sum" else frozenset()

    @property
    def label(self) -> str:
        if self.preconditioner == "row-sum":
            return "Preconditioned Richardson"
        return "Richardson" if self.step == "per-prefix" and self.eta is None else "Richardson, fixed step"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        """sum_k g_k (1 - (1 - eta s_k)^t) / s_k over the spectrum s of P^-1/2 (K + lam I) P^-1/2."""
        spectrum = system.row_sum if self.preconditioner == "row-sum" else system.ridged
        s, g = spectrum.values, spectrum.weights
        if self.eta is not None:
            decrement = self.eta * s
        elif self.step == "fixed":
            decrement = (s / system.batch.eig_max.unsqueeze(-1)).clamp_max(1)
        else:
            decrement = s / s[:, -1:]
        return (g / s).sum(-1, keepdim=True) - power_sums(g / s, decrement, steps)
