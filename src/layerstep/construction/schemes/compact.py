"""scheme="compact": a sink instead of a preconditioner. One head, masks 0 and -inf, width 6, L + 1 blocks.

With a large sink weight a, attention returns kernel sums instead of kernel averages: p_i = -a / (a + D_i) (K w)_i.
The network iterates on (K + lam I) w = y itself, whose spectrum is in [lam, lam + N] for every prompt of at most N
points, and reads out through the same sink. No spline, no range of x, y or w enters.

    block 1       MLP: w = c = a_0 y
    blocks 2..L   attention: p = -a / (a + D_i) (K w)_i;  MLP: u = a_l (y + p - lam w) + b_l c, w += u, c = u, p = 0
    block L + 1   attention: y of a query = a / (a + D_q) k_q·w

A kernel that is a sum of Gaussians, K = Σ_s c_s K_s, has a head for each, with values -a c_s w: heads add. With
`heads` a read takes as many blocks as that takes, the last with the MLP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from layerstep.construction.blocks import Mask
from layerstep.construction.certificate import Constant
from layerstep.construction.gadgets.kernel_attention import SINK_AND_TRAIN, Read, attentions, sink_readout
from layerstep.construction.gadgets.linear_step import linear_iterations
from layerstep.construction.problem import Precondition, Problem
from layerstep.construction.schemes.base import Blocks, SinkScheme
from layerstep.construction.steps import ConstantSteps
from layerstep.construction.stream import Stream
from layerstep.errors import require


@dataclass(frozen=True, kw_only=True)
class Compact(SinkScheme):
    """|out - f*(q)| <= B_norm/2 [phi / √(1 - δ) + δ / (1 - δ) + δ (1 + phi) / √(1 - δ)], δ = N / a.

    B_norm = |y| / √lam. Proof. With G² = a / (a + D) the iteration matrix G² K + lam I is similar to G K G + lam I,
    whose spectrum is in [lam, lam + N]. Truncation costs phi max_t √t / (t + lam) |G^-1 y| = phi B_norm / 2√(1 - δ).
    The fixed point w~ has (K + lam I)(w~ - w*) = (I - G²) K w~ with |K w~| <= |y| / (1 - δ): the second term. The
    read-out multiplies by a / (a + D_q): the third.

    For a sum of Gaussians B_norm [phi / 2 + 2 √(N / lam) δ (1 + N / lam) / (1 - δ N / lam)], since G_s² differs from
    head to head and the sum Σ c_s G_s² K_s is not symmetric. Proof. It is K - E with |E| <= δ N, so that step l errs
    by E w_l, which reaches the end as R_l(K + lam I) E w_l with Σ_l max |R_l| <= 1 / lam on the spectrum (Chebyshev
    coefficients; a constant eta too while eta (lam + N) <= 1). The largest |w_l|, W, is thus at most 2 |w*| +
    (δ N / lam) W, |w*| <= |y| / lam, and with |k_q| <= √N the iteration errs by phi B_norm / 2 + √N (δ N / lam) W. The
    read-out's heads lose at most δ √N W. What the Gaussians miss of the kernel is `Problem.kernel_bound`.
    """

    name: ClassVar[str] = "compact"
    options: ClassVar[dict[str, Any]] = {"heads": 2}
    mixtures: ClassVar[bool] = True
    shares: ClassVar[tuple[float, float]] = (1.0, 0.495)

    heads: int | None = None

    @staticmethod
    def spectrum(problem: Problem, *, heads: int | None = None) -> tuple[float, float]:
        """The eigenvalues of K + lam I, for any n <= N points."""
        return problem.lam, problem.lam + problem.N

    @staticmethod
    def relative_bound(problem: Problem, phi: float, delta: float) -> float:
        if len(problem.kernel.parts) > 1:
            moved = problem.N / problem.lam
            if delta * moved >= 1:
                return math.inf
            return 0.5 * phi + 2 * math.sqrt(moved) * delta * (1 + moved) / (1 - delta * moved)
        root = math.sqrt(1 - delta)
        return 0.5 * (phi / root + delta / (1 - delta) + delta * (1 + phi) / root)

    @classmethod
    def conditions(cls, problem: Problem, *, heads: int | None = None, **options: Any) -> list[Precondition]:
        allowed = 'left out: for scheme="exact", or a kernel that is a sum of Gaussians'
        # 2 is what files of one Gaussian say.
        idle = Precondition(heads in (None, 2) or len(problem.kernel.parts) > 1, f"heads = {heads}", allowed, "")
        return [*super().conditions(problem, **options), idle]

    @classmethod
    def for_error(cls, problem: Problem, error: float, *, eta: float | None = None, **options: Any) -> SinkScheme:
        most = 1 / (problem.lam + problem.N)
        covered = len(problem.kernel.parts) == 1 or eta is None or eta <= most
        require(covered, "eta", eta, f"at most {most:.4g} for a sum of Gaussians", "Or leave it out.")
        return super().for_error(problem, error, eta=eta, **options)

    def bound(self, B_norm: float) -> float | None:
        constant = isinstance(self.steps, ConstantSteps) and self.steps.eta * self.steps.hi > 1 + 1e-12
        return None if constant and len(self.problem.kernel.parts) > 1 else super().bound(B_norm)

    @classmethod
    def leak(cls, problem: Problem, share: float) -> float:
        """Of a mixture, so little that its term stays a hundredth of the share."""
        if len(problem.kernel.parts) == 1:
            return share
        moved = problem.N / problem.lam
        return 0.01 * share / (2 * math.sqrt(moved) * (1 + moved) + moved)

    def rounding(self, u: float) -> float:
        """u hi / lo: noise in the residual is amplified by 1 / lo."""
        return u * self.steps.hi / self.steps.lo

    def blocks(self) -> Blocks:
        stream, kernel = Stream(self.problem.d), self.problem.kernel
        readout = sink_readout(stream, kernel, self.a, self.heads)
        kernel_sum = Read(source="w", target="p", factor=-self.a, mask=Mask(train=SINK_AND_TRAIN), sink=self.a)
        read = attentions(stream, kernel, kernel_sum, heads=self.heads)
        residual = {"y": 1.0, "p": 1.0, "w": -self.problem.lam}
        a, b = self.steps.coefficients(self.L)
        return Blocks(linear_iterations(stream, [None], {"y": 1.0}, read, residual, a, b), readout)

    def constants(self) -> tuple[Constant, ...]:
        return (
            Constant("a", self.a, "weight of the sink"),
            Constant("delta", self.problem.N / self.a, "leakage of the sink, N / a"),
            Constant("phi", self.steps.contraction(self.L), "contraction of the L steps"),
            Constant("lo", self.steps.lo, "least eigenvalue of K + lam I, lam"),
            Constant("hi", self.steps.hi, "largest eigenvalue of K + lam I, lam + N"),
        )
