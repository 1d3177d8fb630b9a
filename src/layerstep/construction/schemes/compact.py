"""scheme="compact": a sink instead of a preconditioner. One head, masks 0 and -inf, width 6, L + 1 blocks.

With a large sink weight a, attention returns kernel sums instead of kernel averages: p_i = -a / (a + D_i) (K w)_i.
The network iterates on (K + lam I) w = y itself, whose spectrum is in [lam, lam + N] for every prompt of at most N
points, and reads out through the same sink. No spline, no range of x, y or w enters.

    block 1       MLP: w = c = a_0 y
    blocks 2..L   attention: p = -a / (a + D_i) (K w)_i;  MLP: u = a_l (y + p - lam w) + b_l c, w += u, c = u, p = 0
    block L + 1   attention: y of a query = a / (a + D_q) k_q·w
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from layerstep.construction.blocks import Mask
from layerstep.construction.certificate import Constant
from layerstep.construction.gadgets.kernel_attention import SINK_AND_TRAIN, Read, attention, sink_readout
from layerstep.construction.gadgets.linear_step import linear_iterations
from layerstep.construction.problem import Problem
from layerstep.construction.schemes.base import Blocks, SinkScheme
from layerstep.construction.stream import Stream


@dataclass(frozen=True, kw_only=True)
class Compact(SinkScheme):
    """|out - f*(q)| <= B_norm/2 [phi / √(1 - δ) + δ / (1 - δ) + δ (1 + phi) / √(1 - δ)], δ = N / a.

    B_norm = |y| / √lam. Proof. With G² = a / (a + D) the iteration matrix G² K + lam I is similar to G K G + lam I,
    whose spectrum is in [lam, lam + N]. Truncation costs phi max_t √t / (t + lam) |G^-1 y| = phi B_norm / 2√(1 - δ).
    The fixed point w~ has (K + lam I)(w~ - w*) = (I - G²) K w~ with |K w~| <= |y| / (1 - δ): the second term. The
    read-out multiplies by a / (a + D_q): the third.
    """

    name: ClassVar[str] = "compact"
    shares: ClassVar[tuple[float, float]] = (1.0, 0.495)

    @staticmethod
    def spectrum(problem: Problem) -> tuple[float, float]:
        """The eigenvalues of K + lam I, for any n <= N points."""
        return problem.lam, problem.lam + problem.N

    @staticmethod
    def relative_bound(phi: float, delta: float) -> float:
        root = math.sqrt(1 - delta)
        return 0.5 * (phi / root + delta / (1 - delta) + delta * (1 + phi) / root)

    def rounding(self, u: float) -> float:
        """u hi / lo: noise in the residual is amplified by 1 / lo."""
        return u * self.steps.hi / self.steps.lo

    def blocks(self) -> Blocks:
        stream, kernel = Stream(self.problem.d), self.problem.kernel
        readout = sink_readout(stream, kernel, self.a)
        kernel_sum = Read(source="w", target="p", factor=-self.a, mask=Mask(train=SINK_AND_TRAIN), sink=self.a)
        read = attention(stream, kernel, kernel_sum)
        residual = {"y": 1.0, "p": 1.0, "w": -self.problem.lam}
        a, b = self.steps.coefficients(self.L)
        return Blocks(linear_iterations(stream, [None], {"y": 1.0}, [read], residual, a, b), [readout])

    def constants(self) -> tuple[Constant, ...]:
        return (
            Constant("a", self.a, "weight of the sink"),
            Constant("delta", self.problem.N / self.a, "leakage of the sink, N / a"),
            Constant("phi", self.steps.contraction(self.L), "contraction of the L steps"),
            Constant("lo", self.steps.lo, "least eigenvalue of K + lam I, lam"),
            Constant("hi", self.steps.hi, "largest eigenvalue of K + lam I, lam + N"),
        )
