"""Candidates: a solver in one form, as the operators that an intervention on its state must show.

A is the system's matrix, P the preconditioner, k_q the query's row, all made of the n examples a token sees:

    functional  state r_t (residuals):     r' = (I - A P) r,      f_q' = f_q + k_q P r
    dual        state w_t (coefficients):  w' = w + P (y - A w),  f_q  = k_q w

The iterates of both forms are the same; what a change delta of the state does to the prediction k steps on is not:

    functional  k_q P sum_{s<k} (I - A P)^s delta          dual  k_q (I - P A)^k delta

A new solver is one function and one entry of SOLVERS.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.linear_tasks import is_linear
from layerstep.tasks import Prompts
from layerstep.tasks.kernels import KERNELS
from layerstep.tasks.posterior import ridge
from layerstep.threads import one_thread

FORMS = ("functional", "dual")
#: Multiples of the task's bandwidth that a search begins with.
BANDWIDTHS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.12, 1.25, 1.4, 1.6, 2.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Iteration:
    """r' = (I - A P) r on n examples of B prompts, seen by a query through k."""

    A: Float[Tensor, "B n n"]
    P: Float[Tensor, "B n n"]
    k: Float[Tensor, "B n"]
    y: Float[Tensor, "B n"]
    eta: Float[Tensor, "B"]  # the size of the steps, a part of P

    def states(self, form: str, steps: int) -> Float[Tensor, "t B n"]:
        """The state before the first and after every step."""
        state = self.y if form == "functional" else torch.zeros_like(self.y)
        kept = [state]
        for _ in range(steps):
            kept.append(self.step(form, kept[-1]))
        return torch.stack(kept)

    def maps(self, form: str, steps: int) -> Float[Tensor, "t B n n"]:
        """From the labels to the state before the first and after every step: every state is linear in y."""
        one = torch.eye(self.A.shape[-1], dtype=self.A.dtype).expand_as(self.A)
        now = one if form == "functional" else torch.zeros_like(self.A)
        kept = [now]
        for _ in range(steps):
            step = -(self.A @ (self.P @ now)) if form == "functional" else self.P @ (one - self.A @ now)
            now = now + step
            kept.append(now)
        return torch.stack(kept)

    def predictions(self, steps: int) -> Float[Tensor, "t B"]:
        """At the query, before the first and after every step: the same in both forms."""
        return (self.states("dual", steps) * self.k).sum(-1)

    def step(self, form: str, state: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        if form == "functional":
            return state - _times(self.A, _times(self.P, state))
        return state + _times(self.P, self.y - _times(self.A, state))

    def change(self, form: str, delta: Float[Tensor, "B n"], steps: int) -> Float[Tensor, "B n"]:
        """What a change of the state has become after `steps` steps."""
        for _ in range(steps):
            applied = _times(self.A, _times(self.P, delta)) if form == "functional" else self._dual(delta)
            delta = delta - applied
        return delta

    def _dual(self, delta: Tensor) -> Tensor:
        return _times(self.P, _times(self.A, delta))

    def row(self, form: str, steps: int) -> Float[Tensor, "B n"]:
        """The prediction's response to a change of the state, `steps` steps before the end."""
        return self._rows(form, steps)[-1]

    def rows(self, form: str, steps: int) -> Float[Tensor, "k B n"]:
        """The same, 0..steps steps before the end."""
        return torch.stack(self._rows(form, steps))

    def _rows(self, form: str, steps: int) -> list[Float[Tensor, "B n"]]:
        row = self.k.unsqueeze(-2)  # times a matrix as a batch of products: thousands of these are made
        if form == "dual":
            PA, found = self.P @ self.A, [row]
            for _ in range(steps):
                found.append(torch.baddbmm(found[-1], found[-1], PA, alpha=-1))
        else:
            term, AP, found = row @ self.P, self.A @ self.P, [torch.zeros_like(row)]
            for _ in range(steps):
                found.append(found[-1] + term)
                term = torch.baddbmm(term, term, AP, alpha=-1)
        return [each.squeeze(-2) for each in found]


@dataclass(frozen=True, eq=False, kw_only=True)
class ChangingIteration(Iteration):
    """GD++ in its functional form: with the residuals the inputs change, x <- x - gamma X'X x, and with them

        K' = K (I - gamma K)²       k' = k (I - gamma K)²

    A and k are those before the first step; an intervention is made after `start` steps. P is diagonal, eta I.
    """

    gamma: Float[Tensor, "B 1 1"]
    start: int

    def _operators(self, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(A, k) of the steps from `start` on."""
        A, k = self.A, self.k
        for at in itertools.count():
            if at >= start:
                yield A, k
            turn = torch.eye(A.shape[-1], dtype=A.dtype) - self.gamma * A
            A, k = A @ turn @ turn, _row(_row(k, turn), turn)

    def states(self, form: str, steps: int) -> Float[Tensor, "t B n"]:
        kept = [self.y]
        for (A, _), _ in zip(self._operators(0), range(steps), strict=False):
            kept.append(kept[-1] - _times(A, _times(self.P, kept[-1])))
        return torch.stack(kept)

    def maps(self, form: str, steps: int) -> Float[Tensor, "t B n n"]:
        kept = [torch.eye(self.A.shape[-1], dtype=self.A.dtype).expand_as(self.A)]
        for (A, _), _ in zip(self._operators(0), range(steps), strict=False):
            kept.append(kept[-1] - A @ (self.P @ kept[-1]))
        return torch.stack(kept)

    def predictions(self, steps: int) -> Float[Tensor, "t B"]:
        states = self.states("functional", steps)
        moves = [(_row(k, self.P) * r).sum(-1) for (_, k), r in zip(self._operators(0), states[:-1], strict=False)]
        return torch.stack([torch.zeros_like(self.k[:, 0]), *moves]).cumsum(0)

    def change(self, form: str, delta: Float[Tensor, "B n"], steps: int) -> Float[Tensor, "B n"]:
        for (A, _), _ in zip(self._operators(self.start), range(steps), strict=False):
            delta = delta - _times(A, _times(self.P, delta))
        return delta

    def _rows(self, form: str, steps: int) -> list[Float[Tensor, "B n"]]:
        rows = [torch.zeros_like(self.k)]
        passed = torch.eye(self.A.shape[-1], dtype=self.A.dtype).expand_as(self.A)  # of a change, to this step
        for (A, k), _ in zip(self._operators(self.start), range(steps), strict=False):
            rows.append(rows[-1] + _row(_row(k, self.P), passed))
            passed = passed - A @ (self.P @ passed)
        return rows


def _row(vector: Tensor, matrix: Tensor) -> Tensor:
    return (vector.unsqueeze(-2) @ matrix).squeeze(-2)


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


#: (A, P, k) from K [B, n, n], the query's k [B, n] and lam; P up to the size of the steps.
Operators = tuple[Tensor, Tensor, Tensor]
#: The size of the steps that is the solver's own, [B, 1, 1], from A, P and the task's N.
Step = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Solver:
    """P is `own` times that of `operators`, or one number for all prompts times it.

    shapes: the values of v that a search begins with: multiples of the task's bandwidth, or of gamma / eta in GD++,
    whose inputs are `changing`; one value where there is nothing to choose. special: the solver that this one becomes
    for one value of v.
    """

    operators: Callable[[Tensor, Tensor, float], Operators]
    own: Step
    own_in_words: str
    forms: tuple[str, ...] = FORMS
    shapes: tuple[float, ...] = BANDWIDTHS
    changing: bool = False
    special: str = ""


def _richardson(K: Tensor, k: Tensor, lam: float) -> Operators:
    """P = eta D⁻¹, D the row sums of K."""
    return ridge(K, lam), torch.diag_embed(1 / K.sum(-1)), k


def _fixed(K: Tensor, k: Tensor, lam: float) -> Operators:
    """P = eta I."""
    return ridge(K, lam), torch.diag_embed(torch.ones_like(k)), k


def _gd(K: Tensor, k: Tensor, lam: float) -> Operators:
    """P = eta K."""
    return ridge(K, lam), K, k


def _boost(K: Tensor, k: Tensor, lam: float) -> Operators:
    """A = D⁻¹K, P = eta I, and the query averages: k / sum k."""
    return K / K.sum(-1, keepdim=True), torch.diag_embed(torch.ones_like(k)), k / k.sum(-1, keepdim=True)


def _half(K: Tensor, k: Tensor, lam: float) -> Operators:
    """P = eta D^-1/2."""
    return ridge(K, lam), torch.diag_embed(K.sum(-1).rsqrt()), k


def _causal(operators: Callable[[Tensor, Tensor, float], Operators]) -> Callable[[Tensor, Tensor, float], Operators]:
    """The same with the lower triangle of K: what a token may see."""
    return lambda K, k, lam: operators(K.tril(), k, lam)


def _largest(A: Tensor, P: Tensor, N: int) -> Tensor:
    """1 / eig_max(P A) of each prompt, P diagonal."""
    root = P.diagonal(dim1=-2, dim2=-1).sqrt()
    with one_thread():
        return 1 / torch.linalg.eigvalsh(root[..., None] * A * root[..., None, :])[:, -1:, None]


def _largest_of_product(A: Tensor, P: Tensor, N: int) -> Tensor:
    """1 / eig_max(K (K + lam I)) of each prompt; P is K."""
    with one_thread():
        largest = torch.linalg.eigvalsh(P)[:, -1:, None]
    return 1 / (largest * (largest + (A - P)[:, :1, :1]))


def _one(A: Tensor, P: Tensor, N: int) -> Tensor:
    return torch.ones_like(A[:, :1, :1])


def _by_length(A: Tensor, P: Tensor, N: int) -> Tensor:
    """1 / (1 + N/4): one step size for all points, which no token may learn from later ones."""
    return _one(A, P, N) / (1 + N / 4)


def _root_of_length(A: Tensor, P: Tensor, N: int) -> Tensor:
    return _by_length(A, P, N).sqrt()


def _descent(K: Tensor, k: Tensor, lam: float) -> Operators:
    """A = K, P = eta I: gradient descent on |y - X theta|², without a ridge."""
    return K, torch.diag_embed(torch.ones_like(k)), k


def _newton(K: Tensor, k: Tensor, lam: float) -> Operators:
    """A = K, P = eta K: the filter of Newton's iteration from M = eta S, whose t steps are 2^t of these."""
    return K, K, k


def _root_of_newton(K: Tensor, k: Tensor, lam: float) -> Operators:
    """P = eta K^1/2."""
    with one_thread():
        values, vectors = torch.linalg.eigh(K)
    return K, (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT, k


def _largest_of_root(A: Tensor, P: Tensor, N: int) -> Tensor:
    """1 / eig_max(K)^3/2 of each prompt."""
    with one_thread():
        return torch.linalg.eigvalsh(A)[:, -1:, None] ** -1.5


EACH = "1 / eig_max of each prompt"
#: By mask. Under a causal mask only causal solvers have a state that fits into tokens (docs/interventions.md).
SOLVERS: dict[str, dict[str, Solver]] = {
    "open": {
        "richardson": Solver(operators=_richardson, own=_largest, own_in_words=EACH),
        "richardson-fixed": Solver(operators=_fixed, own=_largest, own_in_words=EACH),
        "gd": Solver(operators=_gd, own=_largest_of_product, own_in_words=EACH),
        "boost": Solver(operators=_boost, own=_one, own_in_words="1"),
    },
    "causal": {
        "causal-richardson": Solver(operators=_causal(_richardson), own=_one, own_in_words="1"),
        "causal-richardson-fixed": Solver(operators=_causal(_fixed), own=_by_length, own_in_words="1 / (1 + N/4)"),
        "causal-boost": Solver(operators=_causal(_boost), own=_one, own_in_words="1"),
    },
}
#: Half-way between two solvers, claimed by no one: a claim must be nearer than these. Where the truth is one that is
#: not tried, the solver beside it is farther from it than what lies between.
BETWEEN: dict[str, dict[str, Solver]] = {
    "open": {"half-normalised": Solver(operators=_half, own=_largest, own_in_words=EACH)},
    "causal": {
        "causal-half-normalised": Solver(operators=_causal(_half), own=_root_of_length, own_in_words="(1 + N/4)^-1/2")
    },
}


#: The same of linear tasks, whose kernel has negative values and no bandwidth.
LINEAR_SOLVERS: dict[str, dict[str, Solver]] = {
    "open": {
        "gd-weights": Solver(operators=_descent, own=_largest, own_in_words=EACH, shapes=(1.0,)),
        "gd++": Solver(
            operators=_descent,
            own=_largest,
            own_in_words=EACH,
            forms=("functional",),
            shapes=(0.02, 0.05, 0.1, 0.2, 0.4),
            changing=True,
            special="gd-weights",
        ),
        "newton": Solver(operators=_newton, own=_largest_of_product, own_in_words=EACH, shapes=(1.0,)),
    },
    "causal": {
        "causal-gd": Solver(operators=_causal(_descent), own=_by_length, own_in_words="1 / (1 + N/4)", shapes=(1.0,)),
    },
}
LINEAR_BETWEEN: dict[str, dict[str, Solver]] = {
    "open": {"half-newton": Solver(operators=_root_of_newton, own=_largest_of_root, own_in_words=EACH, shapes=(1.0,))},
    "causal": {},
}
ALL: dict[str, Solver] = {
    name: solver
    for table in (SOLVERS, BETWEEN, LINEAR_SOLVERS, LINEAR_BETWEEN)
    for solvers in table.values()
    for name, solver in solvers.items()
}
LINEAR = frozenset(name for solvers in LINEAR_SOLVERS.values() for name in solvers)
UNCLAIMED = frozenset(name for table in (BETWEEN, LINEAR_BETWEEN) for solvers in table.values() for name in solvers)


def solvers_of(task: Any, mask: str) -> list[str]:
    """What may be found in a model of this task."""
    return list((LINEAR_SOLVERS if is_linear(task) else SOLVERS)[mask])


def between_of(task: Any, mask: str) -> list[str]:
    """What is tried beside them, and claimed by no one."""
    return list((LINEAR_BETWEEN if is_linear(task) else BETWEEN)[mask])


def own_in_words(solver: str) -> str:
    """The size of the steps that is a solver's own."""
    return ALL[solver].own_in_words


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A solver in one form: what a layer may be found to run.

    v: the bandwidth of its kernel; of GD++ gamma / eta. eta: the size of its steps on all prompts; None: its own, by
    default 1 / eig_max of each prompt. start: how many steps were taken before, of GD++.
    """

    solver: str
    form: str
    mask: str
    v: float
    eta: float | None = None
    start: int = 0

    @property
    def name(self) -> str:
        return f"{self.solver}, {self.form}"

    @property
    def shaped(self) -> bool:
        """Whether v means anything."""
        return len(ALL[self.solver].shapes) > 1

    def iteration(self, prompts: Prompts, task: Any) -> Iteration:
        """Its operators for the last point of the prompts, from all points before it, in float64."""
        x, solver = prompts.x.double(), ALL[self.solver]
        K = task.gram(x, x) if is_linear(task) else KERNELS[task.kernel](x, x, self.v)
        A, P, k = solver.operators(K[:, :-1, :-1], K[:, -1, :-1], task.lam)
        eta = solver.own(A, P, task.N) if self.eta is None else torch.full_like(A[:, :1, :1], self.eta)
        parts = {"A": A, "P": eta * P, "k": k, "y": prompts.y.double()[:, :-1], "eta": eta[:, 0, 0]}
        if solver.changing:
            return ChangingIteration(**parts, gamma=self.v * eta, start=self.start)
        return Iteration(**parts)
