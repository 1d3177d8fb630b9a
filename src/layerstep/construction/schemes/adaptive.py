"""scheme="adaptive": the network computes from the prompt which part of the spectrum is large, and removes it.

The top of the spectrum of M = K + lam I is spanned almost exactly by damped polynomials of the inputs, Z. The network
makes Zᵀ M Z a projection by Newton-Schulz steps among the features, V = M Z, and iterates on M - V Vᵀ, whose spectrum
is [lam, hi] with hi far below lam + N: steps of fixed coefficients are few. Coordinates beside the paper's: mu, the
mean input; Z and V, m = C(d + degree, degree) numbers each; cert. Read[g] is the kernel sum through a sink of
`compact`, pair(q, k) h is Σ_j <q_i, k_j> h_j (`gadgets.pairs`).

    centre    mu = mean x
    features  Z = 1 / √(N (N + lam)) exp(-|x - mu|²/2v²) of 1, x - mu and, for degree 2, products; d blocks then
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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from layerstep.construction.blocks import Attention, Block
from layerstep.construction.certificate import Certificate, Constant
from layerstep.construction.gadgets.kernel_attention import Read
from layerstep.construction.gadgets.linear_step import linear_iterations, linear_map, linear_steps
from layerstep.construction.gadgets.pairs import (
    EXAMPLES,
    QUERIES,
    SELF,
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
    feature_scale,
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
LEAST = {1: 0.015, 2: 0.001}


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

    name: ClassVar[str] = "adaptive"
    options: ClassVar[dict[str, Any]] = {"degree": 2, "hi": None, "least": None, "refresh": None}
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
            Precondition(degree in DEGREES, f"degree = {degree}", "1 or 2", "That of the features."),
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
    ) -> Adaptive:
        # 80 square matrices and more, one row for each coordinate of a token.
        rows = 2 * (problem.d + math.comb(problem.d + degree, degree))
        require_memory("d", problem.d, 8 * 80 * rows * rows, 'Take degree=1, or scheme="compact".')
        lo = problem.lam
        if hi is None:
            hi = lo + problem.N * poisson_tail((problem.B_x / problem.kernel.v) ** 2, degree)
        hi = max(hi, lo * (1 + 2.0**-40))
        steps = ChebyshevSteps(lo=lo, hi=hi) if eta is None else ConstantSteps(lo=lo, hi=hi, eta=eta)
        least = LEAST[degree] if least is None else least
        return cls(problem=problem, L=L, steps=steps, degree=degree, least=least, refresh=bool(refresh))

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
        return Stream(self.problem.d, (("mu", self.problem.d), ("Z", m), ("V", m), ("cert", 1)))

    def blocks(self) -> Blocks:
        prepared = [Block(together(mean_head(self.stream, "x", "mu")), None), *self._features(), *self._orthonormal()]
        a, b = self.steps.coefficients(self.L)
        residual = {"y": 1.0, "p": 1.0, "w": -self.problem.lam}
        if self.refresh:
            prepared.append(Block(self._pair("Z", "Z", self.stream.copy("y", "w", 1.0)), None))
            project = self._pair("Z", "V", (self.gains.shrink - 1) * self._to("p", residual))
            read = [together(*self._read("w", "p", -1.0)), project]
            iterations = linear_steps(self.stream, read, residual, a, b)
        else:
            deflated = together(*self._read("w", "p", -1.0), *self._heads("V", "V", self.stream.copy("w", "p", 1.0)))
            start = self._pair("V", "Z", self.stream.copy("y", "beta", -1.0))
            direction = residual | {"beta": 1.0}
            iterations = linear_iterations(self.stream, [start], {"y": 1.0, "beta": 1.0}, [deflated], direction, a, b)
        return Blocks([[*prepared, *iterations[0]], *iterations[1:]], self._answer(), whole=True)

    def _features(self) -> list[Block]:
        """Z = exp(-|x - mu|²/2v²) (x - mu)^alpha / (v^|alpha| √alpha!), over √(N (N + lam)): M^{1/2} Z is at most 1."""
        stream, v, d, gains = self.stream, feature_width(self.problem.kernel), self.problem.d, self.gains
        unit = 1 / math.sqrt(self.problem.N * (self.problem.N + self.problem.lam))
        x, mu, one = stream.rows("x") / v, stream.rows("mu") / v, stream.rows("one")
        inside = stream.forms({"one": 1.0, "s": -1.0})
        # -|x - mu|²/2v² = -|x|²/2v² + <mu, x - mu/2>/v²
        logit = torch.cat([one, mu]), torch.cat([stream.forms({"x2": -0.5 / v / v}), x - mu / 2])
        rows = {monomial: stream["Z"].start + row for row, monomial in enumerate(monomials(d, self.degree))}
        pair = SignPair(stream=stream, eps=gains.feature_eps, A=gains.A)
        value = torch.zeros(stream.width, stream.width, dtype=torch.float64)
        value[rows[()]] = unit * inside[0]
        for i in range(d):
            value[rows[i,]] = unit * (x - mu)[i]
        heads = [[pair.exponential(logit, value)]]
        for i in range(d) if self.degree == 2 else ():
            products = torch.zeros_like(value)
            for j in range(i, d):
                products[rows[i, j]] = unit * feature_scale((i, j)) * (x - mu)[j]
            of_i = pair.heads((x - mu)[[i]], inside, products, mask=SELF, logit=logit)
            heads = [[*heads[0], *of_i]] if i == 0 else [*heads, of_i]
        return [Block(together(*some), None) for some in heads]

    def _orthonormal(self) -> list[Block]:
        """V = M Z, then Newton-Schulz steps of both until Zᵀ V is a projection, then V = M Z once more."""
        stream, lam = self.stream, self.problem.lam
        image = Block(together(*self._read("Z", "V", 1.0)), linear_map(stream, {"V": {"Z": lam}}))
        coefficients = newton_schulz(self.least)
        blocks = [image]
        for step, (a, b) in enumerate(coefficients, start=1):
            heads = [
                *self._heads("Z", "V", stream.copy("Z", "Z", -b / a)),
                *self._heads("V", "Z", stream.copy("V", "V", -b / a)),
            ]
            keep = a if step < len(coefficients) else 0.0
            mlp = linear_map(stream, {"Z": {"Z": a - 1}, "V": {"V": keep - 1}})
            blocks.append(Block(together(*heads), mlp))
        return [*blocks, image]

    def _answer(self) -> list[Block]:
        stream, lam = self.stream, self.problem.lam
        residual = {"y": 1.0, "p": 1.0, "w": -lam, "k_hat": -1.0}
        leave = linear_map(stream, {"k_hat": residual, "p": {"p": -1.0}})
        clear = linear_map(stream, {"k_hat": {"k_hat": -1.0}})
        coarse = self._pair("Z", "Z", stream.copy("k_hat", "w", 1.0))
        out = together(*self._read("w", "p", -1.0), *self._read("w", "y", 1.0, queries=True))
        square = self._heads("one", "k_hat", stream.copy("k_hat", "cert", 0.25 / lam), queries=True)
        return [
            Block(together(*self._read("w", "p", -1.0)), leave),
            Block(coarse, clear),
            Block(out, linear_map(stream, {"k_hat": residual})),
            Block(together(*square), None),
        ]

    def _read(self, source: str, target: str, factor: float, queries: bool = False) -> list[Head]:
        a, mask = self.gains.a, QUERIES if queries else EXAMPLES
        read = Read(source=source, target=target, factor=factor * a, mask=mask, sink=a)
        return kernel_heads(self.stream, self.problem.kernel, read)

    def _heads(self, q: str, k: str, value: Tensor, queries: bool = False) -> list[Head]:
        pair = SignPair(stream=self.stream, eps=self.gains.eps, A=self.gains.A)
        return pair.heads(self.stream.rows(q), self.stream.rows(k), value, QUERIES if queries else EXAMPLES)

    def _pair(self, q: str, k: str, value: Tensor) -> Attention:
        return together(*self._heads(q, k, value))

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
