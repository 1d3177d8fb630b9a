"""Candidates: a solver in one form, as the operators that an intervention on its state must show.

A is the system's matrix, P the preconditioner, k_q the query's row, all made of the n examples a token sees:

    functional  state r_t (residuals):     r' = (I - A P) r,      f_q' = f_q + k_q P r
    dual        state w_t (coefficients):  w' = w + P (y - A w),  f_q  = k_q w

The iterates of both forms are the same; what a change delta of the state does to the prediction k steps on is not:

    functional  k_q P sum_{s<k} (I - A P)^s delta          dual  k_q (I - P A)^k delta

A new solver is one function and one entry of SOLVERS.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

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

    def rows(self, form: str, steps: int) -> Float[Tensor, "k B n"]:
        """The prediction's response to a change of the state, 0..steps steps before the end."""
        rows = []
        if form == "functional":
            term, total, AP = _row(self.k, self.P), torch.zeros_like(self.k), self.A @ self.P
            for _ in range(steps + 1):
                rows.append(total)
                total, term = total + term, term - _row(term, AP)
        else:
            row, PA = self.k, self.P @ self.A
            for _ in range(steps + 1):
                rows.append(row)
                row = row - _row(row, PA)
        return torch.stack(rows)


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _row(vector: Tensor, matrix: Tensor) -> Tensor:
    return (vector.unsqueeze(-2) @ matrix).squeeze(-2)


#: (A, P, k) from K [B, n, n], the query's k [B, n] and lam.
Operators = tuple[Tensor, Tensor, Tensor]
Rule = Callable[[Tensor, Tensor, float], Operators]


def _diagonal(values: Float[Tensor, "B n"]) -> Float[Tensor, "B n n"]:
    return torch.diag_embed(values)


def _largest(A: Float[Tensor, "B n n"]) -> Float[Tensor, "B 1"]:
    with one_thread():
        return torch.linalg.eigvalsh(A)[:, -1:]


def _richardson(K: Tensor, k: Tensor, lam: float) -> Operators:
    """P = eta D⁻¹, D the row sums of K, eta = 1 / eig_max(D⁻¹A)."""
    A, D = ridge(K, lam), K.sum(-1)
    root = D.rsqrt()
    return A, _diagonal(1 / (_largest(root[..., None] * A * root[..., None, :]) * D)), k


def _fixed(K: Tensor, k: Tensor, lam: float) -> Operators:
    """P = eta I, eta = 1 / eig_max(A)."""
    A = ridge(K, lam)
    return A, _diagonal((1 / _largest(A)).expand_as(k)), k


def _gd(K: Tensor, k: Tensor, lam: float) -> Operators:
    """P = eta K, eta = 1 / eig_max(K A)."""
    m = _largest(K)
    return ridge(K, lam), K / (m * (m + lam)).unsqueeze(-1), k


def _boost(K: Tensor, k: Tensor, lam: float) -> Operators:
    """A = D⁻¹K, P = I, and the query averages: k / sum k."""
    return K / K.sum(-1, keepdim=True), _diagonal(torch.ones_like(k)), k / k.sum(-1, keepdim=True)


def _causal_richardson(K: Tensor, k: Tensor, lam: float) -> Operators:
    """A = tril K + lam I, P = D⁻¹, D the row sums over j <= i."""
    lower = K.tril()
    return ridge(lower, lam), _diagonal(1 / lower.sum(-1)), k


def _causal_fixed(K: Tensor, k: Tensor, lam: float, *, N: int) -> Operators:
    """A = tril K + lam I, P = I / (1 + N/4): one step size for all points, which no token may learn from later ones."""
    return ridge(K.tril(), lam), _diagonal(torch.full_like(k, 1 / (1 + N / 4))), k


def _causal_boost(K: Tensor, k: Tensor, lam: float) -> Operators:
    """Averages over j <= i."""
    return _boost(K.tril(), k, lam)


#: By mask. Under a causal mask only causal solvers have a state that fits into tokens (docs/interventions.md).
SOLVERS: dict[str, dict[str, Rule]] = {
    "open": {"richardson": _richardson, "richardson-fixed": _fixed, "gd": _gd, "boost": _boost},
    "causal": {
        "causal-richardson": _causal_richardson,
        "causal-richardson-fixed": _causal_fixed,  # type: ignore[dict-item]
        "causal-boost": _causal_boost,
    },
}


def _half(K: Tensor, k: Tensor, lam: float) -> Operators:
    """P = eta D^-1/2, eta = 1 / eig_max(D^-1/2 A)."""
    A, D = ridge(K, lam), K.sum(-1)
    root = D.pow(-0.25)
    return A, _diagonal(1 / (_largest(root[..., None] * A * root[..., None, :]) * D.sqrt())), k


def _causal_half(K: Tensor, k: Tensor, lam: float, *, N: int) -> Operators:
    """P = (D (1 + N/4))^-1/2."""
    lower = K.tril()
    return ridge(lower, lam), _diagonal((lower.sum(-1) * (1 + N / 4)).rsqrt()), k


#: Half-way between two solvers, claimed by no one: a claim must be nearer than these. Where the truth is one that is
#: not tried, the solver beside it is farther from it than what lies between.
BETWEEN: dict[str, dict[str, Rule]] = {
    "open": {"half-normalised": _half},
    "causal": {"causal-half-normalised": _causal_half},  # type: ignore[dict-item]
}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A solver in one form with one bandwidth: what a layer may be found to run."""

    solver: str
    form: str
    mask: str
    v: float

    @property
    def name(self) -> str:
        return f"{self.solver}, {self.form}"

    def at(self, v: float) -> Candidate:
        return replace(self, v=v)

    def iteration(self, prompts: Prompts, task: Task) -> Iteration:
        """Its operators for the last point of the prompts, from all points before it, in float64."""
        x, y = prompts.x.double(), prompts.y.double()
        K = KERNELS[task.kernel](x, x, self.v)
        rule = (SOLVERS[self.mask] | BETWEEN[self.mask])[self.solver]
        if rule in (_causal_fixed, _causal_half):
            rule = functools.partial(rule, N=task.N)  # type: ignore[call-arg]
        A, P, k = rule(K[:, :-1, :-1], K[:, -1, :-1], task.lam)
        return Iteration(A=A, P=P, k=k, y=y[:, :-1])
