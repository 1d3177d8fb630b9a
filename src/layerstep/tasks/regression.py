"""In-context linear regression: a weight vector for each prompt, from a Gaussian, a sparse one, or a pool."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import as_float, quoted, require, require_count, require_kind, require_seed
from layerstep.memory import require_memory
from layerstep.tasks.base import KernelTask, require_fits
from layerstep.tasks.posterior import linear_means, pool_means, posterior_means, sparse_means
from layerstep.tasks.prompts import BLOCK, Prompts, as_float_tensor, normals

#: Streams of `normals`: the coordinates of sparse weights or the place in the pool; the pool.
CHOICE, POOL = 7, 8
MOST_SUPPORTS = 20_000
#: A ridge below this share of mean |x|² is too small for a Cholesky factor to ten digits.
SMALL_RIDGE = 1e-4


@dataclass(frozen=True, kw_only=True)
class LinearRegression(KernelTask):
    """x_i ~ N(mean, covariance), θ ~ prior, y_i = x_i · θ + sigma ε_i for i = 1..N+1. The defaults are Garg et al.'s.

    covariance: one variance, d of them, or a d x d matrix; mean: one number or d. prior of θ: "gaussian", N(0, I);
    "sparse:k", k coordinates N(0, 1), any with equal probability, the others 0. pool: a prompt's θ is one of a pool
    instead, of M weights drawn from the prior with `pool_seed`, or of rows of weights given.

    With the Gaussian prior exact is ridge regression with lam = sigma², without noise the solution of minimum norm.
    With the others it is the posterior mean, which is not linear in the labels; solvers still solve the ridge system.
    """

    type: ClassVar[str] = "linear-regression"
    kernel: ClassVar[str] = "linear"
    inputs: ClassVar[str] = "gaussian"

    d: int = 20
    N: int = 40
    sigma: float = 0.0
    covariance: Any = 1.0
    mean: Any = 0.0
    prior: str = "gaussian"
    pool: Any = None
    pool_seed: int = 0

    def __post_init__(self) -> None:
        require_count(d=self.d, N=self.N)
        largest = 1e75  # solvers' sums are of size sigma⁴
        inside = 0 <= as_float(self.sigma) <= largest
        require(inside, "sigma", quoted(self.sigma), f"a number from 0 to {largest:g}", "0: labels without noise.")
        require(self.sigma == 0 or self.sigma >= 1e-150, "sigma", self.sigma, "0, or at least 1e-150")
        require_seed(pool_seed=self.pool_seed)
        coerced = {"d": int(self.d), "N": int(self.N), "sigma": float(self.sigma), "pool_seed": int(self.pool_seed)}
        coerced |= {"covariance": self._covariance(), "mean": _numbers("mean", self.mean, (self.d,))}
        self._sparsity()
        coerced["pool"] = self._pool()
        for name, value in coerced.items():
            object.__setattr__(self, name, value)

    def _covariance(self) -> Any:
        """What was given as a number or as tuples, if it is a covariance that is not 0."""
        found = _numbers("covariance", self.covariance, (self.d,), (self.d, self.d))
        C = torch.tensor(found, dtype=torch.float64)
        lost = 1e-12 * float(C.abs().max())
        if C.ndim == 2:
            symmetric = float((C - C.T).abs().max()) <= lost
            require(symmetric, "covariance", C, "symmetric", "Give (C + C.T) / 2.")
            C = torch.linalg.eigvalsh(C)
        least = float(C.min())
        wanted = "without variances below 0" if C.ndim == 0 or isinstance(found[0], float) else "positive semi-definite"
        require(least >= -lost, "covariance", f"{least:.3g} as its least eigenvalue", wanted)
        spread = float(C.max()) > 0
        require(spread, "covariance", 0, "above 0 in one direction or more", "Otherwise all inputs are one point.")
        return found

    def _sparsity(self) -> int | None:
        """k of "sparse:k", None for a Gaussian prior."""
        given = self.prior if isinstance(self.prior, str) else ""
        kind, _, text = given.partition(":")
        k = int(text) if text.isdigit() and len(text) < 10 else 0
        ok = given == "gaussian" or (kind == "sparse" and 1 <= k <= self.d)
        allowed = f"'gaussian', or 'sparse:k' with k from 1 to d = {self.d}"
        require(ok, "prior", quoted(self.prior), allowed, "A finite set of weights is pool=.")
        return k or None

    def _pool(self) -> Any:
        if self.pool is None:
            return None
        if isinstance(self.pool, int) or getattr(self.pool, "ndim", 1) == 0:
            require_count(pool=self.pool)
            require_memory("pool", self.pool, 8 * int(self.pool) * self.d, "Take a smaller pool.")
            return int(self.pool)
        rows = as_float_tensor("pool", self.pool, 2)
        ok = len(rows) > 0 and rows.shape[1] == self.d
        require(ok, "pool", list(rows.shape), f"the number of weights, or rows of d = {self.d} numbers, one or more")
        return tuple(map(tuple, rows.tolist()))

    def __repr__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        kept = {name: value for name, value in shown.items() if name in ("d", "N", "sigma") or value != _DEFAULTS[name]}
        return f"LinearRegression({', '.join(f'{name}={_short(value)}' for name, value in kept.items())})"

    @property
    def weights(self) -> Float[Tensor, "P d"] | None:
        """The pool of weights, where there is one: `DiscreteMMSE(pool=task.weights)` is exact."""
        if self.pool is None:
            return None
        if isinstance(self.pool, tuple):
            return torch.tensor(self.pool, dtype=torch.float64)
        drawn = (normals(self.pool_seed, 0, stream, (self.pool, self.d)) for stream in (POOL, CHOICE))
        return self._from_prior(*drawn)

    @property
    def root(self) -> Float[Tensor, "d d"]:
        """The symmetric root of the covariance."""
        C = torch.tensor(self.covariance, dtype=torch.float64)
        if C.ndim < 2:
            return C.expand(self.d).sqrt().diag()
        values, vectors = torch.linalg.eigh(C)
        return (vectors * values.clamp_min(0).sqrt()) @ vectors.T

    def gram(self, x: Float[Tensor, "*batch n d"], z: Float[Tensor, "*batch m d"]) -> Float[Tensor, "*batch n m"]:
        """Inner products x · z: the covariance of x · θ and z · θ."""
        return x @ z.mT

    def draw_inputs(self, normals: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        root, mean = _input_map(self)
        x = normals * root.to(normals) if root.ndim < 2 else normals @ root.to(normals)
        return x + mean.to(x)

    def draw_function(self, x: Float[Tensor, "B M d"], seed: int, step: int) -> Float[Tensor, "B M"]:
        theta = self.draw_weights(*(normals(seed, step, stream, (len(x), self.d)) for stream in (1, CHOICE)))
        return (x @ theta.unsqueeze(-1)).squeeze(-1)

    def draw_weights(self, z: Float[Tensor, "B d"], choice: Float[Tensor, "B d"]) -> Float[Tensor, "B d"]:
        """θ of each prompt, from two rows of standard normals."""
        if self.pool is None:
            return self._from_prior(z, choice)
        pool = _pool_of(self, str(z.device)).to(z)
        place = (torch.special.ndtr(choice[:, 0]) * len(pool)).long().clamp_max(len(pool) - 1)
        return pool[place]

    def _from_prior(self, z: Float[Tensor, "B d"], choice: Float[Tensor, "B d"]) -> Float[Tensor, "B d"]:
        k = self._sparsity()
        if k is None:
            return z
        chosen = torch.zeros_like(z).scatter_(1, choice.topk(k, dim=1).indices, 1)
        return z * chosen

    @property
    def normals_shape(self) -> tuple[int, int]:
        """N + 1 rows of an input and its noise, one of the weights, one of what chooses among weights."""
        return self.N + 3, self.d + 1

    def draw(
        self, z: Float[Tensor, "B R C"], seen: Float[Tensor, "B 1 d"] | None = None
    ) -> tuple[Float[Tensor, "B M d"], Float[Tensor, "B M"]]:
        """Training prompts from normals of `normals_shape`, on any device; `seen` coordinates are not 0."""
        theta = self.draw_weights(z[:, -2, :-1], z[:, -1, :-1])
        x = self.draw_inputs(z[:, :-2, :-1])
        x = x if seen is None else x * seen
        return x, (x @ theta.unsqueeze(-1)).squeeze(-1) + self.sigma * z[:, :-2, -1]

    def least_sigma(self, dtype: torch.dtype) -> float:
        """0: labels are made of weights, not of a factor of K."""
        return 0.0

    def ridge_regression(
        self, x: Float[Tensor, "B M d"], y: Float[Tensor, "B M"], gram: Float[Tensor, "B M M"] | None = None
    ) -> Float[Tensor, "B M"]:
        """x_{n+1} · θ_n, n = 0..N, θ_n = (XᵀX + lam I)⁻¹ Xᵀy; without noise that of minimum norm."""
        if self.lam <= SMALL_RIDGE * float(x.square().sum(-1).mean()):
            return linear_means(x, y, self.lam)
        return posterior_means(self.gram(x, x) if gram is None else gram, y, self.lam)

    def posterior_mean(self, x: Float[Tensor, "B M d"], y: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
        """E[x_{n+1} · θ | n pairs], n = 0..N."""
        k = self._sparsity()
        if self.pool is not None:
            pool = _pool_of(self, "cpu").to(x)
            step = max(1, BLOCK // (len(pool) * y.shape[1]))
            return torch.cat([pool_means(*part, self.lam, pool) for part in _split(x, y, step)])
        if k is None:
            return self.ridge_regression(x, y)
        count = math.comb(self.d, k)
        remedy = "ls.exact sums over all supports. Compare with ls.SOLVERS['ridge'], or with the labels."
        require(count <= MOST_SUPPORTS, "prior", f"{self.prior}, which has {count:,} supports", "fewer", remedy)
        step = max(1, BLOCK // (8 * count * k * k))
        return torch.cat([sparse_means(*part, self.lam, k) for part in _split(x, y, step)])

    def exact(self, prompts: Prompts) -> Float[Tensor, "B N"]:
        """The posterior mean for n = 1..N; a warning where there is no noise and labels of the user's have some."""
        require_fits(prompts, self)
        if self.sigma == 0 and (left := _left_by_least_squares(prompts)) > 1e-6:
            warnings.warn(
                f"sigma = 0, but no weights fit these labels: least squares leaves {left:.2g} of their size. "
                "exact is then least squares, far off where n is near d. Give the task the sigma that the labels have.",
                stacklevel=3,
            )
        found = super().exact(prompts)
        size = f"inputs up to {float(prompts.x.abs().max()):.3g} and labels up to {float(prompts.y.abs().max()):.3g}"
        allowed = f"of a size whose squares, and the quotients of these, are numbers of {found.dtype}"
        require(bool(found.isfinite().all()), "prompts", size, allowed, "Divide inputs or labels by their size.")
        return found

    def features(self, prompts: Prompts, contexts: Sequence[int]) -> Float[Tensor, "F B C"]:
        """The query's coordinates times those of Xᵀy, and times those of the ridge regression θ: q_j (Xᵀy)_j, q_j θ_j.

        They see an answer that takes each coordinate at a speed of its own.
        """
        columns = []
        for n in contexts:
            X, q = prompts.x[:, :n], prompts.x[:, n]
            b = torch.einsum("bnd,bn->bd", X, prompts.y[:, :n])
            theta = (torch.linalg.pinv(X.mT @ X + self.lam * torch.eye(self.d).to(X), hermitian=True) @ b[..., None])[
                ..., 0
            ]
            columns.append(torch.cat([q * b, q * theta], dim=1).T)
        return torch.stack(columns, dim=-1)

    def to_dict(self) -> dict[str, Any]:
        """The fields that are not the defaults of later versions, and the type."""
        return {"type": self.type, **{field.name: _as_lists(getattr(self, field.name)) for field in fields(self)}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LinearRegression:
        """The task of `to_dict`."""
        from layerstep.tasks.task import from_fields

        require_kind("task", values, Mapping, "Such as LinearRegression().to_dict().")
        return from_fields(cls, {name: value for name, value in values.items() if name != "type"}, "task")


_DEFAULTS = {field.name: field.default for field in fields(LinearRegression)}


@functools.lru_cache(maxsize=64)
def _input_map(task: LinearRegression) -> tuple[Tensor, Tensor]:
    """The root of the covariance, as numbers where it is diagonal, and the mean."""
    C = torch.tensor(task.covariance, dtype=torch.float64)
    return (C.sqrt() if C.ndim < 2 else task.root), torch.tensor(task.mean, dtype=torch.float64)


@functools.lru_cache(maxsize=8)
def _pool_of(task: LinearRegression, device: str) -> Tensor:
    pool = task.weights
    assert pool is not None
    return pool.float().to(device) if device.startswith("mps") else pool.to(device)  # MPS has no float64


def _split(x: Tensor, y: Tensor, step: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(x.split(step), y.split(step), strict=True))


def _left_by_least_squares(prompts: Prompts) -> float:
    """Root mean square of what no weights explain of the labels, over that of the labels."""
    U, s, _ = torch.linalg.svd(prompts.x, full_matrices=False)
    cut = max(prompts.x.shape[1:]) * torch.finfo(s.dtype).eps * s[:, :1]
    seen = (U.mT @ prompts.y.unsqueeze(-1)).squeeze(-1) * (s > cut)
    left = prompts.y.square().sum() - seen.square().sum()
    size = prompts.y.square().sum()
    lost = 100 * torch.finfo(s.dtype).eps
    return float((left / size).clamp_min(0).sqrt()) if float(size) > 0 and float(left) > lost * float(size) else 0.0


def _numbers(argument: str, value: Any, *shapes: tuple[int, ...]) -> Any:
    """`value` as a float, or as tuples of one of these shapes."""
    if not math.isnan(as_float(value)) or isinstance(value, float):
        require(abs(as_float(value)) <= 1e100, argument, quoted(value), "a finite number up to 1e100")
        return float(value)
    ndim = getattr(value, "ndim", None)
    if ndim is None:
        nested = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
        ndim = 2 if nested and isinstance(next(iter(value)), Sequence) else 1
    allowed = " or ".join(["one number", *(" x ".join(map(str, shape)) + " numbers" for shape in shapes)])
    require(not isinstance(value, (str, bool, type(None))), argument, quoted(value), allowed)
    found = as_float_tensor(argument, value, int(ndim)).double()
    if found.ndim == 0:
        return _numbers(argument, float(found), *shapes)
    require(tuple(found.shape) in shapes, argument, f"of shape {list(found.shape)}", allowed)
    require(float(found.abs().max()) <= 1e100, argument, found, "numbers up to 1e100")
    rows = found.tolist()
    return tuple(map(tuple, rows)) if found.ndim == 2 else tuple(rows)


def _as_lists(value: Any) -> Any:
    return [_as_lists(each) for each in value] if isinstance(value, tuple) else value


def _short(value: Any) -> str:
    if not isinstance(value, tuple):
        return repr(value)
    return f"<{len(value)} x {len(value[0])}>" if isinstance(value[0], tuple) else f"<{len(value)} numbers>"
