"""What a solver is: a frozen value of its hyper-parameters that predicts at the query after any number of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from jaxtyping import Float, Num
from torch import Tensor

from layerstep.errors import require
from layerstep.solvers.system import System


class Solver(ABC):
    """Base of all solvers. A new one is a frozen dataclass with `label` and `predictions` (or `iterates`)."""

    #: May steps be fractions? True for paths in a parameter (a ridge, a temperature), False for iterations.
    continuous: ClassVar[bool] = False
    #: The last step it can be asked for; of those that take one step after another a million.
    most_steps: ClassVar[int] = 2**53 - 1
    #: What it needs of the kernel matrix, of "row sums" (above 0), "K >= 0" and "unit diagonal" (at most 1).
    needs: ClassVar[frozenset[str]] = frozenset()
    #: What surprises who sees its errors for the first time.
    remark: ClassVar[str] = ""

    @property
    @abstractmethod
    def label(self) -> str:
        """The name in figures and tables."""

    @abstractmethod
    def predictions(self, system: System, steps: Num[Tensor, "T"]) -> Float[Tensor, "B T"]:
        """k · w_t for every t in `steps` (increasing), one prefix length, all sequences."""


class IterativeSolver(Solver):
    """A solver without a closed form: it yields its iterates and the caller keeps what it needs."""

    @abstractmethod
    def iterates(self, system: System) -> Iterator[Float[Tensor, "B n"]]:
        """Coefficients w_0, w_1, ...; when the iterator ends the last one stands for all later steps."""

    def predictions(self, system: System, steps: Num[Tensor, "T"]) -> Float[Tensor, "B T"]:
        wanted = steps.tolist()
        out = torch.empty(len(system.y), len(wanted), dtype=system.y.dtype, device=system.y.device)
        filled = 0
        prediction = torch.zeros_like(system.y[:, 0])
        for step, w in enumerate(self.iterates(system)):
            if step == 0:
                shaped = isinstance(w, Tensor) and w.shape == system.y.shape
                allowed = f"a tensor of shape {list(system.y.shape)}, as system.y"
                require(shaped, f"iterate 0 of {self.label!r}", w, allowed)
            prediction = (system.k * w).sum(-1)
            if step == wanted[filled]:
                out[:, filled] = prediction
                filled += 1
                if filled == len(wanted):
                    return out
        out[:, filled:] = prediction.unsqueeze(-1)
        return out
