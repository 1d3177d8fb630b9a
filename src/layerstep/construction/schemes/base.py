"""What a scheme is: a frozen value that knows its blocks, its certificate and what it demands of a prompt."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from layerstep.construction.blocks import Block
from layerstep.construction.certificate import Certificate, Constant, Precondition, norm
from layerstep.construction.steps import Steps
from layerstep.construction.stream import Stream
from layerstep.errors import require

# Iterations of a network that is built block by block.
_MOST = 10**6


@dataclass(frozen=True)
class Blocks:
    """`iterations[l]` ends with w_{l+1} in the stream; `readout` writes the prediction to y of the queries."""

    iterations: list[list[Block]]
    readout: list[Block]

    def all(self) -> list[Block]:
        return [block for group in self.iterations for block in group] + self.readout


@dataclass(frozen=True, kw_only=True)
class Scheme(ABC):
    """A network for prompts of N examples in dimension d, Gaussian kernel of bandwidth v, ridge lam."""

    d: int
    N: int
    v: float
    lam: float

    # Prompts shorter than N, several queries at once, shifted inputs: spline networks take none of these.
    flexible: ClassVar[bool]

    @property
    def stream(self) -> Stream:
        return Stream(self.d)

    @abstractmethod
    def blocks(self) -> Blocks: ...

    def counts(self) -> dict[str, int] | None:
        """What `tally` would count, where it is known without building; else None."""
        return None

    @abstractmethod
    def certificate(self, counts: dict[str, int]) -> Certificate: ...

    @abstractmethod
    def promised(self, y: Tensor) -> float | None:
        """The a-priori bound for these labels."""

    @abstractmethod
    def rounding(self, u: float) -> float:
        """About the error that unit roundoff u adds to a prediction; the theorems know exact arithmetic only."""

    def demands(self, x: Tensor, y: Tensor, xq: Tensor) -> list[Precondition]:
        """What a prompt must meet, beyond its shapes."""
        return []


@dataclass(frozen=True, kw_only=True)
class SinkScheme(Scheme):
    """Shared by `compact` and `exact`: L steps of `steps`, a sink of weight a in the read-out, no splines.

    Both are linear in the labels, take any number n <= N of training tokens, and need no bound on inputs,
    labels or coefficients. B_y only turns the bound, a multiple of |y|, into a number.
    """

    B_y: float | None
    steps: Steps
    L: int
    a: float

    name: ClassVar[str]
    flexible: ClassVar[bool] = True

    @property
    def B_norm(self) -> float | None:
        """B_norm = B_y √(N / lam), the largest |y|_2 / √lam."""
        return None if self.B_y is None else self.B_y * math.sqrt(self.N / self.lam)

    @staticmethod
    @abstractmethod
    def relative_bound(phi: float, delta: float) -> float:
        """The bound divided by B_norm, for contraction phi and leakage delta = N / a."""

    def bound(self, B_norm: float | None) -> float | None:
        phi, delta = self.steps.contraction(self.L), self.N / self.a
        if B_norm is None or not (phi < 1 and delta < 1):
            return None
        return B_norm * self.relative_bound(phi, delta)

    @abstractmethod
    def constants(self) -> tuple[Constant, ...]:
        """The numbers behind the bound, in the words of this scheme."""

    def certificate(self, counts: dict[str, int]) -> Certificate:
        B_norm = self.B_norm
        return Certificate(
            scheme=self.name,
            bound=self.bound(B_norm),
            trivial=None if B_norm is None else B_norm / 2,
            L=self.L,
            **counts,
            assumptions="n <= N training tokens; |y_i| <= B_y; exact arithmetic",
            constants=(
                *self.constants(),
                *(() if B_norm is None else (Constant("B_norm", B_norm, "largest |y| / √lam, B_y √(N / lam)"),)),
            ),
        )

    def promised(self, y: Tensor) -> float | None:
        return self.bound(norm(y.double()) / math.sqrt(self.lam))


def depth_and_sink(
    relative_bound: Callable[[float, float], float], steps: Steps, N: int, target: float, phi: float, delta: float
) -> tuple[int, float]:
    """L and a = N / delta with which the bound over B_norm is at most `target`, from first guesses phi, delta."""
    phi, delta = min(0.9, phi), min(0.5, delta)
    while relative_bound(0.0, delta) >= target:
        delta /= 2
    L = max(1, steps.steps(phi))
    remedy = "Ask for a larger error, a larger lam or a larger eta."
    require(L <= _MOST, "L", f"{L:,} iterations", f"at most {_MOST:,}, which can be built", remedy)
    while relative_bound(steps.contraction(L), delta) > target:
        L += 1
    return L, N / delta


def tally(blocks: Blocks) -> dict[str, int]:
    """Depth, width, heads and parameters of a network, counted."""
    every = Counter(blocks.all())
    weights = {block: list(block.parameters()) for block in every}
    sizes = {block: sum(weight.numel() for weight in own) for block, own in weights.items()}
    return {
        "depth": every.total(),
        "width": max((block.mlp.width for block in every if block.mlp is not None), default=0),
        "heads": max((len(block.attention.masks) for block in every if block.attention is not None), default=0),
        "parameters": sum(sizes[block] * times for block, times in every.items()),
        "stored": sum({weight: weight.numel() for own in weights.values() for weight in own}.values()),
    }
