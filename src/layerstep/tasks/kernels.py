"""Kernels K(x, x'). A new kernel is a function and its entry in KERNELS."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import InputError, require
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


KERNELS: dict[str, Kernel] = {"gaussian": gaussian, "arccos1": arccos1}
BUILT_IN = frozenset(KERNELS.values())
#: log K of kernels that have values too small for a number.
LOG_KERNELS: dict[Kernel, Kernel] = {gaussian: log_gaussian}


def fingerprint(kernel: Kernel, d: int, v: float) -> str:
    """12 hex digits of the values between fixed points; none for a kernel of this file, which its name identifies."""
    if kernel in BUILT_IN:
        return ""
    x = probe_points(d)
    return digest_of_values(torch.stack([kernel(scale * x, scale * x, v) for scale in (1.0, 0.3, 3.0)]))


def probe_points(d: int) -> Float[Tensor, "7 d"]:
    """Seven points in [-1, 1]^d."""
    return torch.cos(torch.arange(1.0, 8.0, dtype=torch.float64).outer(torch.arange(1.0, d + 1.0, dtype=torch.float64)))


@functools.lru_cache(maxsize=1024)
def require_kernel(name: str, kernel: Kernel, d: int, v: float) -> None:
    """Raise InputError unless a kernel of the user's is one, on a few points: [n, m], finite, no eigenvalue below 0."""
    if kernel in BUILT_IN:
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
