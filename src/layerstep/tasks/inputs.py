"""Laws of the inputs x. A new law is one map from standard normals and one entry of INPUTS.

Every law is written as a map of standard normal draws z, so that one stream of random numbers serves all.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Points = Float[Tensor, "*batch d"]
InputLaw = Callable[[Tensor, float], Tensor]


def sphere(z: Points, input_std: float) -> Points:
    """Uniform on the unit sphere."""
    return z / z.norm(dim=-1, keepdim=True)


def uniform(z: Points, input_std: float) -> Points:
    """Uniform on the cube [-1, 1]^d: 2Φ(z) - 1 = erf(z / √2)."""
    return torch.erf(z / math.sqrt(2))


def gaussian(z: Points, input_std: float) -> Points:
    """Normal with standard deviation `input_std` in every coordinate."""
    return input_std * z


INPUTS: dict[str, InputLaw] = {"sphere": sphere, "uniform": uniform, "gaussian": gaussian}
