"""What a control computes: a solver laid over the layers, as a recursion on token states that can be overwritten.

Shapes: B prompts, M points, L layers. A state is [B, M, 4]: the solver's own numbers and its memory at the examples,
row sums of K at all points, the prediction at the queries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerstep.tasks import Task

COLUMNS = ("solver", "memory", "scale", "prediction")
S, MEMORY, SCALE, F = range(4)


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Kernel sums as a mask allows them: `example` at the tokens with labels, `query` at the tokens that predict."""

    example: Float[Tensor, "B M M"]
    query: Float[Tensor, "B M M"]
    y: Float[Tensor, "B M"]
    is_query: Bool[Tensor, "B M"]
    lam: float

    @staticmethod
    def open(task: Task, x: Tensor, y: Tensor, n: Int[Tensor, "B"]) -> Problem:
        """The first n points are examples, and every point sees all of them; the others are queries."""
        seen = torch.arange(x.shape[1], device=x.device) < n.unsqueeze(-1)
        K = task.gram(x, x) * seen.unsqueeze(-2)
        return Problem(example=K * seen.unsqueeze(-1), query=K, y=y * seen, is_query=~seen, lam=task.lam)

    @staticmethod
    def causal(task: Task, x: Tensor, y: Tensor) -> Problem:
        """A label token sees the points up to its own, a query those before; the last label is not shown.

        A point is an example and a query, at two tokens: no column is shared by the two.
        """
        K, shown = task.gram(x, x).tril(), torch.ones_like(y)
        shown[:, -1] = 0
        K = K * shown.unsqueeze(-2)
        nowhere = torch.zeros_like(y, dtype=torch.bool)
        return Problem(example=K * shown.unsqueeze(-1), query=K.tril(-1), y=y * shown, is_query=nowhere, lam=task.lam)

    @property
    def example_sums(self) -> Float[Tensor, "B M"]:
        """Row sums of K at the examples, 1 where there is no example."""
        return _or_one(self.example.sum(-1))

    @property
    def query_sums(self) -> Float[Tensor, "B M"]:
        return _or_one(self.query.sum(-1))

    def residual(self, w: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
        """y - (K + lam I) w."""
        return self.y - _apply(self.example, w) - self.lam * w


def _or_one(sums: Tensor) -> Tensor:
    return torch.where(sums > 0, sums, 1.0)


def _apply(K: Float[Tensor, "B M M"], w: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
    return (K @ w.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True, kw_only=True)
class Swap:
    """After layer `layer` of every prompt its state is `value`."""

    layer: Int[Tensor, "B"]
    value: Float[Tensor, "B M 4"]


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """A solver, one step per layer from layer `first` on. v: the bandwidth of its own kernel, the task's by default.

    Softmax attention averages; what turns averages into sums and sums into averages, the row sums D, is a part of the
    state that never changes: 1 / D at examples where the solver divides by it, else D, and D at queries.
    """

    solver: str
    first: int = 1
    v: float | None = None

    @property
    @abstractmethod
    def form(self) -> str:
        """dual: the solver's numbers are coefficients, and f is read from them anew; functional: they are residuals,
        and f accumulates."""

    @abstractmethod
    def begin(self, problem: Problem) -> Float[Tensor, "B M 4"]:
        """The state after layer `first`."""

    @abstractmethod
    def advance(self, problem: Problem, state: Float[Tensor, "B M 4"], layer: int) -> Float[Tensor, "B M 4"]:
        """The state after `layer`, from that before it."""

    @abstractmethod
    def starts(self) -> tuple[int | None, int | None, int | None, int | None]:
        """By column, the layer (counted from `first` = 0) from which on it holds a state; None: it holds none."""

    def holds(self, column: int, layer: int) -> bool:
        """Whether this column has a state after this layer."""
        start = self.starts()[column]
        return start is not None and layer >= self.first + start

    @property
    def earliest(self) -> int:
        """The first layer after which the solver has numbers of its own."""
        start = self.starts()[S]
        assert start is not None
        return self.first + start

    def task(self, task: Task) -> Task:
        """The task as this solver sees it."""
        return task if self.v is None else replace(task, v=self.v)

    def states(self, problem: Problem, layers: int, swap: Swap | None = None) -> Float[Tensor, "L B M 4"]:
        """The states after layers 1..L, 0 before `first`; where a state is swapped, the solver goes on from there."""
        state = torch.zeros(*problem.y.shape, len(COLUMNS), dtype=problem.y.dtype, device=problem.y.device)
        found = []
        for layer in range(1, layers + 1):
            if layer == self.first:
                state = self.begin(problem)
            elif layer > self.first:
                state = self.advance(problem, state, layer)
            if swap is not None:
                state = torch.where((swap.layer == layer)[:, None, None], swap.value, state)
            found.append(state)
        return torch.stack(found)


def _scale(problem: Problem, divides: bool) -> Float[Tensor, "B M"]:
    """Row sums at examples and queries, their inverse at examples if the solver divides by them."""
    sums = problem.example.sum(-1)
    at_examples = torch.where(sums > 0, 1 / problem.example_sums if divides else sums, 0.0)
    return at_examples + torch.where(problem.is_query, problem.query.sum(-1), 0.0)


@dataclass(frozen=True, kw_only=True)
class Dual(Mechanism):
    """w += gain_l P (y - (K + lam I) w) + carry_l (w - w_before); f_q = k_q · w, one layer after w.

    scales: P = D⁻¹ (row-sum) or I, by layer, in turn. After layer `first` w is 0, after the next gain_1 P y.
    """

    scales: Sequence[str] = ("row-sum",)
    gains: Sequence[float] = (1.0,)
    carries: Sequence[float] = (0.0,)

    @property
    def form(self) -> str:
        return "dual"

    def starts(self) -> tuple[int | None, int | None, int | None, int | None]:
        return 1, 1 if any(self.carries) else None, 0, 2

    def begin(self, problem: Problem) -> Float[Tensor, "B M 4"]:
        zero = torch.zeros_like(problem.y)
        return torch.stack([zero, zero, _scale(problem, "row-sum" in self.scales), zero], dim=-1)

    def advance(self, problem: Problem, state: Float[Tensor, "B M 4"], layer: int) -> Float[Tensor, "B M 4"]:
        w, moved, index = state[..., S], state[..., MEMORY], layer - self.first - 1
        step = _in_turn(self.gains, index) * problem.residual(w)
        if self.scales[index % len(self.scales)] == "row-sum":
            step = step / problem.example_sums
        step = step + _in_turn(self.carries, index) * moved
        return torch.stack([w + step, step, state[..., SCALE], _apply(problem.query, w)], dim=-1)


@dataclass(frozen=True, kw_only=True)
class Descent(Mechanism):
    """w -= eta K ((K + lam I) w - y) in two layers: memory holds y - (K + lam I) w, then w moves along K times that."""

    eta: float

    @property
    def form(self) -> str:
        return "dual"

    def starts(self) -> tuple[int | None, int | None, int | None, int | None]:
        return 1, 0, 0, 2

    def begin(self, problem: Problem) -> Float[Tensor, "B M 4"]:
        zero = torch.zeros_like(problem.y)
        return torch.stack([zero, problem.y, _scale(problem, False), zero], dim=-1)

    def advance(self, problem: Problem, state: Float[Tensor, "B M 4"], layer: int) -> Float[Tensor, "B M 4"]:
        w, residual = state[..., S], state[..., MEMORY]
        prediction = _apply(problem.query, w)
        if (layer - self.first) % 2:
            w = w + self.eta * _apply(problem.example, residual)
        else:
            residual = problem.residual(w)
        return torch.stack([w, residual, state[..., SCALE], prediction], dim=-1)


@dataclass(frozen=True, kw_only=True)
class Functional(Mechanism):
    """r -= (K + lam I) D⁻¹ r, f_q += k_q · D⁻¹ r: Richardson on residuals. After layer `first` r = y and f = 0."""

    @property
    def form(self) -> str:
        return "functional"

    def starts(self) -> tuple[int | None, int | None, int | None, int | None]:
        return 0, None, 0, 0

    def begin(self, problem: Problem) -> Float[Tensor, "B M 4"]:
        zero = torch.zeros_like(problem.y)
        return torch.stack([problem.y, zero, _scale(problem, True), zero], dim=-1)

    def advance(self, problem: Problem, state: Float[Tensor, "B M 4"], layer: int) -> Float[Tensor, "B M 4"]:
        r, f = state[..., S], state[..., F]
        p = r / problem.example_sums
        r = r - _apply(problem.example, p) - problem.lam * p
        return torch.stack([r, state[..., MEMORY], state[..., SCALE], f + _apply(problem.query, p)], dim=-1)


@dataclass(frozen=True, kw_only=True)
class Boost(Mechanism):
    """r -= D⁻¹K r, f_q += (k_q / sum k_q) · r: boosting of a kernel smoother. After layer `first` r = y and f = 0."""

    @property
    def form(self) -> str:
        return "functional"

    def starts(self) -> tuple[int | None, int | None, int | None, int | None]:
        return 0, None, None, 0

    def begin(self, problem: Problem) -> Float[Tensor, "B M 4"]:
        zero = torch.zeros_like(problem.y)
        return torch.stack([problem.y, zero, zero, zero], dim=-1)

    def advance(self, problem: Problem, state: Float[Tensor, "B M 4"], layer: int) -> Float[Tensor, "B M 4"]:
        r, f = state[..., S], state[..., F]
        average = _apply(problem.query, r) / problem.query_sums
        r = r - _apply(problem.example, r) / problem.example_sums
        return torch.stack([r, state[..., MEMORY], state[..., SCALE], f + average], dim=-1)


def _in_turn(values: Sequence[float], index: int) -> float:
    """The last value stands for all later ones."""
    return values[min(index, len(values) - 1)]


def chebyshev(lo: float, hi: float, steps: int) -> tuple[list[float], list[float]]:
    """Gains and carries of the Chebyshev semi-iteration on [lo, hi]: with σ = (hi + lo) / (hi - lo), ρ_0 = 1 / σ,
    ρ_t = 1 / (2σ - ρ_{t-1}) they are 2 ρ_t / δ and ρ_t ρ_{t-1}, the first 1 / θ and 0."""
    theta, delta = (hi + lo) / 2, (hi - lo) / 2
    sigma = theta / delta
    before, gains, carries = 1 / sigma, [1 / theta], [0.0]
    for _ in range(steps - 1):
        now = 1 / (2 * sigma - before)
        gains.append(2 * now / delta)
        carries.append(now * before)
        before = now
    return gains, carries


def supervised(mechanism: Mechanism, layers: int) -> Bool[Tensor, "L 4"]:
    """Which columns hold a state after layers 1..L."""
    columns = range(len(COLUMNS))
    return torch.tensor([[mechanism.holds(column, layer) for column in columns] for layer in range(1, layers + 1)])
