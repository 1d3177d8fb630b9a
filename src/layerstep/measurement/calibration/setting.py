"""What planted models are made from: prompts, their systems at the contexts compared, and solvers on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.solvers import Solver, exact, solve
from layerstep.solvers.system import Batch, System
from layerstep.tasks import Prompts


@dataclass(frozen=True, eq=False, kw_only=True)
class PlantedSetting:
    prompts: Prompts
    task: Any
    contexts: tuple[int, ...]
    unit: float = 1.0  # of the labels, for noise

    @property
    def krr(self) -> Float[Tensor, "B C"]:
        return exact(self.prompts, self.task)[:, [n - 1 for n in self.contexts]]

    def solve(self, solver: Solver, steps: Sequence[float], task: Any = None) -> Float[Tensor, "L B C"]:
        return solve(solver, self.prompts, task or self.task, steps, contexts=self.contexts).values

    def solve_with(
        self, gram: Float[Tensor, "B M M"], solver: Solver, steps: Sequence[float]
    ) -> Float[Tensor, "L B C"]:
        """A solver on another kernel matrix."""
        batch = replace(Batch.of(self.prompts, self.task), gram=gram)
        times = torch.tensor(steps)
        return torch.stack([solver.predictions(batch.system(n), times).T for n in self.contexts], dim=-1)

    def each(self, predict: Callable[[System], Float[Tensor, "L B"]]) -> Float[Tensor, "L B C"]:
        """A predictor given the system of every context."""
        batch = Batch.of(self.prompts, self.task)
        return torch.stack([predict(batch.system(n)) for n in self.contexts], dim=-1)
