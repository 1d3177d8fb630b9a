"""The kernel systems (K_n + lam I) w = y of all prefixes n, decomposed once and shared by every solver."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require
from layerstep.tasks import KernelTask, Prompts
from layerstep.tasks.base import require_fits
from layerstep.tasks.posterior import posterior_means, ridge
from layerstep.threads import one_thread


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A symmetric matrix S seen by a right-hand side and a query: the query sees φ(S) as sum_k weight_k φ(value_k)."""

    values: Float[Tensor, "B n"]
    weights: Float[Tensor, "B n"]

    def sum(self, filter: Float[Tensor, "B n T"]) -> Float[Tensor, "B T"]:
        """sum_k weight_k filter_k, for every step at once."""
        return (self.weights.unsqueeze(-2) @ filter).squeeze(-2)


@dataclass(frozen=True, eq=False)
class Batch:
    """The kernel matrix of all N+1 points of B sequences; `system(n)` is its leading part."""

    x: Float[Tensor, "B M d"]
    y: Float[Tensor, "B M"]
    gram: Float[Tensor, "B M M"]
    lam: float
    task: Any
    _made: dict[Hashable, Tensor] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @staticmethod
    def of(prompts: Prompts, task: Any, v: float | None = None, lam: float | None = None) -> Batch:
        """v, lam: another bandwidth and ridge than the task's."""
        require_fits(prompts, task)
        if v is not None and v != getattr(task, "v", 1.0):  # a kernel of the user's may have no bandwidth
            task = replace(task, v=v)
        gram = task.gram(prompts.x, prompts.x)
        return Batch(x=prompts.x, y=prompts.y, lam=task.lam if lam is None else lam, gram=gram, task=task)

    def system(self, n: int) -> System:
        return System(K=self.gram[:, :n, :n], k=self.gram[:, n, :n], y=self.y[:, :n], lam=self.lam, batch=self)

    @property
    def whole(self) -> System:
        """The system of the longest prefix, all N points."""
        return self.system(self.y.shape[1] - 1)

    def once(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """make(), called for the first of all prefixes that ask for `key` and kept for the others, whatever thread."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    @cached_property
    def eig_max(self) -> Float[Tensor, "B"]:
        """Largest eigenvalue of K_N + lam I, the longest prefix. By interlacing no prefix exceeds it."""
        return torch.linalg.eigvalsh(self.gram[:, :-1, :-1])[:, -1] + self.lam

    @cached_property
    def log_gram(self) -> Float[Tensor, "B M M"]:
        """log K, where `gram` has underflowed too."""
        return self.task.log_gram(self.x, self.x)

    @cached_property
    def least_row_sum(self) -> float:
        """The least of sum_{j <= n} K_ij over all i <= n <= N: of the row sums of all prefixes and lower triangles."""
        sums = self.gram[:, :-1, :-1].cumsum(-1)
        inside = torch.ones_like(sums[0], dtype=torch.bool).triu()
        return float(sums[:, inside].amin())

    @cached_property
    def least_value(self) -> float:
        """The least kernel value, 0 where only rounding brings it below 0."""
        least, largest = self.gram.aminmax()
        return 0.0 if abs(least) <= 1e-8 * largest else float(least)

    @property
    def meets(self) -> frozenset[str]:
        """Which of the `needs` of solvers the kernel meets on these points."""
        met = {
            "row sums": self.least_row_sum > 0,
            "K >= 0": self.least_value >= 0,
            "unit diagonal": bool(self.gram.diagonal(dim1=-2, dim2=-1).amax() <= 1 + 1e-9),
        }
        return frozenset(need for need, is_met in met.items() if is_met)

    @cached_property
    def exact(self) -> Float[Tensor, "B N"]:
        """Exact KRR at every prefix."""
        if isinstance(self.task, KernelTask):
            return self.task.ridge_regression(self.x, self.y, self.gram)[:, 1:]
        return posterior_means(self.gram, self.y, self.lam)[:, 1:]


@dataclass(frozen=True, eq=False)
class System:
    """(K + lam I) w = y for the first n points of B sequences; the prediction at the query is k · w."""

    K: Float[Tensor, "B n n"]
    k: Float[Tensor, "B n"]
    y: Float[Tensor, "B n"]
    lam: float
    batch: Batch

    @property
    def n(self) -> int:
        return self.K.shape[-1]

    @property
    def A(self) -> Float[Tensor, "B n n"]:
        """K + lam I."""
        return ridge(self.K, self.lam)

    @cached_property
    def D(self) -> Float[Tensor, "B n"]:
        """Row sums of K: the diagonal of the paper's preconditioner. The query is not in them."""
        return self.row_sums(self.K)

    def row_sums(self, K: Float[Tensor, "B n n"]) -> Float[Tensor, "B n"]:
        """Row sums to divide by, of K or of its lower triangle."""
        least = self.batch.least_row_sum
        why = "The arccos1 kernel is 0 at x = 0" if least == 0 else "This kernel has values below 0"
        without = "gd-weights (Richardson without row sums, in the literature of linear tasks gradient descent)"
        remedy = f"{why}: move or remove such points, or use a solver without row sums, such as {without}."
        require(least > 0, "a row sum of K", f"{least:.3g}", "above 0", remedy)
        return K.sum(-1)

    def average(self, sharpness: Float[Tensor, "T"]) -> Float[Tensor, "B n T"]:
        """k_j^t / sum_j k_j^t for every t: weights of a kernel average at the query, also where k_j underflow."""
        least = self.batch.least_value
        remedy = "There is no average with weights below 0: use softmax-average, or a solver of the system."
        require(least >= 0, "a kernel value", f"{least:.3g}", "0 or more", remedy)
        tiny = torch.finfo(self.k.dtype).tiny
        log_k, lost = self.k.clamp_min(tiny).log(), self.k < tiny
        if bool(lost.any()):
            log_k = torch.where(lost, self.batch.log_gram[:, self.n, : self.n], log_k)
        return torch.softmax(log_k.unsqueeze(-1) * sharpness, dim=1)

    @cached_property
    def plain(self) -> Spectrum:
        """K = Q diag(m) Qᵀ, seen by y and k."""
        m, Q = self.eigen
        return Spectrum(m.clamp_min(0), _project(Q, self.k) * _project(Q, self.y))

    @cached_property
    def eigen(self) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B n n"]]:
        """Eigenvalues of K, increasing, and its eigenvectors."""
        return _eigh(self.K)

    @cached_property
    def rounding(self) -> Float[Tensor, "B 1"]:
        """Eigenvalues of K up to this are 0: n eps times the largest."""
        return self.n * torch.finfo(self.K.dtype).eps * self.plain.values[:, -1:]

    @cached_property
    def in_weights(
        self,
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B n"], Float[Tensor, "B 1"], Float[Tensor, "B 1"]]:
        """XᵀX + lam I on the span of the examples: eigenvalues s, the components g of the solution, lo and hi of s.

        Components that are rounding (n above the rank of K) have g = 0 and stand at hi.
        """
        m = self.plain.values
        inside = m > self.rounding
        hi = m[:, -1:] + self.lam
        s = torch.where(inside, m + self.lam, hi)
        g = torch.where(inside, self.plain.weights / s, 0)
        return torch.where(hi > 0, s, 1), g, s.amin(-1, keepdim=True), torch.where(hi > 0, hi, 1)

    @cached_property
    def ridged(self) -> Spectrum:
        """K + lam I, seen by y and k."""
        weights = self.plain.weights
        if self.lam == 0:  # then the inverse is that on the span of the examples: the solution of minimum norm
            weights = torch.where(self.plain.values > self.rounding, weights, 0)
        return Spectrum(_above_rounding(self.plain.values + self.lam), weights)

    @cached_property
    def row_sum(self) -> Spectrum:
        """D^-1/2 (K + lam I) D^-1/2 = U diag(s) Uᵀ, seen by D^-1/2 y and D^-1/2 k."""
        r = self.D.rsqrt()
        s, U = _eigh(r.unsqueeze(-1) * self.A * r.unsqueeze(-2))
        # s >= lam / max D in exact arithmetic (Rayleigh); rounding must not push it to 0 or below.
        s = _above_rounding(torch.maximum(s, self.lam / self.D.amax(-1, keepdim=True)))
        return Spectrum(s, _project(U, r * self.k) * _project(U, r * self.y))

    @cached_property
    def smoother(self) -> Spectrum:
        """D^-1/2 K D^-1/2 = U diag(s) Uᵀ with s in [0, 1]: the averaging matrix D⁻¹K, seen by y and k / sum k."""
        r = self.D.rsqrt()
        s, U = _eigh(r.unsqueeze(-1) * self.K * r.unsqueeze(-2))
        average = self.average(self.k.new_ones(1)).squeeze(-1)
        return Spectrum(s.clamp(0, 1), _project(U, r * average) * _project(U, self.y / r))

    @cached_property
    def exact(self) -> Float[Tensor, "B"]:
        """k · (K + lam I)⁻¹ y."""
        return self.batch.exact[:, self.n - 1]


def _eigh(matrix: Float[Tensor, "B n n"]) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B n n"]]:
    """torch.linalg.eigh. Beyond n = 32 CUDA takes a batch matrix by matrix: there the CPU's cores do it."""
    if not matrix.is_cuda or matrix.shape[-1] <= 32:
        with one_thread():
            values, vectors = torch.linalg.eigh(matrix)
        return values, vectors
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        parts = list(workers.map(torch.linalg.eigh, matrix.cpu().chunk(cores)))
    values, vectors = (torch.cat(part).to(matrix.device) for part in zip(*parts, strict=True))
    return values, vectors


def _above_rounding(s: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
    """Eigenvalues, increasing, none below the rounding of the largest: divided by less, rounding is all one sees.

    A ridge as small as that does nothing in fewer than 1 / eps steps, so that every step a solver takes is right.
    """
    return torch.maximum(s, torch.finfo(s.dtype).eps * s[:, -1:])


def _project(basis: Float[Tensor, "B n n"], vector: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
    return (basis.mT @ vector.unsqueeze(-1)).squeeze(-1)
