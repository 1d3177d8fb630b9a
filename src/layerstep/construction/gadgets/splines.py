"""One hidden layer of ReLUs as a spline: a value that knows its weights and the error it makes.

    phi(x) = constant + Σ_s c_s relu(a_s x + b_s),   |f(x) - phi(x)| <= bound for lo <= x <= hi

`interpolate` is the paper's lemma for any function and any knots. `square`, `flip` (x / (1 - x)) and `inverse` (1 / x)
have the knots of its corollaries and the exact error on them, which is smaller than the corollaries say: for flip
and inverse the knots are equidistant in y, x = 1 - y^-2 or x = y^-2, and the chord over a cell of width h in y
deviates by exactly h² (the corollaries: 4h², and 9 / (lo n²)).

The lemma sums from left to right: differences of slopes, large, that cancel against the constant.
`inverse(stable=True)` sums 1 / x from right to left instead: positive terms only, and no constant.
"""

from __future__ import annotations

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


def interpolate(f: Callable[[Tensor], Tensor], knots: Float[Tensor, "knots"], bound: float) -> Spline:
    """The interpolant of f at `knots`: constant f(x_0), a_s = 1, b_s = -x_{s-1}, c_s the increments of slope."""
    ok = len(knots) >= 2 and bool((knots.diff() > 0).all())
    require(ok, "knots", f"{len(knots)} numbers", "two or more increasing numbers")
    values = f(knots)
    slopes = values.diff() / knots.diff()
    increments = slopes.diff(prepend=slopes.new_zeros(1))
    return Spline(
        a=torch.ones_like(increments),
        b=-knots[:-1],
        c=increments,
        constant=float(values[0]),
        lo=float(knots[0]),
        hi=float(knots[-1]),
        bound=bound,
    )


def square(delta: float, n: int) -> Spline:
    """x² on [-delta, delta] with n units: 0 <= phi - x² <= delta² / n². The constant is delta²."""
    require_positive(delta=delta)
    require_count(n=n)
    knots = torch.linspace(-delta, delta, n + 1, dtype=torch.float64)
    return interpolate(torch.square, knots, bound=delta**2 / n**2)


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
