"""Distributions of the inputs x. A new one is a map from standard normals and its entry in INPUTS.

Each is a map of standard normal draws z, so that one stream of random numbers serves all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import InputError, require
from layerstep.files import digest_of_values

Points = Float[Tensor, "*batch d"]
InputDistribution = Callable[[Tensor, float], Tensor]


def sphere(z: Points, input_std: float) -> Points:
    """Uniform on the unit sphere."""
    return z / z.norm(dim=-1, keepdim=True)


def uniform(z: Points, input_std: float) -> Points:
    """Uniform on the cube [-1, 1]^d: 2Φ(z) - 1 = erf(z / √2)."""
    return torch.erf(z / math.sqrt(2))


def gaussian(z: Points, input_std: float) -> Points:
    """Normal with standard deviation `input_std` in every coordinate."""
    return input_std * z


INPUTS: dict[str, InputDistribution] = {"sphere": sphere, "uniform": uniform, "gaussian": gaussian}
BUILT_IN = frozenset(INPUTS.values())


def fingerprint(inputs: InputDistribution, d: int, input_std: float) -> str:
    """12 hex digits of the values on fixed normals; none for a distribution of this file, which its name identifies."""
    return "" if inputs in BUILT_IN else digest_of_values(inputs(probe_normals(d), input_std))


def probe_normals(d: int) -> Float[Tensor, "2 7 d"]:
    """The quantiles .001 to .999 of a standard normal."""
    return torch.special.ndtri(torch.linspace(0.001, 0.999, 14 * d, dtype=torch.float64)).view(2, 7, d)


@functools.lru_cache(maxsize=1024)
def require_inputs(name: str, inputs: InputDistribution, d: int, input_std: float) -> None:
    """Raise InputError unless a user's function is a distribution of inputs: the shape and type of z, finite."""
    if inputs in BUILT_IN:
        return
    z = probe_normals(d)
    wanted = "a function of standard normals z [.., d] and input_std whose values have the shape of z and are finite"
    try:
        wide, flat, single = (inputs(normals.clone(), input_std) for normals in (z, z[0], z.float()))
    except Exception as error:
        raise InputError(f"inputs = {name!r}: must be {wanted}. It raised {type(error).__name__}: {error}") from error
    shapes = [list(x.shape) if isinstance(x, Tensor) else type(x).__name__ for x in (wide, flat, single)]
    told = f"{name!r}, which gives {shapes[0]} for z of shape {[2, 7, d]} and {shapes[1]} for {[7, d]}"
    require(shapes == [[2, 7, d], [7, d], [2, 7, d]], "inputs", told, wanted)
    kept = (wide.dtype, single.dtype) == (torch.float64, torch.float32)
    told = f"{name!r}, which gives {wide.dtype} for float64 and {single.dtype} for float32"
    require(kept, "inputs", told, "a function that keeps the precision of z", "Make its constants with z.new_tensor.")
    finite = bool(wide.isfinite().all() and single.isfinite().all())
    require(finite, "inputs", f"{name!r}, which gives NaN or infinite values", wanted)
