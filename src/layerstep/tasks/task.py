"""A task is a law of prompts: inputs, kernel, noise. It is a frozen value."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import coerce_numbers, require_choice, require_count, require_square
from layerstep.tasks.inputs import INPUTS, require_law
from layerstep.tasks.kernels import KERNELS, log_gaussian, require_kernel


@dataclass(frozen=True, kw_only=True)
class Task:
    """x_i ~ inputs, f ~ GP(0, K), y_i = f(x_i) + sigma ε_i for i = 1..N+1 (section 5, "Data generation").

    The defaults are the paper's. `input_std` is used by gaussian inputs only.
    """

    inputs: str = "sphere"
    kernel: str = "gaussian"
    d: int = 5
    N: int = 40
    v: float = 1.0
    sigma: float = 0.05
    input_std: float = 0.6

    def __post_init__(self) -> None:
        require_choice("inputs", self.inputs, INPUTS, "In Python, ls.INPUTS takes a law of your own.")
        require_choice("kernel", self.kernel, KERNELS, "In Python, ls.KERNELS takes a kernel of your own.")
        require_count(d=self.d, N=self.N)
        require_square(v=self.v, sigma=self.sigma, input_std=self.input_std)
        coerce_numbers(self)
        require_law(self.inputs, INPUTS[self.inputs], self.d, self.input_std)
        require_kernel(self.kernel, KERNELS[self.kernel], self.d, self.v)

    @property
    def lam(self) -> float:
        """The ridge: lam = sigma², which makes kernel ridge regression the posterior mean."""
        return self.sigma**2

    def gram(self, x: Float[Tensor, "*batch n d"], z: Float[Tensor, "*batch m d"]) -> Float[Tensor, "*batch n m"]:
        """Kernel values between two sets of points."""
        return KERNELS[self.kernel](x, z, self.v)

    def log_gram(self, x: Float[Tensor, "*batch n d"], z: Float[Tensor, "*batch m d"]) -> Float[Tensor, "*batch n m"]:
        """log K, also where the Gaussian kernel underflows."""
        if self.kernel == "gaussian":
            return log_gaussian(x, z, self.v)
        return self.gram(x, z).clamp_min(torch.finfo(x.dtype).tiny).log()

    def law(self, normals: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Inputs x from standard normals."""
        return INPUTS[self.inputs](normals, self.input_std)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
