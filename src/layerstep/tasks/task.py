"""A task is a distribution of prompts: inputs, kernel, noise. It is a frozen value."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import coerce_numbers, require, require_choice, require_count, require_kind, require_square
from layerstep.tasks import inputs as distributions
from layerstep.tasks import kernels
from layerstep.tasks.base import KernelTask
from layerstep.tasks.inputs import INPUTS, require_inputs
from layerstep.tasks.kernels import KERNELS, LOG_KERNELS, kernel_name, require_kernel

TWO_POINTS = (
    "inputs = 'sphere' with d = 1: a sphere in one dimension is two points, -1 and 1, and every kernel matrix on it "
    "has rank 2 at most. Take uniform or gaussian inputs."
)


@dataclass(frozen=True, kw_only=True)
class Task(KernelTask):
    """x_i ~ inputs, f ~ GP(0, K), y_i = f(x_i) + sigma ε_i for i = 1..N+1 (section 5, "Data generation").

    The defaults are the paper's. `input_std` is used by gaussian inputs only.
    """

    inputs: str = "sphere"
    kernel: Any = "gaussian"  # a name in KERNELS; a kernel itself is kept as its name
    d: int = 5
    N: int = 40
    v: float = 1.0
    sigma: float = 0.05
    input_std: float = 0.6

    def __post_init__(self) -> None:
        require_choice("inputs", self.inputs, INPUTS, "In Python, ls.INPUTS takes a function of your own.")
        object.__setattr__(self, "kernel", kernel_name(self.kernel))
        require_count(d=self.d, N=self.N)
        require_square(v=self.v, sigma=self.sigma, input_std=self.input_std)
        largest = 1e75  # yᵀ(K + lam I)y is of size sigma⁴
        require(self.sigma <= largest, "sigma", self.sigma, f"at most {largest:g}, so that solvers' sums are finite")
        coerce_numbers(self)
        require_inputs(self.inputs, INPUTS[self.inputs], self.d, self.input_std)
        require_kernel(self.kernel, KERNELS[self.kernel], self.d, self.v)
        if kernels.is_built_in(KERNELS[self.kernel]):  # of the user's, values were just seen
            one = torch.ones(1, 1, dtype=torch.float64)
            size = float(self.gram(one, one).abs())
            told = f"of size {size:.2g} where v = {self.v}"
            require(size <= largest**2, "kernel values", told, f"at most {largest**2:g}", "Take a larger v.")

    def gram(self, x: Float[Tensor, "*batch n d"], z: Float[Tensor, "*batch m d"]) -> Float[Tensor, "*batch n m"]:
        """Kernel values between two sets of points."""
        return KERNELS[self.kernel](x, z, self.v)

    def log_gram(self, x: Float[Tensor, "*batch n d"], z: Float[Tensor, "*batch m d"]) -> Float[Tensor, "*batch n m"]:
        """log K, also where the Gaussian kernel underflows."""
        log = LOG_KERNELS.get(KERNELS[self.kernel])
        return log(x, z, self.v) if log else self.gram(x, z).clamp_min(torch.finfo(x.dtype).tiny).log()

    def draw_inputs(self, normals: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Inputs x from standard normals."""
        if self.inputs == "sphere" and self.d == 1:
            warnings.warn(TWO_POINTS, stacklevel=3)
        return INPUTS[self.inputs](normals, self.input_std)

    @property
    def fingerprints(self) -> dict[str, str]:
        """What the user's own functions are by their values: names in KERNELS and INPUTS can be given twice."""
        found = {
            "inputs": distributions.fingerprint(INPUTS[self.inputs], self.d, self.input_std),
            "kernel": kernels.fingerprint(KERNELS[self.kernel], self.d, self.v),
        }
        return {name: digits for name, digits in found.items() if digits}

    def to_dict(self) -> dict[str, Any]:
        """The fields, and `fingerprints` where a function is the user's own."""
        return asdict(self) | ({"fingerprints": self.fingerprints} if self.fingerprints else {})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Task:
        """The task of `to_dict`; an InputError where its functions are not those of this process."""
        require_kind("task", values, Mapping, "Such as Task().to_dict().")
        recorded = values.get("fingerprints", {})
        require_kind("fingerprints", recorded, Mapping)
        task = from_fields(cls, {name: value for name, value in values.items() if name != "fingerprints"}, "task")
        own = task.fingerprints
        if "kernel" in recorded and "kernel" not in own:  # of the user's once, built in now
            own = own | {"kernel": kernels.digits(KERNELS[task.kernel], task.d, task.v)}
        for name in {**recorded, **own}:
            require(
                recorded.get(name) == own.get(name),
                name,
                repr(getattr(task, name, None)),
                "the function it was when this was written: it has other values",
                f"Register that one in ls.{'KERNELS' if name == 'kernel' else 'INPUTS'}, or choose another name.",
            )
        return task


Value = TypeVar("Value")


def from_fields(kind: type[Value], values: Mapping[str, Any], what: str) -> Value:
    """A dataclass from its dictionary; unknown keys are refused, for they would silently change nothing."""
    require_kind(what, values, Mapping)
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    unknown = sorted({str(name) for name in values} - set(known))
    require(not unknown, f"{what} keys", ", ".join(unknown), f"among {', '.join(known)}", "Check the spelling.")
    return kind(**values)
