"""GD++: gradient descent whose layers also change the inputs (von Oswald et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.errors import require_flag, require_positive
from layerstep.solvers.base import Solver
from layerstep.solvers.system import System


@dataclass(frozen=True, kw_only=True)
class GradientDescentPlusPlus(Solver):
    """y_i -= eta x_i · sum_j x_j y_j and x_i -= gamma sum_j x_j (x_j · x_i), for the query too; prediction -y_query.

    gamma and eta are in units of 1 / eig_max(XᵀX) of every (sequence, prefix), or in those of x with absolute=True: one
    pair for all prompts. There is no ridge: it converges to least squares, or stops on the way.
    """

    most_steps: ClassVar[int] = 10**6
    gamma: float = 0.1
    eta: float = 1.0
    absolute: bool = False

    def __post_init__(self) -> None:
        require_positive(gamma=self.gamma, eta=self.eta)
        require_flag(absolute=self.absolute)

    @property
    def label(self) -> str:
        return "GD++"

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        """A component adds eta c e with s' = s (1 - gamma s)², e' = e (1 - eta s), c = prod (1 - gamma s)²."""
        top = system.plain.values[:, -1:].clamp_min(torch.finfo(system.y.dtype).tiny)
        s = system.plain.values if self.absolute else system.plain.values / top
        unit = self.eta if self.absolute else self.eta / top
        share, left, total = torch.ones_like(s), torch.ones_like(s), torch.zeros_like(s)
        wanted, out = set(steps.tolist()), []
        for step in range(max(wanted) + 1):
            if step in wanted:
                out.append((system.plain.weights * unit * total).sum(-1))
            now = s * share
            total, left, share = total + share * left, left * (1 - self.eta * now), share * (1 - self.gamma * now) ** 2
        return torch.stack(out, dim=-1)
