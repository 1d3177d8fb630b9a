"""Prompts: N labelled points and one more, for many sequences at once; sampled, or the user's own arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from layerstep.errors import (
    InputError,
    as_device,
    as_dtype,
    as_float,
    in_words,
    require,
    require_seed,
)
from layerstep.memory import require_memory

# A tuple is not an ArrayLike to a checker at run time: it cannot be reversed.
Array = Tensor | ArrayLike | Sequence[float]

#: Kernel values held at a time (64 MiB of float64): bounds memory whatever B is.
BLOCK = 2**23


def is_single(value: object) -> bool:
    """Whether it is one thing, a number or not, rather than an array or a list."""
    try:
        return np.ndim(value) == 0  # type: ignore[arg-type]
    except (ValueError, RuntimeError, TypeError):  # rows of different lengths, tensors without numbers
        return False


def as_float_tensor(name: str, value: Array, axes: int | str, *, finite: bool = True) -> Tensor:
    """`value` as a floating-point tensor with finite entries, without gradients; or an InputError.

    axes: how many, or their names as a message shows them, "n, d".
    """
    if isinstance(value, Tensor):
        dense = value.layout == torch.strided and not value.is_meta
        require(dense, name, f"{value.layout}, on {value.device}", "a dense tensor with values")
    elif isinstance(value, Sequence):
        require_memory(name, value, 40 * len(value), "Give fewer numbers, or an array of them.")
    parts = [value, *value] if isinstance(value, (list, tuple)) else [value]
    hidden = sum(int(np.ma.getmaskarray(part).sum()) for part in parts if isinstance(part, np.ma.MaskedArray))
    require(hidden == 0, name, f"{hidden} masked values", "an array without a mask", "Remove or impute them.")
    try:
        # order="C" copies a reversed array, which torch does not take.
        tensor = value.detach() if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value, order="C"))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} is not an array of numbers: {error}.") from error
    if not tensor.is_floating_point():
        require(not tensor.is_complex(), name, "complex numbers", "real numbers")
        tensor = tensor.to(torch.float64)
    count, allowed = (axes, f"of {axes} axes") if isinstance(axes, int) else (axes.count(",") + 1, f"[{axes}]")
    require(tensor.ndim == count, f"{name}.shape", list(tensor.shape), allowed)
    bad = int((~torch.isfinite(tensor)).sum()) if finite else 0
    require(bad == 0, name, f"{bad} values that are NaN or infinite", "finite", "Remove or impute them.")
    return tensor


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Prompts:
    """B sequences of N+1 points: predict y_{n+1} at x_{n+1} from the first n pairs, for n = 1..N.

    x [B, N+1, d], y [B, N+1] noisy labels, f [B, N+1] the noiseless function where it is known. Precision and device
    are those of x: labels that need float64 need x in float64.
    """

    x: Float[Tensor, "B M d"]
    y: Float[Tensor, "B M"]
    f: Float[Tensor, "B M"] | None = None

    def __init__(self, x: Array, y: Array, f: Array | None = None) -> None:
        x = as_float_tensor("x", x, "B, N+1, d")
        B, M, d = x.shape
        layout = "Prompts hold x [B, N+1, d] and y [B, N+1]."
        require(B >= 1 and d >= 1, "x.shape", list(x.shape), "one sequence and one dimension or more", layout)
        require(M >= 2, "x.shape", list(x.shape), "at least two points per sequence (N >= 1)", layout)
        object.__setattr__(self, "x", x)
        for name, labels in {"y": y, "f": f}.items():
            if labels is not None:
                labels = as_float_tensor(name, labels, "B, N+1").to(x)
                require(labels.shape == (B, M), f"{name}.shape", list(labels.shape), f"{[B, M]}, as x has", layout)
            object.__setattr__(self, name, labels)

    def __repr__(self) -> str:
        known = "" if self.f is None else ", f known"
        return f"Prompts(B={self.B}, N={self.N}, d={self.d}, {self.x.dtype}, {self.x.device}{known})"

    @property
    def B(self) -> int:
        return self.x.shape[0]

    @property
    def N(self) -> int:
        return self.x.shape[1] - 1

    @property
    def d(self) -> int:
        return self.x.shape[2]

    @property
    def target(self) -> Float[Tensor, "B N"]:
        """The noisy labels y_2..y_{N+1}: what a prediction at context length n = 1..N is compared with."""
        return self.y[:, 1:]

    @property
    def noiseless_target(self) -> Float[Tensor, "B N"]:
        """The function values f(x_2)..f(x_{N+1})."""
        return self._function()[:, 1:]

    def __getitem__(self, sequences) -> Prompts:
        """A subset of the sequences: a slice, a list or a mask."""
        if isinstance(sequences, Integral):
            sequences = [int(sequences)]
        try:
            x, y, f = self.x[sequences], self.y[sequences], None if self.f is None else self.f[sequences]
        except (IndexError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"sequences = {in_words(sequences)}: do not fit B = {self.B} sequences: {error}."
            ) from error
        return Prompts(x, y, f)

    def to(self, dtype: torch.dtype | str | None = None, device: str | torch.device | None = None) -> Prompts:
        kind = None if dtype is None else as_dtype(dtype, remedy="A device is the second argument: device=...")
        place = None if device is None else as_device(device)

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device=place, dtype=kind)

        return Prompts(move(self.x), move(self.y), None if self.f is None else move(self.f))

    def scale_noise(self, factor: float) -> Prompts:
        """The same x, f and the same noise draws, times `factor`: y' = f + factor (y - f)."""
        f, factor = self._function(), as_float(factor)
        require(math.isfinite(factor), "factor", factor, "a finite number")
        return Prompts(self.x, f + factor * (self.y - f), f)

    def _function(self) -> Tensor:
        if self.f is None:
            raise InputError("these prompts have no noiseless function. Pass f= to Prompts, or use ls.sample.")
        return self.f


def normals(seed: int, step: int, stream: int, shape: tuple[int, ...]) -> Tensor:
    """Standard normals of the counter-based Philox generator: key (seed, step), one counter a stream."""
    require_seed(seed=seed, step=step)
    remedy = "Take fewer prompts, fewer points or fewer dimensions."
    require_memory("numbers to draw", math.prod(shape), 8 * math.prod(shape), remedy)
    bits = np.random.Philox(key=np.array([seed, step], dtype=np.uint64), counter=[0, 0, 0, stream])
    return torch.from_numpy(np.random.Generator(bits).standard_normal(shape))
