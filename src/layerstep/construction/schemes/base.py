"""What a scheme is: a frozen value that knows its blocks, its certificate and what it demands of a prompt."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from layerstep.construction.blocks import Block
from layerstep.construction.certificate import Certificate, Constant, norm, underflow
from layerstep.construction.problem import Precondition, Problem
from layerstep.construction.steps import ChebyshevSteps, ConstantSteps, Steps
from layerstep.construction.stream import Stream
from layerstep.errors import in_words, require

MOST_ITERATIONS = 10**6  # of a network that is built block by block
# Where no error is asked for, the sink leaks this fraction: below what float64 rounding does to the same numbers.
_LEAK = 2.0**-43
# Errors below this fraction of B_norm are asked for by mistake, and their logarithms and inverses leave float64.
_LEAST_TARGET = 1e-250


@dataclass(frozen=True)
class Blocks:
    """`iterations[l]` ends with w_{l+1} in the stream; `readout` writes the prediction to y of the queries.

    whole: the read-out changes the training tokens too, and the w that belongs to its prediction is there after it.
    """

    iterations: list[list[Block]]
    readout: list[Block]
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Scheme(ABC):
    """A network of L iterations for `problem`."""

    problem: Problem
    L: int

    name: ClassVar[str]
    #: The options that this scheme alone reads, with the values that ask for nothing.
    options: ClassVar[dict[str, Any]] = {}
    # Prompts shorter than N, several queries at once, shifted inputs: spline networks take none of these.
    flexible: ClassVar[bool]
    #: What to do where a prediction says nothing, of schemes that may fail on a prompt.
    failure: ClassVar[str] = ""
    #: Does it compute a kernel that is a sum of Gaussians?
    mixtures: ClassVar[bool] = False
    #: Certified, not built?
    too_large: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def conditions(cls, problem: Problem, *, error: float | None, L: int | None, **options: Any) -> list[Precondition]:
        """What has to be given, and what not, before a network can be planned."""

    @classmethod
    @abstractmethod
    def for_error(cls, problem: Problem, error: float, *, eta: float | None = None, **options: Any) -> Scheme:
        """The network with |out - f*(q)| <= error for all |y_i| <= B_y, with steps of constant size eta if given."""

    @classmethod
    @abstractmethod
    def of_depth(cls, problem: Problem, L: int, *, eta: float | None = None, **options: Any) -> Scheme:
        """The network of L iterations, whatever that guarantees."""

    @property
    def stream(self) -> Stream:
        """The rows of a token; a scheme may have some of its own."""
        return Stream(self.problem.d)

    @abstractmethod
    def blocks(self) -> Blocks: ...

    def counts(self) -> dict[str, int]:
        """What the certificate counts, without building: of schemes that can be too large."""
        raise NotImplementedError

    @abstractmethod
    def certificate(self, counts: dict[str, int]) -> Certificate: ...

    @abstractmethod
    def promised(self, y: Tensor, radius: float, dtype: torch.dtype) -> float | None:
        """The a-priori bound for these labels with rounding, infinite where that may be anything; None without one.

        radius: the largest |x_i - mean| / v of the examples.
        """

    @abstractmethod
    def rounding(self, u: float) -> float:
        """About the error that unit roundoff u adds to a prediction; the theorems know exact arithmetic only."""

    def demands(self, x: Tensor, y: Tensor, xq: Tensor) -> list[Precondition]:
        """What a prompt must meet beyond its shapes, of schemes that are not flexible."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class SinkScheme(Scheme):
    """Shared by `compact` and `exact`: L steps of `steps`, a sink of weight a in the read-out, no splines.

    Both are linear in the labels, take any number n <= N of training tokens, and need no bound on inputs,
    labels or coefficients. B_y only turns the bound, a multiple of |y|, into a number.
    """

    steps: Steps
    a: float

    flexible: ClassVar[bool] = True
    #: Of a guaranteed error, what the iteration and the sink are first allowed to take.
    shares: ClassVar[tuple[float, float]]

    @classmethod
    def of_depth(cls, problem: Problem, L: int, *, eta: float | None = None, **options: Any) -> SinkScheme:
        """L iterations, whatever that guarantees: Chebyshev coefficients, or the constant step eta."""
        lo, hi = cls.spectrum(problem, **options)
        # Where lam swallows N the interval is one number, and the steps divide by its width.
        hi = max(hi, lo * (1 + 2.0**-49))
        steps = ChebyshevSteps(lo=lo, hi=hi) if eta is None else ConstantSteps(lo=lo, hi=hi, eta=eta)
        return cls(problem=problem, L=L, steps=steps, a=problem.N / cls.leak(problem, _LEAK), **options)

    @staticmethod
    @abstractmethod
    def spectrum(problem: Problem, **options: Any) -> tuple[float, float]:
        """An interval that holds the eigenvalues of the iteration's operator, for any prompt of n <= N points."""

    @classmethod
    def for_error(cls, problem: Problem, error: float, *, eta: float | None = None, **options: Any) -> SinkScheme:
        """As many iterations as guarantee |out - f*(q)| <= error for all |y_i| <= B_y, and a sink to match."""
        scheme, N, target = cls.of_depth(problem, 1, eta=eta, **options), problem.N, error / problem.B_norm
        least = _LEAST_TARGET * problem.B_norm
        require(target > _LEAST_TARGET, "error", error, f"above {least:.2g}", "Give B_y, or ask for a larger error.")
        missed = problem.kernel_bound
        allowed = f"above {missed * problem.B_norm:.2g}, what the Gaussians may miss of the kernel"
        require(target > missed, "error", error, allowed, "Fit the kernel with a smaller error.")
        target -= missed
        phi, delta = (share * target for share in cls.shares)
        phi, delta = min(0.9, phi), min(0.5, cls.leak(problem, delta))
        while cls.relative_bound(problem, 0.0, delta) >= target:
            delta /= 2
        L = max(1, scheme.steps.needed(phi))
        allowed = f"at most {MOST_ITERATIONS:,}, which can be built"
        remedy = "Ask for a larger error, a larger lam or a larger eta."
        require(L <= MOST_ITERATIONS, "L", f"{in_words(L)} iterations", allowed, remedy)
        L = math.ceil(L)
        while cls.relative_bound(problem, scheme.steps.contraction(L), delta) > target:
            L += 1
        return replace(scheme, L=L, a=N / delta)

    @classmethod
    def conditions(cls, problem: Problem, *, error: float | None, L: int | None, **options: Any) -> list[Precondition]:
        return [
            Precondition(
                (error is None) != (L is None),
                f"error = {error} and L = {L}",
                "given, one of the two" if error is None else "one of the two, not both",
                "error asks for a guarantee, L for a number of iterations.",
            ),
            Precondition(
                error is None or problem.B_norm < math.inf,
                "B_y = None",
                "the largest |y_i| when an error is asked for",
                "The guaranteed error is a multiple of it.",
            ),
        ]

    @staticmethod
    @abstractmethod
    def relative_bound(problem: Problem, phi: float, delta: float) -> float:
        """The bound divided by B_norm, for contraction phi and leakage delta = N / a."""

    @classmethod
    def leak(cls, problem: Problem, share: float) -> float:
        """A leakage N / a that costs about this share of B_norm."""
        return share

    def bound(self, B_norm: float) -> float | None:
        phi, delta = self.steps.contraction(self.L), self.problem.N / self.a
        if B_norm == math.inf or not (phi < 1 and delta < 1):
            return None
        return B_norm * (self.relative_bound(self.problem, phi, delta) + self.problem.kernel_bound)

    @abstractmethod
    def constants(self) -> tuple[Constant, ...]:
        """The numbers behind the bound, in the words of this scheme."""

    def certificate(self, counts: dict[str, int]) -> Certificate:
        B_norm = self.problem.B_norm
        known = B_norm < math.inf
        return Certificate(
            scheme=self.name,
            bound=self.bound(B_norm),
            trivial=B_norm / 2 if known else None,
            L=self.L,
            **counts,
            assumptions=f"n <= N training tokens; |y_i| <= B_y{self.problem.within_reach}; exact arithmetic",
            constants=(
                *self.constants(),
                *self.problem.kernel_constants(),
                *((Constant("B_norm", B_norm, "largest |y| / √lam, B_y √(N / lam)"),) if known else ()),
            ),
        )

    def promised(self, y: Tensor, radius: float, dtype: torch.dtype) -> float | None:
        """The theorem's bound with B_norm = |y| / √lam, and B_norm (hi / lo) noise for the rounding of the network.

        `noise` is the relative error of attention weights and labels: a logit is the sum of terms of size radius² and
        log a, a weight is at least 1 / a, and what is below the least number of the type is lost. The iteration
        amplifies it by hi / lo; where that passes 1/4, the rounded system may not be definite. The constants in
        `noise` are not proved but generous: `make certify` looks for predictions outside.
        """
        N, lam, kernel, size = self.problem.N, self.problem.lam, self.problem.kernel, norm(y.double())
        bound = self.bound(size / math.sqrt(lam))
        if bound is None or size == 0:
            return None if bound is None else underflow(N, lam)
        u = torch.finfo(dtype).eps / 2
        noise = u * (8 + math.sqrt(N) + abs(math.log(self.a)))
        lost = self.a + math.sqrt(N) * (1 + self.steps.hi) / size
        for weight, part in kernel.parts:
            of_logit = 4 * u * (radius * kernel.v / part.v) ** 2
            # Beyond 1 a weight of attention may be anything; the sum below then is too large to promise.
            noise += weight * of_logit * math.exp(min(of_logit, 100.0))
            lost += weight / part.v / part.v
        noise += 2 * u * torch.finfo(dtype).tiny * lost
        relative = noise * self.steps.hi / self.steps.lo
        return bound + relative * size / math.sqrt(lam) + underflow(N, lam) if relative <= 0.25 else math.inf
