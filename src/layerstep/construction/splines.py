"""One hidden layer of ReLUs as a spline: a value that knows its weights and the error it makes.

    phi(x) = constant + Σ_s c_s relu(a_s x + b_s),   |f(x) - phi(x)| <= bound for lo <= x <= hi

`interpolate` is the paper's lemma for any function and any knots. `square`, `flip` (x / (1 - x)) and `inverse` (1 / x)
have the knots of its corollaries and the exact error on them, which is smaller than the corollaries say: for flip
and inverse the knots are equidistant in y, x = 1 - y^-2 or x = y^-2, and the chord over a cell of width h in y
deviates by exactly h² (the corollaries: 4h², and 9 / (lo n²)).

The lemma sums from left to right: differences of slopes, large and of both signs, that cancel. Where a form that adds
positive terms only exists it is `stable=True`, for low precision: the square from its middle outwards, 1 / x from
right to left. The latter also needs no constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require, require_count, require_positive


@dataclass(frozen=True, eq=False, kw_only=True)
class Spline:
    """phi(x) = constant + Σ_s c_s relu(a_s x + b_s), within `bound` of its function on [lo, hi]."""

    a: Float[Tensor, "n"]
    b: Float[Tensor, "n"]
    c: Float[Tensor, "n"]
    constant: float
    lo: float
    hi: float
    bound: float

    @property
    def n(self) -> int:
        """The number of hidden units, without the one that a constant needs."""
        return len(self.c)

    def __call__(self, x: Float[Tensor, "*points"]) -> Float[Tensor, "*points"]:
        a, b, c = (weights.to(x) for weights in (self.a, self.b, self.c))
        return torch.relu(a * x[..., None] + b) @ c + self.constant

    def shifted(self, amount: float, bound: float) -> Spline:
        """The spline plus `amount`, with the bound that is then right."""
        return Spline(
            a=self.a, b=self.b, c=self.c, constant=self.constant + amount, lo=self.lo, hi=self.hi, bound=bound
        )


def interpolate(
    f: Callable[[Tensor], Tensor],
    knots: Float[Tensor, "knots"],
    curvature: float = math.inf,
    bound: float | None = None,
) -> Spline:
    """The interpolant of f at `knots`: constant f(x_0), a_s = 1, b_s = -x_{s-1}, c_s the increments of slope.

    Its error is at most curvature h² / 8, with curvature the largest |f''| and h the widest cell, or `bound` where
    more is known.
    """
    ok = len(knots) >= 2 and bool((knots.diff() > 0).all())
    require(ok, "knots", f"{len(knots)} numbers", "two or more increasing numbers")
    values = f(knots)
    slopes = values.diff() / knots.diff()
    increments = slopes.diff(prepend=slopes.new_zeros(1))
    if bound is None:
        bound = curvature * float(knots.diff().max()) ** 2 / 8
    return Spline(
        a=torch.ones_like(increments),
        b=-knots[:-1],
        c=increments,
        constant=float(values[0]),
        lo=float(knots[0]),
        hi=float(knots[-1]),
        bound=bound,
    )


def of_function(f: Callable[[Tensor], Tensor], lo: float, hi: float, curvature: float, tolerance: float) -> Spline:
    """Any f with |f''| <= curvature on [lo, hi], within `tolerance`: (hi - lo) √(curvature / 8 tolerance) units."""
    require(lo < hi, "lo, hi", (lo, hi), "an interval, lo < hi")
    require_positive(tolerance=tolerance)
    require(0 <= curvature < math.inf, "curvature", curvature, "the largest |f''|, finite and at least 0")
    n = max(1, math.ceil((hi - lo) * math.sqrt(curvature / (8 * tolerance))))
    return interpolate(f, torch.linspace(lo, hi, n + 1, dtype=torch.float64), curvature)


def square(delta: float, n: int, stable: bool = False) -> Spline:
    """x² on [-delta, delta] with n units: 0 <= phi - x² <= delta² / n².

    stable: n even, phi = Σ_k c_k [relu(x - kh) + relu(-x - kh)], h = 2 delta / n, c_0 = h, c_k = 2h: phi(0) = 0,
    and no constant. Otherwise the lemma's, with the constant delta².
    """
    require_positive(delta=delta)
    require_count(n=n)
    bound = delta**2 / n**2
    if not stable:
        knots = torch.linspace(-delta, delta, n + 1, dtype=torch.float64)
        return interpolate(torch.square, knots, bound=bound)
    require(n % 2 == 0, "n", n, "even for the stable form")
    h = 2 * delta / n
    cells = torch.arange(n // 2, dtype=torch.float64)
    c = torch.full_like(cells, 2 * h)
    c[0] = h
    ones = torch.ones_like(c)
    return Spline(
        a=torch.cat([ones, -ones]),
        b=torch.cat([-h * cells, -h * cells]),
        c=torch.cat([c, c]),
        constant=0.0,
        lo=-delta,
        hi=delta,
        bound=bound,
    )


def flip(delta: float, n: int) -> Spline:
    """x / (1 - x) on [0, delta], delta < 1, with n units: 0 <= phi - f <= h², h = ((1 - delta)^-1/2 - 1) / n."""
    require(0 < delta < 1, "delta", delta, "above 0 and below 1")
    require_count(n=n)
    span = (1 - delta) ** -0.5 - 1
    y = 1 + span * torch.arange(n + 1, dtype=torch.float64) / n
    return interpolate(lambda x: x / (1 - x), 1 - y**-2, bound=(span / n) ** 2)


def inverse(delta: float, n: int, stable: bool = False) -> Spline:
    """1 / x on [delta, 1], delta > 0, with n units: 0 <= phi - f <= h², h = (delta^-1/2 - 1) / n.

    Not stable: the lemma's, whose constant f(delta) = 1 / delta does not cancel and costs one more unit.
    stable: one falling affine unit and Σ_k c_k relu(x_k - x), all c_k > 0, no constant.
    """
    require(0 < delta < 1, "delta", delta, "above 0 and below 1")
    require_count(n=n)
    span = delta**-0.5 - 1
    y = delta**-0.5 - span * torch.arange(n + 1, dtype=torch.float64) / n
    knots = y**-2
    bound = (span / n) ** 2
    if not stable:
        return interpolate(torch.reciprocal, knots, bound=bound)
    # The chord over [y_1^-2, y_0^-2] has slope -y_0² y_1².
    steepness = (y[:-1] * y[1:]) ** 2
    last = float(steepness[-1])
    bends = -steepness.diff().flip(0)
    return Spline(
        a=torch.cat([torch.tensor([-last], dtype=torch.float64), -torch.ones_like(bends)]),
        b=torch.cat([torch.tensor([1 + last], dtype=torch.float64), knots[1:-1].flip(0)]),
        c=torch.cat([torch.ones(1, dtype=torch.float64), bends]),
        constant=0.0,
        lo=delta,
        hi=1.0,
        bound=bound,
    )


def halved(spline: Spline) -> Spline:
    """A spline above a convex function, lowered by half its error: half the bound, one unit for the constant."""
    return spline.shifted(-spline.bound / 2, spline.bound / 2)


@dataclass(frozen=True, eq=False, kw_only=True)
class Product:
    """p q ≈ [phi(p + s q) - phi(p - s q)] / 4s for |p| <= P, |q| <= Q, s = P / Q, within P Q / n²; 2n units.

    phi is the stable square on [-2P, 2P]. The scaling s gives both factors one range, so that neither pays for the
    other's.
    """

    square: Spline
    s: float
    bound: float

    def __call__(self, p: Float[Tensor, "*points"], q: Float[Tensor, "*points"]) -> Float[Tensor, "*points"]:
        return (self.square(p + self.s * q) - self.square(p - self.s * q)) / (4 * self.s)


def product(P: float, Q: float, tolerance: float) -> Product:
    """The product of |p| <= P and |q| <= Q within `tolerance`: n = √(P Q / tolerance), made even."""
    require_positive(P=P, Q=Q, tolerance=tolerance)
    n = 2 * max(1, math.ceil(math.sqrt(P * Q / tolerance) / 2))
    return Product(square=square(2 * P, n, stable=True), s=P / Q, bound=P * Q / n**2)
