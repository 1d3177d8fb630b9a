"""Coefficients of w <- w + a_l g + b_l (w - w_previous), and how far L such steps bring us.

On an operator with spectrum in [lo, hi] the error of the L-th iterate is a polynomial of the operator times the
error of w = 0; `contraction` is the largest value of that polynomial on the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from layerstep.errors import require


@dataclass(frozen=True, kw_only=True)
class ConstantSteps:
    """a_l = eta, b_l = 0: contraction max(|1 - eta lo|, |1 - eta hi|)^L."""

    lo: float
    hi: float
    eta: float

    @property
    def rate(self) -> float:
        return max(abs(1 - self.eta * self.lo), abs(1 - self.eta * self.hi))

    def coefficients(self, L: int) -> tuple[list[float], list[float]]:
        return [self.eta] * L, [0.0] * L

    def contraction(self, L: int) -> float:
        try:
            return self.rate**L
        except OverflowError:
            return math.inf

    def needed(self, target: float) -> float:
        """The least L with contraction(L) <= target, rounded up; infinite where no number is as large."""
        shortfall = min(self.eta * self.lo, 2 - self.eta * self.hi)
        require(
            shortfall > 0 or self.eta * self.hi < 1,
            "eta",
            self.eta,
            f"below 2 / {self.hi:g}, the upper end of the spectrum",
            "Leave eta out for Chebyshev coefficients.",
        )
        if self.rate == 0:
            return 1
        # log1p: eta lo may be 1e-5, where 1 - eta lo has lost five digits.
        return math.ceil(math.log(target) / math.log1p(-shortfall)) if shortfall > 1e-300 else math.inf


@dataclass(frozen=True, kw_only=True)
class ChebyshevSteps:
    """The three-term recursion whose contraction 1 / T_L((hi + lo) / (hi - lo)) no polynomial beats.

    theta = (hi + lo) / 2, delta = (hi - lo) / 2, r_0 = delta / theta, r_l = 1 / (2 theta / delta - r_{l-1});
    a_0 = 1 / theta, b_0 = 0, a_l = 2 r_l / delta, b_l = r_l r_{l-1}. Noise in g is amplified no more than by
    Richardson's iteration: the amplifications sum to (1 - contraction) / lo.
    """

    lo: float
    hi: float

    @property
    def _angle(self) -> float:
        """acosh(sigma), sigma = (hi + lo) / (hi - lo), from sigma - 1: accurate when lo / hi is tiny."""
        excess = 2 * self.lo / (self.hi - self.lo)
        return math.log1p(excess + math.sqrt(excess * (2 + excess)))

    def coefficients(self, L: int) -> tuple[list[float], list[float]]:
        theta, delta = (self.hi + self.lo) / 2, (self.hi - self.lo) / 2
        r = [delta / theta]
        for _ in range(1, L):
            r.append(1 / (2 * theta / delta - r[-1]))
        a = [1 / theta] + [2 * r[step] / delta for step in range(1, L)]
        b = [0.0] + [r[step] * r[step - 1] for step in range(1, L)]
        return a[:L], b[:L]

    def contraction(self, L: int) -> float:
        angle = L * self._angle
        return 1 / math.cosh(angle) if angle < 700 else 0.0

    def needed(self, target: float) -> float:
        """The least L with contraction(L) <= target."""
        return math.ceil(math.acosh(1 / target) / self._angle)


Steps = ConstantSteps | ChebyshevSteps
