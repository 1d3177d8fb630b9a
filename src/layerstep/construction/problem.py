"""What a network is constructed for: a `Problem` that checks itself once, and preconditions listed all at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.construction.certificate import Constant
from layerstep.construction.kernels import Gaussian, Kernel
from layerstep.errors import InputError, as_float, quoted, require, require_count, require_positive, require_square

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
class Problem:
    """Predict f*(q) = k_q·(K + lam I)^-1 y from at most N examples in dimension d, every |x| <= B_x, |y_i| <= B_y.

    B_x and B_y are infinite where they are not known. scales: what each coordinate of an input is divided by first,
    so that everything here is about the quotients; B_x and the length scale of the kernel too.
    """

    d: int
    N: int
    kernel: Kernel
    lam: float
    B_x: float = math.inf
    B_y: float = math.inf
    scales: tuple[float, ...] | None = None

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
        if self.scales is not None:
            require(len(self.scales) == self.d, "v", f"{len(self.scales)} numbers", f"1 or d = {self.d} numbers")
            require_square(**{f"v[{i}]": scale for i, scale in enumerate(self.scales)})
            object.__setattr__(self, "scales", tuple(float(scale) for scale in self.scales))

    def scaled(self, x: Float[Tensor, "*B n d"]) -> Float[Tensor, "*B n d"]:
        """Inputs as the kernel sees them, each coordinate divided by its scale."""
        return x if self.scales is None else x / x.new_tensor(self.scales)

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
    def gaussian(self) -> Gaussian:
        """The kernel, for schemes that know one Gaussian only."""
        [(_, kernel)] = self.kernel.parts
        return kernel

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
    def kernel_bound(self) -> float:
        """e √(N / lam) (1 + √(N / lam) / 2): what Gaussians within e of the kernel may cost, divided by |y| / √lam.

        With K, k_q of the kernel, K', k'_q of the Gaussians, w = (K + lam I)^-1 y and w' the same of K':
        k_q·w - k'_q·w' = (k_q - k'_q)·w - k'_q·(K' + lam I)^-1 (K - K') w. Every entry of the differences is at most
        e, so |k_q - k'_q| <= √N e and |K - K'| <= N e; |w| <= |y| / lam, and |(K' + lam I)^-1 k'_q| <= 1 / 2√lam.
        """
        root = math.sqrt(self.N / self.lam)
        return (self.kernel.error if self.is_within_reach else self.kernel.beyond) * root * (1 + root / 2)

    @property
    def is_within_reach(self) -> bool:
        """Are all inputs within B_x nearer to each other than the kernel was fitted for?"""
        return self.kernel.reach == math.inf or 2 * self.B_x <= self.kernel.reach * (1 + 1e-12)

    @property
    def within_reach(self) -> str:
        if self.kernel.reach == math.inf:
            return ""
        return f"; no two points farther apart than {self.kernel.reach:g}" if self.is_within_reach else ""

    def kernel_constants(self) -> tuple[Constant, ...]:
        """Of a kernel that is a sum of Gaussians."""
        if isinstance(self.kernel, Gaussian):
            return ()
        parts = self.kernel.parts
        return (
            Constant("gaussians", len(parts), "that are added, one for each head"),
            Constant("kernel_error", self.kernel.error, "largest distance of their sum from the kernel, proved"),
            Constant("kernel_bound", self.kernel_bound, "what that may cost, in units of |y| / √lam"),
        )

    @property
    def B_norm(self) -> float:
        """B_y √(N / lam), the largest |y| / √lam."""
        return self.B_y * math.sqrt(self.N / self.lam)
