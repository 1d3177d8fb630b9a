"""What deflation rests on: Taylor features of the kernel, the Newton-Schulz iteration, what is left of the spectrum."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.construction.kernels import Kernel, as_kernel
from layerstep.errors import require, require_choice, require_kind, require_positive, require_square
from layerstep.tasks.prompts import Array, Prompts, as_float_tensor, is_single

DEGREES = (1, 2, 3)
#: Singular values of scaled features, at most 1, that are below this are 0: features that depend on each other, or
#: that are lost beside inputs far from their mean.
_ZERO = 1e-9
#: Below it Newton-Schulz steps are many, and what they bring to 1 is rounding.
SMALLEST = 1e-12


def monomials(d: int, degree: int) -> list[tuple[int, ...]]:
    """Products of at most `degree` coordinates, (), (0,), .., (0, 0), (0, 1), ..: C(d + degree, degree) of them."""
    return [each for k in range(degree + 1) for each in itertools.combinations_with_replacement(range(d), k)]


def feature_scale(monomial: tuple[int, ...]) -> float:
    """1 / √(alpha!): with it the features' Gram matrix is the Taylor part of the kernel."""
    return math.prod(math.factorial(monomial.count(i)) for i in set(monomial)) ** -0.5


def features(x: Float[Tensor, "*B n d"], v: float, degree: int) -> Float[Tensor, "*B n m"]:
    """exp(-|x|²/2v²) x^alpha / (v^|alpha| √(alpha!)) of x minus its mean, |alpha| <= degree."""
    z = (x - x.mean(-2, keepdim=True)) / v
    columns = [feature_scale(monomial) * z[..., list(monomial)].prod(-1) for monomial in monomials(z.shape[-1], degree)]
    damping = torch.exp(-z.square().sum(-1, keepdim=True) / 2)
    return torch.where(damping > 0, torch.stack(columns, -1) * damping, 0)  # products may be infinite there


def feature_width(kernel: Kernel) -> float:
    """The bandwidth of the features: the kernel's own, or the mean width of the Gaussians that it is a sum of."""
    return sum(weight * part.v for weight, part in kernel.parts)


def poisson_tail(s: float, degree: int) -> float:
    """Q_p(s) = P(Poisson(s) > p): the share of K(x, x) = 1 beyond degree p at |x|² = s v²."""
    return float(torch.special.gammainc(torch.tensor(degree + 1.0).double(), torch.tensor(s).double()))


def newton_schulz(least: float, to: float = 1e-8) -> list[tuple[float, float]]:
    """(a_j, b_j) of s <- s (a_j - b_j s²), which brings singular values in [least, 1] to 1; 0 stays 0.

    On [l, u] the cubic whose values are within [1 - E, 1 + E], E the smallest possible: q = l² + lu + u²,
    b = 2 / (l u (l + u) + (2/3) q √(q/3)), a = b q, E = 1 - l (a - b l²). When E < `to`, one last s (3 - s²) / 2.
    """
    low, high, found = least, 1.0, []
    while 1 - low >= to:
        q = low * low + low * high + high * high
        b = 2 / (low * high * (low + high) + 2 / 3 * q * math.sqrt(q / 3))
        found.append((b * q, b))
        left = 1 - low * b * (q - low * low)
        low, high = 1 - left, 1 + left
    return [*found, (1.5, 0.5)]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """What the prompts of an input distribution need: hi, above the deflated spectrum; least, below singular values.

    Arguments of construct(..., scheme="adaptive", hi=interval.hi, least=interval.least).
    """

    hi: float
    least: float
    degree: int


def calibrate_interval(
    prompts: Prompts,
    v: float | Array,
    lam: float,
    degree: int = 2,
    margin: float = 1.3,
    *,
    kernel: Any = None,
) -> Interval:
    """`margin` times the largest eigenvalue after exact deflation of these prompts, the least singular value over it.

    The deflated system is M - V (ZᵀMZ)⁻¹ Vᵀ with M = K + lam I, V = MZ, Z the features. Take prompts of the inputs
    that the network will see, and others than those it is judged by.
    """
    require_kind("prompts", prompts, Prompts, "Make them with ls.Prompts(x, y) or ls.sample(task, B, seed).")
    require_positive(lam=lam, margin=margin)
    require(margin >= 1, "margin", margin, "at least 1")
    require_choice("degree", degree, DEGREES)
    x = prompts.x[:, :-1].double()
    if not is_single(v):
        lengths = as_float_tensor("v", v, "d").to(x)
        require(len(lengths) == prompts.d, "v", f"{len(lengths)} numbers", f"1 or d = {prompts.d} numbers")
        require_square(**{f"v[{i}]": float(length) for i, length in enumerate(lengths)})
        x, v = x / lengths, 1.0
    radial, n = as_kernel(kernel, v, 1e-3, math.inf), x.shape[1]  # type: ignore[arg-type]
    values, Q = torch.linalg.eigh(radial(x, x))
    values = values.clamp_min(0) + lam
    root = (Q * values.sqrt()[:, None]) @ Q.mT
    # In the basis of M^{1/2}: singular values of M^{1/2} Z, and M^{1/2} (I - projection) M^{1/2}.
    U, s, _ = torch.linalg.svd(
        root @ features(x, feature_width(radial), degree) / math.sqrt(n * (n + lam)), full_matrices=False
    )
    kept = s > _ZERO
    U = U * kept[:, None]
    left = root @ root - (root @ U) @ (root @ U).mT
    hi, least = float(torch.linalg.eigvalsh(left)[:, -1].max()), float(s[kept].min()) if kept.any() else 1.0
    return Interval(hi=margin * hi, least=min(0.5, least / margin), degree=degree)
