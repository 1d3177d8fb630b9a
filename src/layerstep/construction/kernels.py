"""Radial kernels K(x, x') = profile(|x - x'| / v) as values: what is wanted, and Gaussians that sum to it.

A head of attention computes one Gaussian. By Schoenberg's theorem a profile is a kernel in every dimension if and only
if it is a mixture of Gaussians, and attention heads add: `GaussianMixture` is what a network computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.construction.fits import MOST_HEADS, certified_error, fit_mixture
from layerstep.errors import (
    InputError,
    as_float,
    quoted,
    require,
    require_count,
    require_kind,
    require_positive,
    require_square,
)
from layerstep.tasks.kernels import distance, gaussian
from layerstep.tasks.task import from_fields

Points = Float[Tensor, "*batch n d"]
Gram = Float[Tensor, "*batch n m"]


@dataclass(frozen=True, kw_only=True)
class Matern:
    """nu = 1/2: exp(-r); 3/2: (1 + √3 r) exp(-√3 r); 5/2: (1 + √5 r + 5 r²/3) exp(-√5 r).

    The squared widths of its Gaussians have the distribution Gamma(nu, rate nu).
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        ok = as_float(self.nu) in (0.5, 1.5, 2.5)
        require(ok, "nu", quoted(self.nu), "0.5, 1.5 or 2.5", 'For an infinite nu take kernel="gaussian".')
        object.__setattr__(self, "nu", float(self.nu))

    @property
    def name(self) -> str:
        return f"matern{2 * self.nu:.0f}2"

    def __call__(self, r: Tensor) -> Tensor:
        s = math.sqrt(2 * self.nu) * r
        polynomial = {0.5: 1.0, 1.5: 1 + s, 2.5: 1 + s + s * s / 3}[self.nu]
        return polynomial * torch.exp(-s)

    def slope(self, t: Tensor) -> Tensor:
        """The derivative with respect to t = r²."""
        s = (2 * self.nu * t).sqrt()
        factor = {0.5: 0.5 / s.clamp_min(1e-300), 1.5: 1.5 + 0 * s, 2.5: 5 / 6 * (1 + s)}[self.nu]
        return -factor * torch.exp(-s)

    def widths(self, missing: float, beyond: float) -> tuple[float, float]:
        """Widths below and above which there are these shares of the Gaussians."""
        from scipy.special import gammainccinv, gammaincinv

        low, high = gammaincinv(self.nu, missing), gammainccinv(self.nu, beyond)
        return math.sqrt(low / self.nu), math.sqrt(high / self.nu)


@dataclass(frozen=True, kw_only=True)
class RationalQuadratic:
    """(1 + r² / 2 alpha)^-alpha; alpha = 1/2 is the inverse multiquadric 1 / √(1 + r²).

    The inverses of the squared widths of its Gaussians have the distribution Gamma(alpha, rate alpha).
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        ok = 0.1 <= as_float(self.alpha) <= 100
        require(ok, "alpha", quoted(self.alpha), "from 0.1 to 100", 'For a larger one take kernel="gaussian".')
        object.__setattr__(self, "alpha", float(self.alpha))

    @property
    def name(self) -> str:
        return "inverse-multiquadric" if self.alpha == 0.5 else "rational-quadratic"

    def __call__(self, r: Tensor) -> Tensor:
        return torch.exp(-self.alpha * torch.log1p(r * r / (2 * self.alpha)))

    def slope(self, t: Tensor) -> Tensor:
        """The derivative with respect to t = r²."""
        return -0.5 * torch.exp(-(self.alpha + 1) * torch.log1p(t / (2 * self.alpha)))

    def widths(self, missing: float, beyond: float) -> tuple[float, float]:
        """Widths below and above which there are these shares of the Gaussians."""
        from scipy.special import gammainccinv, gammaincinv

        low, high = gammaincinv(self.alpha, beyond), gammainccinv(self.alpha, missing)
        return math.sqrt(self.alpha / high), math.sqrt(self.alpha / low)


Profile = Matern | RationalQuadratic


@dataclass(frozen=True, kw_only=True)
class GaussianMixture:
    """Σ_s weights_s exp(-r² / 2 widths_s²), r = |x - x'| / v, within `error` of a kernel for all r <= reach.

    weights: above 0, of sum 1, so that K(x, x) = 1 (a kernel of another size: divide it, and lam, by that).
    target: the kernel that is meant, where it is one of this module; then `error` is checked, by a proof
    (`certified_error`), and holds for the mixture that `fit` makes. Left out, the mixture itself is meant where error
    is 0, and a kernel that nobody knows here where it is not: distances beyond `reach` are refused then.
    """

    weights: tuple[float, ...]
    widths: tuple[float, ...]
    error: float = 0.0
    reach: float = math.inf
    target: Profile | None = None

    def __post_init__(self) -> None:
        for name in ("weights", "widths"):
            try:
                values = tuple(float(value) for value in getattr(self, name))
            except (TypeError, ValueError) as error:
                raise InputError(f"{name} = {quoted(getattr(self, name))}: must be numbers above 0.") from error
            object.__setattr__(self, name, values)
        same = len(self.weights) == len(self.widths) >= 1
        require(same, "weights, widths", f"{len(self.weights)} and {len(self.widths)} numbers", "as many, one or more")
        require_positive(**{f"weights[{s}]": weight for s, weight in enumerate(self.weights)})
        require_square(**{f"widths[{s}]": width for s, width in enumerate(self.widths)})
        total = math.fsum(self.weights)
        require(abs(total - 1) <= 1e-9, "weights", f"of sum {total}", "of sum 1", "Divide them, and lam, by their sum.")
        require(0 <= as_float(self.error) < 1, "error", quoted(self.error), "a number from 0 to 1, without 1")
        require(as_float(self.reach) > 0, "reach", quoted(self.reach), "above 0, or infinite")
        if abs(total - 1) > 2.0**-48:
            object.__setattr__(self, "weights", tuple(weight / total for weight in self.weights))
        for name in ("error", "reach"):
            object.__setattr__(self, name, as_float(getattr(self, name)))
        if self.target is not None:
            require_kind("target", self.target, (Matern, RationalQuadratic))
            proved = certified_error(self.weights, self.widths, self.target, self.reach)
            remedy = "GaussianMixture.fit makes one with its error."
            require(self.error >= proved, "error", self.error, f"at least {proved:.3g}, the certified one", remedy)

    @classmethod
    def fit(
        cls, target: Profile | str, error: float = 1e-4, reach: float = math.inf, heads: int = MOST_HEADS
    ) -> GaussianMixture:
        """The fewest Gaussians that were found within `error` of `target` at all r <= reach; `heads` at most."""
        profile = as_profile(target)
        require(1e-10 <= as_float(error) < 1, "error", quoted(error), "from 1e-10 to 1")
        require(as_float(reach) > 0, "reach", quoted(reach), "above 0, or infinite")
        require_count(1, MOST_HEADS, heads=heads)
        if profile is None:
            return cls(weights=(1.0,), widths=(1.0,))
        weights, widths, proved = fit_mixture(profile, float(error), as_float(reach), heads)
        return cls(weights=weights, widths=widths, error=proved, reach=reach, target=profile)

    def __call__(self, r: Tensor) -> Tensor:
        """The mixture itself."""
        total = torch.zeros_like(r)
        for weight, width in zip(self.weights, self.widths, strict=True):
            total += weight * torch.exp(-(r / width).square() / 2)
        return total

    def to_dict(self) -> dict[str, Any]:
        """For files."""
        own = {"weights": list(self.weights), "widths": list(self.widths), "error": self.error}
        finite = {"reach": self.reach} if self.reach < math.inf else {}
        if isinstance(self.target, Matern):
            return own | finite | {"nu": self.target.nu}
        return own | finite | ({"alpha": self.target.alpha} if self.target else {})

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> GaussianMixture:
        require_kind("fields", fields, Mapping, "Such as GaussianMixture(..).to_dict().")
        own: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        target = None
        if "nu" in own:
            target = Matern(nu=own.pop("nu"))
        elif "alpha" in own:
            target = RationalQuadratic(alpha=own.pop("alpha"))
        return from_fields(GaussianMixture, own | {"target": target}, "fields")


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """K(x, x') = exp(-|x - x'|² / 2v²)."""

    v: float

    error = beyond = doubt = 0.0
    reach = math.inf
    operations = 0

    def __post_init__(self) -> None:
        require_square(v=self.v)
        # NumPy's numbers are welcome, but weights and files are made of Python's.
        object.__setattr__(self, "v", float(self.v))

    def __call__(self, x: Points, z: Float[Tensor, "*batch m d"]) -> Gram:
        return gaussian(x, z, self.v)

    @property
    def parts(self) -> list[tuple[float, Gaussian]]:
        """Weights, and the Gaussian of each head."""
        return [(1.0, self)]

    def steepness(self, r: Tensor) -> Tensor:
        """The largest |dK / dr| at distances of r v and more: s exp(-s²/2), which falls beyond s = 1."""
        s = r.clamp(min=1, max=100)  # exp(-100²/2) is 0
        return s * torch.exp(-s.square() / 2)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The kernel profile(|x - x'| / v), of which a network computes the Gaussians of `mixture`."""

    v: float
    mixture: GaussianMixture

    def __post_init__(self) -> None:
        require_square(v=self.v)
        object.__setattr__(self, "v", float(self.v))
        for _, part in self.parts:
            require_square(**{"v times a width of the mixture": part.v})

    def __call__(self, x: Points, z: Float[Tensor, "*batch m d"]) -> Gram:
        """The kernel that is meant; the mixture where nothing else is known."""
        return (self.mixture.target or self.mixture)(distance(x, z) / self.v)

    @property
    def parts(self) -> list[tuple[float, Gaussian]]:
        """Weights, and the Gaussian of each head."""
        widths = [self.v * width for width in self.mixture.widths]
        return [(weight, Gaussian(v=width)) for weight, width in zip(self.mixture.weights, widths, strict=True)]

    @property
    def error(self) -> float:
        """The largest distance of what the network computes from what is meant, at distances within `reach`."""
        return self.mixture.error

    @property
    def reach(self) -> float:
        return self.v * self.mixture.reach

    @property
    def doubt(self) -> float:
        """How far `__call__` may be from what is meant."""
        return self.mixture.error if self.mixture.target is None else 0.0

    @property
    def operations(self) -> int:
        """Roundings of `__call__` beside those of a Gaussian: of a profile, or of a sum."""
        return 16 + len(self.mixture.weights)

    @property
    def beyond(self) -> float:
        """The same at any distance: both fall, so what they are at `reach` is the most. 1 where it is not known."""
        if self.mixture.reach == math.inf or (self.mixture.target is None and self.mixture.error == 0):
            return self.mixture.error
        if self.mixture.target is None:
            return 1.0
        r = torch.tensor(self.mixture.reach, dtype=torch.float64)
        return max(self.mixture.error, *(float(profile(r)) for profile in (self.mixture.target, self.mixture)))

    def steepness(self, r: Tensor) -> Tensor:
        """The largest |dK / dr| at distances of r v and more.

        K = Σ c exp(-r²/2w²) has |dK / dr| = Σ c (r/w²) exp(-r²/2w²): at most Σ (c/w) exp(-1/2), at most 1 for the
        kernels of this module, and at most (2/e) / r.
        """
        steepest = 1.0
        if self.mixture.target is None:
            both = zip(self.mixture.weights, self.mixture.widths, strict=True)
            steepest = sum(weight / width for weight, width in both) * math.exp(-0.5)
        return (2 / math.e / r.clamp_min(1e-300)).clamp(max=steepest)


Kernel = Gaussian | Mixture

PROFILES: dict[str, Profile | None] = {
    "gaussian": None,
    "rbf": None,
    "matern12": Matern(nu=0.5),
    "exponential": Matern(nu=0.5),
    "matern32": Matern(nu=1.5),
    "matern": Matern(nu=1.5),
    "matern52": Matern(nu=2.5),
    "rational-quadratic": RationalQuadratic(),
    "inverse-multiquadric": RationalQuadratic(alpha=0.5),
}
_NO_NUMBER = "It is not a mixture of Gaussians in |x - x'|, which is what heads of attention add to. "
#: Kernels that no network here computes, and what comes nearest.
REFUSED = {
    "periodic": _NO_NUMBER + "In one dimension it is the Gaussian kernel of (cos 2πx/p, sin 2πx/p): pass these inputs.",
    "arccos1": _NO_NUMBER + 'It depends on |x| and angles: "matern32" on inputs divided by |x| is as smooth.',
    "linear": _NO_NUMBER + 'It does not fall with distance: "gaussian" with v of ten times |x| is nearly linear.',
    "polynomial": _NO_NUMBER + 'It does not fall with distance: "gaussian" with v of a few times |x| comes near.',
    "sigmoid": _NO_NUMBER + 'It has negative eigenvalues, too: take "gaussian".',
}
_OTHER_NAMES = {"arc-cosine": "arccos1", "arccos": "arccos1", "poly": "polynomial", "cosine": "arccos1"}


def as_profile(kernel: Any) -> Profile | None:
    """The profile of a name; None for the Gaussian one. InputError says why others do not work."""
    if isinstance(kernel, Profile):
        return kernel
    name = _OTHER_NAMES.get(kernel, kernel) if isinstance(kernel, str) else kernel
    if isinstance(name, str) and name in PROFILES:
        return PROFILES[name]
    why = REFUSED.get(name, "") if isinstance(name, str) else ""
    known = ", ".join(f'"{each}"' for each in PROFILES)
    remedy = why or "For another mixture of Gaussians pass GaussianMixture(weights=.., widths=.., error=..)."
    require(False, "kernel", quoted(kernel), f"one of {known}, Matern, RationalQuadratic or GaussianMixture", remedy)
    return None


def as_kernel(kernel: Any, v: float, error: float, reach: float, heads: int = MOST_HEADS) -> Kernel:
    """The kernel that a user names, of length scale v; fitted to `error` at distances up to `reach` where need is."""
    require_square(v=v)
    if isinstance(kernel, Mapping):
        kernel = GaussianMixture.from_dict(kernel)
    if isinstance(kernel, GaussianMixture):
        return Mixture(v=v, mixture=kernel)
    profile = as_profile("gaussian" if kernel is None else kernel)
    if profile is None:
        return Gaussian(v=v)
    return Mixture(v=v, mixture=GaussianMixture.fit(profile, error, reach / v, heads))
