"""scheme="adaptive": the network computes from the prompt which part of the spectrum is large, and removes it.

The top of the spectrum of M = K + lam I is spanned almost exactly by damped polynomials of the inputs, Z. The network
makes Zᵀ M Z a projection by Newton-Schulz steps among the features, V = M Z, and iterates on M - V Vᵀ, whose spectrum
is [lam, hi] with hi far below lam + N: steps of fixed coefficients are few. Coordinates beside the paper's: mu, the
mean input; Z and V, m = C(d + degree, degree) numbers each; cert. Read[g] is the kernel sum through a sink of
`compact`, pair(q, k) h is Σ_j <q_i, k_j> h_j (`gadgets.pairs`).

    centre    mu = mean x
    features  Z = 1 / √(N (N + lam)) exp(-|x - mu|²/2v²) of 1, x - mu and, for degree 2 and 3, products; degree 2 in d
              blocks, products of three from those of two, two of those per block
    image     V = Read[Z] + lam Z
    NS, k     Z <- a_j Z - b_j pair(Z, V) Z, V <- a_j V - b_j pair(V, Z) V; after the last, V <- 0
    image     V = Read[Z] + lam Z, once more
    start     beta = -pair(V, Z) y;  w = c = a_0 (y + beta)
    step      p = -Read[w] + pair(V, V) w;  u = a_l (y + beta + p - lam w) + b_l c, w += u, c = u, p = 0
    residual  p = -Read[w];  c = y + p - lam w, p = 0
    coarse    w += pair(Z, Z) c;  c = 0
    read-out  y of a query = Read[w], p = -Read[w] on examples;  c = y + p - lam w, the residual
    certify   cert of a query = pair(1, c) c / 4 lam = |c|² / 4 lam

refresh=True takes two blocks per step: the residual g of M itself, then the projection of it,

    start     w = pair(Z, Z) y
    step      p = -Read[w];  then p <- p - (1 - shrink) pair(Z, V) (y + p - lam w), u, w, c as above

so that errors of the pairs touch how fast w moves and not where to. float32 needs it.

heads=1 spreads the heads of a block over as many blocks; the two pairs of a Newton-Schulz step then write to 2 m
coordinates of their own, S and T, from which the MLP takes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from layerstep.construction.blocks import MLP, Attention, Block
from layerstep.construction.certificate import Certificate, Constant
from layerstep.construction.gadgets.features import feature_heads
from layerstep.construction.gadgets.kernel_attention import Read
from layerstep.construction.gadgets.linear_step import linear_iterations, linear_map, linear_steps
from layerstep.construction.gadgets.pairs import (
    EXAMPLES,
    QUERIES,
    Head,
    SignPair,
    kernel_heads,
    mean_head,
    together,
)
from layerstep.construction.kernels import Gaussian
from layerstep.construction.problem import Precondition, Problem
from layerstep.construction.schemes.base import MOST_ITERATIONS, Blocks, Scheme
from layerstep.construction.schemes.deflation import (
    DEGREES,
    SMALLEST,
    feature_width,
    monomials,
    newton_schulz,
    poisson_tail,
)
from layerstep.construction.steps import ChebyshevSteps, ConstantSteps, Steps
from layerstep.construction.stream import Stream
from layerstep.errors import in_words, require
from layerstep.memory import require_memory

#: Singular values of the scaled features that Newton-Schulz steps bring to 1, by degree.
LEAST = {1: 0.015, 2: 0.001, 3: 1e-5}


@dataclass(frozen=True)
class Gains:
    """Weights of the sinks, and the size of the signs in a pair: it errs by eps², and by rounding over eps."""

    a: float
    A: float
    eps: float
    feature_eps: float
    shrink: float


#: Of float64, and of the two-block form, which is to work in float32.
_FUSED = Gains(a=2.0**43, A=2.0**43, eps=1e-5, feature_eps=1e-4, shrink=0.0)
_REFRESHED = Gains(a=2.5e4, A=2.5e3, eps=0.03, feature_eps=0.03, shrink=3e-3)


@dataclass(frozen=True, kw_only=True)
class Adaptive(Scheme):
    """|out - f*(q)| <= phi_L B_norm, phi_L the contraction on [lam, hi], if hi is above the deflated spectrum.

    And if every singular value of the scaled features is 0 or at least `least`, and pairs and sinks are exact. Proof.
    The residual stays orthogonal to Z, where the inverse of M - V Vᵀ is the compression of M⁻¹: so no eigenvalue there
    is below lam. The steps multiply the error in the norm of M by phi_L, which starts below |w*|_M <= B_norm, and the
    dual norm of k_q is at most 1. Where hi is not given it is lam + N Q_p(B_x²/v²), Q_p(s) = P(Poisson(s) > p), above
    the spectrum for all inputs within B_x of their mean: features of degree p leave K - K_p of the kernel, the rest of
    its Taylor series, and the trace of that is Σ_i Q_p(|x_i - mu|²/v²).

    None of this is proved for pairs of finite eps and sinks of finite weight: no a-priori promise is made for a
    prompt. What holds for each prediction is its bound, and its certificate from inside.
    """

    steps: Steps
    degree: int
    least: float
    refresh: bool
    heads: int | None = None

    name: ClassVar[str] = "adaptive"
    options: ClassVar[dict[str, Any]] = {"degree": 2, "hi": None, "least": None, "refresh": None, "heads": 2}
    flexible: ClassVar[bool] = True
    mixtures: ClassVar[bool] = True
    failure: ClassVar[str] = (
        "The steps diverge where hi is below the spectrum that the features leave, and stop early where L is small: "
        'give a larger hi (`calibrate_interval`) or L, or use scheme="compact".'
    )

    @classmethod
    def conditions(
        cls,
        problem: Problem,
        *,
        error: float | None,
        L: int | None,
        degree: int = 2,
        hi: float | None = None,
        least: float | None = None,
        refresh: bool | None = None,
        heads: int | None = None,
    ) -> list[Precondition]:
        N, lam, B_x = problem.N, problem.lam, problem.B_x
        within = "B_x, the largest distance of an input from their mean, gives one; so does `calibrate_interval`."
        return [
            Precondition(
                (error is None) != (L is None),
                f"error = {error} and L = {L}",
                "one of the two, not both",
                "error asks for a guarantee under conditions, L for a number of iterations.",
            ),
            Precondition(error is None or problem.B_y < math.inf, "B_y = None", "the largest |y_i| with error", ""),
            Precondition(degree in DEGREES, f"degree = {degree}", "1, 2 or 3", "That of the features."),
            Precondition(
                hi is not None or (B_x < math.inf and isinstance(problem.kernel, Gaussian)),
                "hi = None",
                "the upper end of the spectrum",
                within if isinstance(problem.kernel, Gaussian) else "`calibrate_interval(.., kernel=..)` gives one.",
            ),
            Precondition(
                hi is None or lam < hi <= lam + N, f"hi = {hi}", f"above lam = {lam:g}, at most {lam + N:g}", ""
            ),
            Precondition(
                not refresh or heads is None or heads >= 2,
                f"heads = {heads}",
                "2 or more with refresh",
                "There a pair of heads changes what it reads.",
            ),
            Precondition(
                least is None or SMALLEST <= least <= 0.5,
                f"least = {least}",
                f"from {SMALLEST} to 0.5",
                "Leave it out.",
            ),
        ]

    @classmethod
    def of_depth(
        cls,
        problem: Problem,
        L: int,
        *,
        eta: float | None = None,
        degree: int = 2,
        hi: float | None = None,
        least: float | None = None,
        refresh: bool | None = None,
        heads: int | None = None,
    ) -> Adaptive:
        # 80 square matrices and more, and those of the products of three; one row for each coordinate of a token.
        d, matrices = problem.d, 80 + (problem.d * (problem.d + 1) if degree == 3 else 0)
        rows = 2 * (d + math.comb(d + degree, degree))
        require_memory("d", d, 8 * matrices * rows * rows, 'Take degree=1, or scheme="compact".')
        lo = problem.lam
        if hi is None:
            hi = lo + problem.N * poisson_tail((problem.B_x / problem.kernel.v) ** 2, degree)
        hi = max(hi, lo * (1 + 2.0**-40))
        steps = ChebyshevSteps(lo=lo, hi=hi) if eta is None else ConstantSteps(lo=lo, hi=hi, eta=eta)
        least = LEAST[degree] if least is None else least
        return cls(problem=problem, L=L, steps=steps, degree=degree, least=least, refresh=bool(refresh), heads=heads)

    @classmethod
    def for_error(cls, problem: Problem, error: float, *, eta: float | None = None, **options: Any) -> Adaptive:
        steps = cls.of_depth(problem, 1, eta=eta, **options).steps
        L = max(1, steps.needed(min(0.9, error / problem.B_norm)))
        require(L <= MOST_ITERATIONS, "L", f"{in_words(L)} iterations", f"at most {MOST_ITERATIONS:,}", "")
        return cls.of_depth(problem, math.ceil(L), eta=eta, **options)

    @property
    def gains(self) -> Gains:
        """With weights of the sinks for N tokens, and no more shrinking than leaves the spectrum below hi."""
        N, lam = self.problem.N, self.problem.lam
        base = _REFRESHED if self.refresh else _FUSED
        shrink = min(base.shrink, 0.5 * self.steps.hi / (lam + N))
        return Gains(N * base.a, N * base.A, base.eps, base.feature_eps, shrink)

    @property
    def stream(self) -> Stream:
        m = len(monomials(self.problem.d, self.degree))
        apart = (("S", m), ("T", m)) if self._is_apart else ()
        return Stream(self.problem.d, (("mu", self.problem.d), ("Z", m), ("V", m), ("cert", 1), *apart))

    @property
    def _is_apart(self) -> bool:
        """Are the four heads of a Newton-Schulz step in blocks of their own?"""
        return self.heads is not None and self.heads < 4

    def _attentions(self, *heads: Head) -> list[Attention]:
        """In as many blocks as `heads` of them take, one where that is None."""
        step = self.heads or len(heads)
        return [together(*heads[start : start + step]) for start in range(0, len(heads), step)]

    def _blocks(self, heads: Sequence[Head], mlp: MLP | None = None) -> list[Block]:
        *before, last = self._attentions(*heads)
        return [*(Block(each, None) for each in before), Block(last, mlp)]

    def blocks(self) -> Blocks:
        prepared = [*self._blocks([mean_head(self.stream, "x", "mu")]), *self._features(), *self._orthonormal()]
        a, b = self.steps.coefficients(self.L)
        residual = {"y": 1.0, "p": 1.0, "w": -self.problem.lam}
        if self.refresh:
            prepared += self._blocks(self._pair("Z", "Z", self.stream.copy("y", "w", 1.0)))
            project = self._pair("Z", "V", (self.gains.shrink - 1) * self._to("p", residual))
            read = [*self._attentions(*self._read("w", "p", -1.0)), together(*project)]
            iterations = linear_steps(self.stream, read, residual, a, b)
        else:
            deflated = [*self._read("w", "p", -1.0), *self._pair("V", "V", self.stream.copy("w", "p", 1.0))]
            start = self._attentions(*self._pair("V", "Z", self.stream.copy("y", "beta", -1.0)))
            iterations = linear_iterations(
                self.stream,
                start,
                {"y": 1.0, "beta": 1.0},
                self._attentions(*deflated),
                residual | {"beta": 1.0},
                a,
                b,
            )
        return Blocks([[*prepared, *iterations[0]], *iterations[1:]], self._answer(), whole=True)

    def _features(self) -> list[Block]:
        unit = 1 / math.sqrt(self.problem.N * (self.problem.N + self.problem.lam))  # singular values are then at most 1
        pair = SignPair(stream=self.stream, eps=self.gains.feature_eps, A=self.gains.A)
        groups = feature_heads(pair, feature_width(self.problem.kernel), self.degree, unit)
        return [block for heads in groups for block in self._blocks(heads)]

    def _orthonormal(self) -> list[Block]:
        """V = M Z, then Newton-Schulz steps of both until Zᵀ V is a projection, then V = M Z once more."""
        stream, lam = self.stream, self.problem.lam
        image = self._blocks(self._read("Z", "V", 1.0), linear_map(stream, {"V": {"Z": lam}}))
        coefficients, blocks = newton_schulz(self.least), [*image]
        to_Z, to_V = ("S", "T") if self._is_apart else ("Z", "V")
        for step, (a, b) in enumerate(coefficients, start=1):
            keep = a if step < len(coefficients) else 0.0
            # What is read is Z and V before the step; with S and T the MLP scales the two summands apart.
            factor_Z, factor_V = (-b, -b * keep / a) if self._is_apart else (-b / a, -b / a)
            heads = [
                *self._pair("Z", "V", stream.copy("Z", to_Z, factor_Z)),
                *self._pair("V", "Z", stream.copy("V", to_V, factor_V)),
            ]
            update = {"Z": {"Z": a - 1}, "V": {"V": keep - 1}}
            if self._is_apart:
                update = {
                    "Z": {"Z": a - 1, "S": 1.0},
                    "V": {"V": keep - 1, "T": 1.0},
                    "S": {"S": -1.0},
                    "T": {"T": -1.0},
                }
            blocks += self._blocks(heads, linear_map(stream, update))
        return [*blocks, *image]

    def _answer(self) -> list[Block]:
        stream, lam = self.stream, self.problem.lam
        residual = {"y": 1.0, "p": 1.0, "w": -lam, "k_hat": -1.0}
        leave = linear_map(stream, {"k_hat": residual, "p": {"p": -1.0}})
        clear = linear_map(stream, {"k_hat": {"k_hat": -1.0}})
        coarse = self._pair("Z", "Z", stream.copy("k_hat", "w", 1.0))
        out = [*self._read("w", "p", -1.0), *self._read("w", "y", 1.0, queries=True)]
        square = self._pair("one", "k_hat", stream.copy("k_hat", "cert", 0.25 / lam), queries=True)
        return [
            *self._blocks(self._read("w", "p", -1.0), leave),
            *self._blocks(coarse, clear),
            *self._blocks(out, linear_map(stream, {"k_hat": residual})),
            *self._blocks(square),
        ]

    def _read(self, source: str, target: str, factor: float, queries: bool = False) -> list[Head]:
        a, mask = self.gains.a, QUERIES if queries else EXAMPLES
        read = Read(source=source, target=target, factor=factor * a, mask=mask, sink=a)
        return kernel_heads(self.stream, self.problem.kernel, read)

    def _pair(self, q: str, k: str, value: Tensor, queries: bool = False) -> list[Head]:
        pair = SignPair(stream=self.stream, eps=self.gains.eps, A=self.gains.A)
        return pair.heads(self.stream.rows(q), self.stream.rows(k), value, QUERIES if queries else EXAMPLES)

    def _to(self, target: str, form: dict[str, float]) -> Tensor:
        """The matrix that carries a linear form of a token to `target`."""
        return self.stream.rows(target).T @ self.stream.forms(form)

    def certificate(self, counts: dict[str, int]) -> Certificate:
        problem, phi = self.problem, self.steps.contraction(self.L)
        known = problem.B_norm < math.inf
        gains, m = self.gains, len(monomials(problem.d, self.degree))
        return Certificate(
            scheme=self.name,
            bound=problem.B_norm * phi if known and phi < 1 else None,
            trivial=problem.B_norm / 2 if known else None,
            L=self.L,
            **counts,
            assumptions=(
                "n <= N training tokens; |y_i| <= B_y; no eigenvalue of the deflated system above hi (proved where "
                "B_x gave hi and |x - mean x| <= B_x, else calibrated); singular values of the features 0 or at least "
                "`least`; pairs and sinks exact. A posteriori: the bound of each prediction, whatever of this holds"
            ),
            constants=(
                Constant("degree", self.degree, "of the features"),
                Constant("m", m, "features"),
                Constant("NS", len(newton_schulz(self.least)), "Newton-Schulz steps"),
                Constant("least", self.least, "least singular value of the features that they bring to 1"),
                Constant("a", gains.a, "weight of the sink of a kernel read"),
                Constant("A", gains.A, "weight of the sink of a pair"),
                Constant("eps_pair", gains.eps, "size of the signs of a pair"),
                Constant("phi", phi, "contraction of the L steps"),
                Constant("lo", self.steps.lo, "lam: no eigenvalue of the deflated system is below"),
                Constant("hi", self.steps.hi, "no eigenvalue of the deflated system may be above"),
                *((Constant("B_norm", problem.B_norm, "largest |y| / √lam, B_y √(N / lam)"),) if known else ()),
            ),
        )

    def promised(self, y: Tensor, radius: float, dtype: torch.dtype) -> float | None:
        """None: no theorem covers pairs of finite size."""
        return None

    def rounding(self, u: float) -> float:
        """u (N + lam) / lam, over eps where pairs are in the residual: they lose the digits of eps."""
        amplified = u * (self.problem.N + self.problem.lam) / self.problem.lam
        return amplified if self.refresh else amplified / self.gains.eps
