"""Candidates: a solver in one form, as the operators that an intervention on its state must show.

A is the system's matrix, P the preconditioner, k_q the query's row, all made of the n examples a token sees:

    functional  state r_t (residuals):     r' = (I - A P) r,      f_q' = f_q + k_q P r
    dual        state w_t (coefficients):  w' = w + P (y - A w),  f_q  = k_q w

The iterates of both forms are the same; what a change delta of the state does to the prediction k steps on is not:

    functional  k_q P sum_{s<k} (I - A P)^s delta          dual  k_q (I - P A)^k delta

A new solver is one function and one entry of SOLVERS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.tasks import Prompts, Task
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


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


#: (A, P, k) from K [B, n, n], the query's k [B, n] and lam; P up to the size of the steps.
Operators = tuple[Tensor, Tensor, Tensor]
#: The size of the steps that is the solver's own, [B, 1, 1], from A, P and the task's N.
Step = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Solver:
    """P is `own` times that of `operators`, or one number for all prompts times it."""

    operators: Callable[[Tensor, Tensor, float], Operators]
    own: Step
    own_in_words: str


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


def own_in_words(solver: str) -> str:
    """The size of the steps that is a solver's own."""
    return next(each[solver].own_in_words for each in (*SOLVERS.values(), *BETWEEN.values()) if solver in each)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A solver in one form with one bandwidth: what a layer may be found to run.

    eta: the size of its steps on all prompts; None: its own, by default 1 / eig_max of each prompt.
    """

    solver: str
    form: str
    mask: str
    v: float
    eta: float | None = None

    @property
    def name(self) -> str:
        return f"{self.solver}, {self.form}"

    def iteration(self, prompts: Prompts, task: Task) -> Iteration:
        """Its operators for the last point of the prompts, from all points before it, in float64."""
        K = KERNELS[task.kernel](prompts.x.double(), prompts.x.double(), self.v)
        solver = (SOLVERS[self.mask] | BETWEEN[self.mask])[self.solver]
        A, P, k = solver.operators(K[:, :-1, :-1], K[:, -1, :-1], task.lam)
        eta = solver.own(A, P, task.N) if self.eta is None else torch.full_like(A[:, :1, :1], self.eta)
        return Iteration(A=A, P=eta * P, k=k, y=prompts.y.double()[:, :-1], eta=eta[:, 0, 0])
