"""What a network is constructed for: a `Problem` that checks itself once, and preconditions listed all at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import InputError, as_float, quoted, require, require_count, require_positive, require_square
from layerstep.tasks.kernels import gaussian

# An attention matrix has (d + 11)² numbers.
_LARGEST_D = 4096


@dataclass(frozen=True)
class Precondition:
    """One condition of a theorem: what was given, what is allowed and why, what to do."""

    ok: bool
    given: str
    allowed: str
    remedy: str


def require_all(what: str, preconditions: Sequence[Precondition]) -> None:
    """Raise one InputError that lists every precondition that fails."""
    failed = [p for p in preconditions if not p.ok]
    if failed:
        lines = [f"{p.given}: must be {p.allowed}. {p.remedy}".rstrip() for p in failed]
        raise InputError(lines[0] if len(lines) == 1 else "\n  ".join([f"{what}: {len(lines)} reasons.", *lines]))


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """K(x, x') = exp(-|x - x'|² / 2v²)."""

    v: float

    def __post_init__(self) -> None:
        require_square(v=self.v)
        # NumPy's numbers are welcome, but weights and files are made of Python's.
        object.__setattr__(self, "v", float(self.v))

    def __call__(self, x: Float[Tensor, "*batch n d"], z: Float[Tensor, "*batch m d"]) -> Float[Tensor, "*batch n m"]:
        return gaussian(x, z, self.v)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Predict f*(q) = k_q·(K + lam I)^-1 y from at most N examples in dimension d, every |x| <= B_x, |y_i| <= B_y.

    B_x and B_y are infinite where they are not known.
    """

    d: int
    N: int
    kernel: Gaussian
    lam: float
    B_x: float = math.inf
    B_y: float = math.inf

    def __post_init__(self) -> None:
        require_count(1, 2**53, d=self.d, N=self.N)
        require(self.d <= _LARGEST_D, "d", self.d, f"at most {_LARGEST_D:,}: attention matrices have (d + 11)² numbers")
        require_positive(lam=self.lam)
        for name in ("B_x", "B_y"):
            value = getattr(self, name)
            known = 0 < as_float(value) < math.inf
            require(known or (isinstance(value, float) and value == math.inf), name, quoted(value), "a number above 0")
        for name, kind in (("d", int), ("N", int), ("lam", float), ("B_x", float), ("B_y", float)):
            object.__setattr__(self, name, kind(getattr(self, name)))

    def precision(self, dtype: torch.dtype) -> Precondition:
        """Which numbers a network for this problem can be made of."""
        u, lam_0 = torch.finfo(dtype).eps / 2, self.lam / self.N
        return Precondition(
            lam_0 > 4 * u,
            f"dtype = {dtype}",
            f"precise enough for lam / N = {lam_0:.2g} > 4 u = {4 * u:.2g}",
            "Rounded attention weights can make the system indefinite: use float64 or a larger lam.",
        )

    @property
    def lam_0(self) -> float:
        """The ridge per example."""
        return self.lam / self.N

    @property
    def kappa_min(self) -> float:
        """The least kernel value of two inputs within B_x."""
        radius = self.B_x / self.kernel.v
        return math.exp(-2 * radius * radius)

    @property
    def B_norm(self) -> float:
        """B_y √(N / lam), the largest |y| / √lam."""
        return self.B_y * math.sqrt(self.N / self.lam)
