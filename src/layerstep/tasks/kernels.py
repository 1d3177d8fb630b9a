"""Kernels K(x, x'). A new kernel is a function and its entry in KERNELS, or a name `package.module:function`.

A kernel with parameters is a value, and its name says them: "polynomial:3" is Polynomial(degree=3).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import (
    InputError,
    as_float,
    coerce_numbers,
    quoted,
    require,
    require_choice,
    require_count,
    require_positive,
)
from layerstep.files import digest_of_values

Points = Float[Tensor, "*batch n d"]
Gram = Float[Tensor, "*batch n m"]
Kernel = Callable[[Tensor, Tensor, float], Tensor]


def distance(x: Points, z: Float[Tensor, "*batch m d"]) -> Gram:
    """|x - x'| from differences, not from |x|² + |z|² - 2x·z: that form cancels for near-duplicates."""
    if x.is_cuda:  # cdist without products takes sixty times as long there
        differences = (x[..., i].unsqueeze(-1) - z[..., i].unsqueeze(-2) for i in range(x.shape[-1]))
        return sum((difference.square() for difference in differences), start=torch.zeros((), device=x.device)).sqrt()
    return torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist")


def log_gaussian(x: Points, z: Float[Tensor, "*batch m d"], v: float) -> Gram:
    """log K(x, x') = -|x - x'|² / 2v², also where K is too small for a number."""
    return distance(x, z).square() / (-2 * v * v)


def gaussian(x: Points, z: Float[Tensor, "*batch m d"], v: float) -> Gram:
    """K(x, x') = exp(-|x - x'|² / 2v²), eq. (1) of the paper; exactly 1 where x = x'."""
    return torch.exp(log_gaussian(x, z, v))


def arccos1(x: Points, z: Float[Tensor, "*batch m d"], v: float) -> Gram:
    """K(x, x') = |x||x'| (sin θ + (π - θ) cos θ) / π, Cho and Saul's order 1; `v` scales the inputs."""
    norm_x = x.norm(dim=-1, keepdim=True)
    norm_z = z.norm(dim=-1, keepdim=True)
    unit_x = x / norm_x.clamp_min(torch.finfo(x.dtype).tiny)
    unit_z = z / norm_z.clamp_min(torch.finfo(z.dtype).tiny)
    # The angle from chords: accurate near 0 and π, where acos of the cosine loses half the digits.
    apart, opposite = distance(unit_x, unit_z), distance(unit_x, -unit_z)
    theta = 2 * torch.atan2(apart, opposite)
    profile = (torch.sin(theta) + (math.pi - theta) * torch.cos(theta)) / math.pi
    return norm_x * norm_z.transpose(-1, -2) * profile / (v * v)


def linear(x: Points, z: Float[Tensor, "*batch m d"], v: float) -> Gram:
    """K(x, x') = x · x' / v²: f is a linear function, with weights N(0, 1/v²)."""
    return x @ z.mT / (v * v)


def matern12(x: Points, z: Float[Tensor, "*batch m d"], v: float) -> Gram:
    """K(x, x') = exp(-|x - x'| / v), the Laplace kernel; f is continuous, and rough."""
    return torch.exp(-distance(x, z) / v)


def matern32(x: Points, z: Float[Tensor, "*batch m d"], v: float) -> Gram:
    """K(x, x') = (1 + s) exp(-s), s = √3 |x - x'| / v; f has a derivative."""
    s = math.sqrt(3) / v * distance(x, z)
    return (1 + s) * torch.exp(-s)


def matern52(x: Points, z: Float[Tensor, "*batch m d"], v: float) -> Gram:
    """K(x, x') = (1 + s + s²/3) exp(-s), s = √5 |x - x'| / v; f has two derivatives."""
    s = math.sqrt(5) / v * distance(x, z)
    return (1 + s + s.square() / 3) * torch.exp(-s)


class Named:
    """A kernel with parameters: a frozen dataclass, whose name says those that are not the defaults."""

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        values = [getattr(self, each.name) for each in fields(self)]  # type: ignore[arg-type]
        while values and values[-1] == fields(self)[len(values) - 1].default:  # type: ignore[arg-type]
            values.pop()
        return ":".join([self.kind, *([",".join(f"{value!r}" for value in values)] if values else [])])


@dataclass(frozen=True)
class Polynomial(Named):
    """K(x, x') = (x · x' / v² + offset)^degree."""

    kind: ClassVar[str] = "polynomial"

    degree: int = 2
    offset: float = 1.0

    def __post_init__(self) -> None:
        require_count(1, 20, degree=self.degree)
        known = 0 <= as_float(self.offset) <= 1e6
        require(known, "offset", quoted(self.offset), "a number from 0 to 1e6, or K has eigenvalues below 0")
        coerce_numbers(self)

    def __call__(self, x: Points, z: Float[Tensor, "*batch m d"], v: float) -> Gram:
        return (x @ z.mT / (v * v) + self.offset) ** self.degree


@dataclass(frozen=True)
class RationalQuadratic(Named):
    """K(x, x') = (1 + |x - x'|² / (2 alpha v²))^-alpha: Gaussian kernels of many bandwidths at once."""

    kind: ClassVar[str] = "rational-quadratic"

    alpha: float = 1.0

    def __post_init__(self) -> None:
        require_positive(alpha=self.alpha)
        coerce_numbers(self)

    def __call__(self, x: Points, z: Float[Tensor, "*batch m d"], v: float) -> Gram:
        return (1 + distance(x, z).square() / (2 * self.alpha * v * v)) ** -self.alpha


WITH_PARAMETERS: dict[str, type] = {kind.kind: kind for kind in (Polynomial, RationalQuadratic)}


class Kernels(dict[str, Kernel]):
    """Kernels by name; names with parameters, "polynomial:3", are understood and need no entry."""

    def __missing__(self, name: str) -> Kernel:
        kind, colon, text = name.partition(":") if isinstance(name, str) else ("", "", "")
        if kind not in WITH_PARAMETERS or not colon:
            raise KeyError(name)
        kernel = WITH_PARAMETERS[kind]
        parts, known = text.split(","), fields(kernel)
        allowed = f"{kind}:{','.join(each.name.upper() for each in known)}, such as {kind}:3"
        require(len(parts) <= len(known), "kernel", repr(name), allowed)
        try:
            values = [type(each.default)(part) for each, part in zip(known, parts, strict=False)]
        except ValueError:
            raise InputError(f"kernel = {quoted(name)}: must be {allowed}.") from None
        return kernel(*values)


KERNELS: dict[str, Kernel] = Kernels(
    {
        "gaussian": gaussian,
        "arccos1": arccos1,
        "linear": linear,
        "polynomial": Polynomial(),
        "matern12": matern12,
        "matern32": matern32,
        "matern52": matern52,
        "rational-quadratic": RationalQuadratic(),
    }
)
FUNCTIONS = frozenset(kernel for kernel in KERNELS.values() if not isinstance(kernel, Named))
#: log K of kernels that have values too small for a number.
LOG_KERNELS: dict[Kernel, Kernel] = {gaussian: log_gaussian}


def is_built_in(kernel: object) -> bool:
    """Whether it is a kernel of this file, which its name identifies."""
    return type(kernel) in WITH_PARAMETERS.values() or kernel in FUNCTIONS


def kernel_name(kernel: Any) -> str:
    """The name that KERNELS knows it by, of a name or of a kernel itself: a function of the user's gets its own.

    Nothing is imported because it is named.
    """
    if isinstance(kernel, Named):
        return kernel.name
    if callable(kernel):
        return _registered(kernel)
    found = KERNELS.get(kernel) if isinstance(kernel, str) else None
    with contextlib.suppress(KeyError, TypeError):
        found = found or KERNELS[kernel]  # type: ignore[index]
    if found is None:
        remedy = "In Python, ls.KERNELS takes a function of your own; on the command line --import MODULE that does so."
        if isinstance(kernel, str) and ":" in kernel:
            remedy = f"Import it: ls.import_kernel({kernel!r}), on the command line --kernel {kernel}."
        require_choice("kernel", kernel, KERNELS, remedy)
    assert isinstance(kernel, str)
    return found.name if isinstance(found, Named) and kernel not in KERNELS else kernel


def _registered(kernel: Callable[..., Any]) -> str:
    """Enter a function of the user's in KERNELS, by the name it can be imported with."""
    for name, known in KERNELS.items():
        if known is kernel:
            return name
    name = f"{getattr(kernel, '__module__', '')}:{getattr(kernel, '__qualname__', '<>')}"
    own = "<" not in name
    remedy = "Or give it one: ls.KERNELS['mine'] = function."
    require(own, "kernel", quoted(kernel), "a function defined in a module, which has a name", remedy)
    other = KERNELS.get(name)
    same = other is None or fingerprint(other, 3, 1.0) == fingerprint(kernel, 3, 1.0)
    require(same, "kernel", name, "another name: there is a function with other values by this one", remedy)
    KERNELS[name] = kernel
    return name


def import_kernel(name: str) -> str:
    """Import `package.module:function` and enter it in KERNELS by this name, which is returned."""
    module, colon, function = name.partition(":") if isinstance(name, str) else ("", "", "")
    allowed = "package.module:function"
    require(bool(module and colon and function), "kernel", quoted(name), allowed)
    try:
        kernel = importlib.import_module(module)
        for part in function.split("."):
            kernel = getattr(kernel, part)
    except Exception as error:  # a module of the user's may raise anything
        words = f"{type(error).__name__}: {error}"
        raise InputError(f"kernel = {quoted(name)}: cannot be imported ({words}). It must be {allowed}.") from error
    require(callable(kernel), "kernel", quoted(name), "a function of x, z and v")
    KERNELS[name] = kernel  # type: ignore[assignment]
    return name


def fingerprint(kernel: Kernel, d: int, v: float) -> str:
    """12 hex digits of the values between fixed points; none for a kernel of this file, which its name identifies."""
    return "" if is_built_in(kernel) else digits(kernel, d, v)


def digits(kernel: Kernel, d: int, v: float) -> str:
    """The same of any kernel."""
    x = probe_points(d)
    return digest_of_values(torch.stack([kernel(scale * x, scale * x, v) for scale in (1.0, 0.3, 3.0)]))


def probe_points(d: int) -> Float[Tensor, "7 d"]:
    """Seven points in [-1, 1]^d."""
    return torch.cos(torch.arange(1.0, 8.0, dtype=torch.float64).outer(torch.arange(1.0, d + 1.0, dtype=torch.float64)))


@functools.lru_cache(maxsize=1024)
def require_kernel(name: str, kernel: Kernel, d: int, v: float) -> None:
    """Raise InputError unless a kernel of the user's is one, on a few points: [n, m], finite, no eigenvalue below 0."""
    if is_built_in(kernel):
        return
    x = probe_points(d)
    wanted = "a function of x [n, d], z [m, d] and v whose values [n, m] are finite, symmetric, no eigenvalue below 0"
    try:
        K = kernel(x, x[:5], v)
        wide, single = (kernel(points, points, v) for points in (x.expand(2, 7, d), x.float()))
    except Exception as error:
        raise InputError(f"kernel = {name!r}: must be {wanted}. It raised {type(error).__name__}: {error}") from error
    shapes = [list(each.shape) if isinstance(each, Tensor) else type(each).__name__ for each in (K, wide)]
    told = f"{name!r}, which gives {shapes[0]} for n = 7, m = 5 and {shapes[1]} for two batches of n = m = 7"
    require(shapes == [[7, 5], [2, 7, 7]], "kernel", told, wanted)
    kept = (wide.dtype, single.dtype) == (torch.float64, torch.float32)
    told = f"{name!r}, which gives {wide.dtype} for float64 and {single.dtype} for float32"
    require(kept, "kernel", told, "a function that keeps the precision of x", "Make its constants with x.new_tensor.")
    square = wide[0].double()
    require(bool(square.isfinite().all()), "kernel", f"{name!r}, which gives NaN or infinite values", wanted)
    lost = 1e-8 * float(square.abs().max())
    require(float((square - square.T).abs().max()) <= lost, "kernel", f"{name!r}, which is not symmetric", wanted)
    least = float(torch.linalg.eigvalsh(square)[0])
    require(least >= -lost, "kernel", f"{name!r}, which has an eigenvalue {least:.2g} on 7 points", wanted)
