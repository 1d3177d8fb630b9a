"""scheme="exact": the row-sum preconditioned iteration, to rounding. Width 6, masks 0 and -inf, no spline.

    P^-1 (K + lam I) w = P^-1 y,   P = D + rho I,   D = diag(K 1)

Two reads of a coordinate g, with sink weights rho and 1 + rho (for rho = 0 the dummy is masked in read A):
    A_i = Σ_j K_ij g_j / (D_i + rho)             keys: the dummy and all training tokens
    B_i = Σ_{j≠i} K_ij g_j / (D_i + rho)         keys: the dummy and all training tokens but i itself
The normalisers agree because K_ii = 1 goes from the sum into the sink. So A - B = g_i / (D_i + rho) and
(1 + lam) A - lam B = ((K + lam I) g)_i / (D_i + rho), exactly.

    read-in    beta = A[y] - B[y] = P^-1 y;  MLP: w = c = a_0 beta
    iteration  p = -(1 + lam) A[w] + lam B[w];  MLP: u = a_l (beta + p) + b_l c, w += u, c = u, p = 0
    read-out   y of a query = a / (a + D_q) k_q·w

heads=2 does both reads in one block (L + 1 blocks), heads=1 in two (2L + 1 blocks). rho = 0 is the paper's
preconditioner; rho = lam has the narrower spectrum [lam / (lam + N), 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from layerstep.construction.blocks import Attention, Mask
from layerstep.construction.certificate import Constant
from layerstep.construction.gadgets.kernel_attention import SINK_AND_TRAIN, Read, attention, sink_readout
from layerstep.construction.gadgets.linear_step import linear_iterations
from layerstep.construction.problem import Precondition, Problem
from layerstep.construction.schemes.base import Blocks, SinkScheme
from layerstep.construction.stream import Stream

OTHERS = Mask(train=("dummy", "others"))


@dataclass(frozen=True, kw_only=True)
class Exact(SinkScheme):
    """|out - f*(q)| <= B_norm [phi + δ (1/2 + phi)], δ = N / a, B_norm = |y| / √lam.

    Proof. The error polynomial of P^-1 (K + lam I) is self-adjoint in the inner product of K + lam I, where
    |w*| <= B_norm and the dual norm of k_q is at most 1: the iteration costs phi B_norm. Then |k_q·w| is at most
    (1/2 + phi) B_norm, and the sink takes the fraction D_q / (a + D_q) <= δ of it.
    """

    name: ClassVar[str] = "exact"
    options: ClassVar[dict[str, Any]] = {"rho": None, "heads": 2}
    shares: ClassVar[tuple[float, float]] = (0.75, 0.49)

    rho: float
    heads: int = 2

    @classmethod
    def of_depth(
        cls, problem: Problem, L: int, *, eta: float | None = None, rho: float | None = None, heads: int | None = None
    ) -> SinkScheme:
        """rho left out: 0, the paper's, with a constant step eta; lam without."""
        if rho is None:
            rho = problem.lam if eta is None else 0.0
        return super().of_depth(problem, L, eta=eta, rho=rho, heads=heads or 2)

    @staticmethod
    def spectrum(problem: Problem, *, rho: float, heads: int = 2) -> tuple[float, float]:
        """Eigenvalues of (D + rho I)^-1 (K + lam I): lam / (rho + N) to max (D_i + lam) / (D_i + rho)."""
        N, lam = problem.N, problem.lam
        return lam / (rho + N), max((D_i + lam) / (D_i + rho) for D_i in (1, N))

    @classmethod
    def conditions(cls, problem: Problem, *, heads: int | None = None, **options: Any) -> list[Precondition]:
        right = Precondition(heads in (None, 1, 2), f"heads = {heads}", "1 or 2", "2 heads need half the blocks.")
        return [*super().conditions(problem, **options), right]

    @staticmethod
    def relative_bound(problem: Problem, phi: float, delta: float) -> float:
        return phi + delta * (0.5 + phi)

    def rounding(self, u: float) -> float:
        """16 u hi / lo: noise in the residual is amplified by 1 / lo, and differences of reads lose another digit."""
        return 16 * u * self.steps.hi / self.steps.lo

    def blocks(self) -> Blocks:
        stream = Stream(self.problem.d)
        readout = sink_readout(stream, self.problem.gaussian, self.a)
        read_y = self._reads(stream, "y", "beta", 1.0, -1.0)
        read_w = self._reads(stream, "w", "p", -(1 + self.problem.lam), self.problem.lam)
        residual = {"beta": 1.0, "p": 1.0}
        a, b = self.steps.coefficients(self.L)
        return Blocks(linear_iterations(stream, read_y, {"beta": 1.0}, read_w, residual, a, b), readout)

    def _reads(self, stream: Stream, source: str, target: str, factor_A: float, factor_B: float) -> list[Attention]:
        """target += factor_A A[source] + factor_B B[source]: one attention of two heads, or two of one."""
        everyone = Mask(train=SINK_AND_TRAIN if self.rho > 0 else ("train",))
        # For rho = 0 the dummy is masked, and its weight 1 is never looked at.
        A = Read(source=source, target=target, factor=factor_A, mask=everyone, sink=self.rho or 1.0)
        B = Read(source=source, target=target, factor=factor_B, mask=OTHERS, sink=1 + self.rho)
        together = [(A, B)] if self.heads == 2 else [(A,), (B,)]
        return [attention(stream, self.problem.gaussian, *reads) for reads in together]

    def constants(self) -> tuple[Constant, ...]:
        return (
            Constant("rho", self.rho, "preconditioner D + rho I"),
            Constant("a", self.a, "weight of the sink in the read-out"),
            Constant("delta", self.problem.N / self.a, "leakage of the read-out, N / a"),
            Constant("phi", self.steps.contraction(self.L), "contraction of the L steps"),
            Constant("lo", self.steps.lo, "least eigenvalue, lam / (rho + N)"),
            Constant("hi", self.steps.hi, "largest eigenvalue, max (D_i + lam) / (D_i + rho)"),
        )
