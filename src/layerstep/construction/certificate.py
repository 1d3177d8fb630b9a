"""What is promised, and what holds: a-priori certificates of a network, a-posteriori bounds of a prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from layerstep.construction.kernels import Kernel
from layerstep.reprs import shown

_ENTRIES = 2**22  # of a kernel matrix, held at a time


@dataclass(frozen=True)
class Constant:
    """A number of the certificate, with the sentence or formula that says what it is."""

    name: str
    value: float
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """|read-out - exact kernel ridge regression| <= bound, for every prompt that meets the assumptions.

    `bound` is None when only a depth was asked for and no theorem covers it. `trivial` is what the constant
    prediction 0 achieves: a bound above it says nothing. `parameters` counts every block's weights,
    `stored` counts shared weights once.
    """

    scheme: str
    bound: float | None
    trivial: float | None
    L: int
    depth: int
    width: int
    heads: int
    parameters: int
    stored: int
    assumptions: str
    constants: tuple[Constant, ...] = field(repr=False)

    @property
    def vacuous(self) -> bool:
        return self.bound is not None and self.trivial is not None and self.bound >= self.trivial

    def __getitem__(self, name: str) -> float:
        for constant in self.constants:
            if constant.name == name:
                return constant.value
        raise KeyError(f"{name!r}: this certificate has {', '.join(c.name for c in self.constants)}")

    def rows(self) -> list[tuple[str, str, str]]:
        """(name, value, meaning), for a table."""
        if self.bound is None:
            bound = ("bound", "none", "a depth was asked for, not an error; every prediction has its own bound")
        else:
            note = " (says nothing: predicting 0 does as well)" if self.vacuous else ""
            bound = ("bound", f"{self.bound:.4g}", f"|read-out - exact KRR| at most this{note}")
        counts = [
            ("L", f"{self.L:,}", "iterations"),
            ("depth", f"{self.depth:,}", "blocks"),
            ("width", f"{self.width:,}", "hidden units of the widest MLP"),
            ("heads", str(self.heads), "attention heads of a block"),
            ("parameters", f"{self.parameters:,}", f"weights of all blocks; {self.stored:,} stored, the rest shared"),
        ]
        constants = [(c.name, _number(c.value), c.meaning) for c in self.constants]
        return [bound, *counts, *constants, ("assumes", "", self.assumptions)]

    def __str__(self) -> str:
        rows = self.rows()
        first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
        lines = [f"  {name:<{first}}  {value:>{second}}  {meaning}" for name, value, meaning in rows]
        return "\n".join([f"certificate of the {self.scheme} network", *lines])

    def to_dict(self) -> dict[str, Any]:
        names = ("scheme", "bound", "trivial", "vacuous", "L", "depth", "width", "heads", "parameters", "stored")
        plain = {name: getattr(self, name) for name in (*names, "assumptions")}
        return plain | {"constants": {c.name: c.value for c in self.constants}}


def _number(value: float) -> str:
    whole = isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15)
    return f"{int(value):,}" if whole else f"{value:.6g}"


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """value [M] and bound [M]: |value - exact KRR| <= bound = iteration + readout + fit + arithmetic, for this prompt.

    iteration: the system that was not solved to the end, c_q |y - (K + lam I) w|. readout: |value - k_q·w|. K is the
    kernel that is meant, so that what Gaussians miss of it is in these two; fit: what they may miss of a kernel that
    is known by its distance from a mixture only. arithmetic: rounding in the evaluation. `promised` is the a-priori
    bound with this prompt's own labels and inputs: None where no theorem covers the steps, infinite where rounding may
    do anything to such inputs. above_promise: where the bound is above the promise, or that is infinite. Trust the
    bound.
    inside: |y - (K + lam I) w| / 2√lam as the network computed it in its last block (adaptive scheme); None without.
    K is there the sum of its Gaussians, the only kernel that a network knows; what they miss of another is in `bound`.
    """

    value: Float[Tensor, "M"]
    bound: Float[Tensor, "M"]
    iteration: Float[Tensor, "M"]
    readout: Float[Tensor, "M"]
    arithmetic: Float[Tensor, "M"]
    fit: Float[Tensor, "M"]
    promised: float | None
    above_promise: Bool[Tensor, "M"]
    inside: Float[Tensor, "M"] | None = None

    def __repr__(self) -> str:
        M, most = len(self.value), float(self.bound.max()) if len(self.bound) else 0.0
        of = shown(self.value.tolist()).strip("[]")
        promise = "" if self.promised is None else f", {self.promised:.3g} promised before"
        return f"Prediction({M} queries: {of}; bound at most {most:.3g}{promise})"


def certify(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "n"],
    xq: Float[Tensor, "M d"],
    w: Float[Tensor, "n"],
    value: Float[Tensor, "M"],
    kernel: Kernel,
    lam: float,
    promised: float | None = None,
    input_error: float = 0.0,
) -> Prediction:
    """|value - f*(q)| <= |value - k_q·w| + c_q |y - (K + lam I) w|, c_q = min(1/2, |k_q| / √lam) / √lam.

    Holds for any w and any value, whatever network or precision they came from: w - w* = -(K + lam I)^-1 r with the
    residual r, and |(K + lam I)^-1 k_q| <= c_q since k_q = K^{1/2} h with |h| <= 1. Evaluated in float64.

    A kernel K' that is only known to be within e of K, entry by entry: |k'_q·w - k_q·w| <= e |w|_1, its residual is
    longer by at most √n e |w|_1, and c_q is at most min(√(1 + e)/2, (|k_q| + √n e) / √lam) / √lam. That is `fit`.

    input_error: f* is meant for points and labels of which x, y and xq have this relative error.
    """
    x, y, xq, w, out = (tensor.to("cpu", torch.float64) for tensor in (x, y, xq, w, value))
    (n, d), size = x.shape, w.abs()
    u, tiny = torch.finfo(torch.float64).eps / 2, torch.finfo(torch.float64).tiny
    # A kernel value exp(-t) carries the relative error of t, (d + 6) u, as the absolute error (d + 6) u t exp(-t)
    # <= (d + 6) u / e; a sum of n terms adds n u of the sum of their sizes, and each product another u or two.
    moved, moved_q = _moved(x, xq, kernel, input_error) if input_error else (0.0, 0.0)
    evaluated = u * ((d + 6) / math.e + kernel.operations)
    kernel_error, kernel_error_q = evaluated + moved, evaluated + moved_q
    coefficients = torch.stack([w, size], dim=1)
    (K_w, K_size), _ = _kernel_times(x, x, kernel, coefficients)
    (k_w, k_size), k_norm = _kernel_times(xq, x, kernel, coefficients)
    # A kernel value below the least number is not 0.
    doubt = kernel.doubt
    k_norm = k_norm + math.sqrt(n) * (tiny + moved_q + doubt)
    c_q = (k_norm / math.sqrt(lam)).clamp(max=0.5 * math.sqrt(1 + doubt)) / math.sqrt(lam)
    iteration = c_q * norm(y - K_w - lam * w)
    readout = (out - k_w).abs()
    fit = doubt * float(size.sum()) * (1 + c_q * math.sqrt(n))
    in_residual = u * (n + 4) * (K_size + lam * size) + kernel_error * size.sum() + (2 * u + input_error) * y.abs()
    in_readout = u * ((n + 4) * k_size + out.abs()) + kernel_error_q * size.sum()
    first_order = c_q * norm(in_residual) + in_readout + u * (n + 8) * (iteration + readout + fit)
    # Twice: that covers the rounding of these lines and the higher orders. And what is lost below the least number.
    arithmetic = 2 * first_order + underflow(n, lam)
    bound = iteration + readout + fit + arithmetic
    return Prediction(
        value=value,
        bound=bound,
        iteration=iteration,
        readout=readout,
        arithmetic=arithmetic,
        fit=fit,
        promised=promised,
        above_promise=(bound > (math.inf if promised is None else promised)) | (promised == math.inf),
    )


def underflow(n: int, lam: float) -> float:
    """More than n numbers below the least can change a prediction by: a bound is not 0 where the truth may differ."""
    return n * torch.finfo(torch.float64).tiny * (1 + 1 / math.sqrt(lam))


def _moved(
    x: Float[Tensor, "n d"], xq: Float[Tensor, "M d"], kernel: Kernel, input_error: float
) -> tuple[float, Float[Tensor, "M"]]:
    """How far K(x_i, x_j) and K(q, x_j) can move when every point moves by `input_error` of its distance to 0.

    The kernel knows its slope at distances of r v and more. A query is at least | |q| - max |x_j| | from every example.
    """
    far = (xq / kernel.v).norm(dim=1).clamp(max=1e100)
    largest = min(1e100, float((x / kernel.v).norm(dim=1).max())) if len(x) else 0.0
    steepest, slope = float(kernel.steepness(far.new_zeros(()))), kernel.steepness((far - largest).clamp(min=0))
    return min(1.0, input_error * 2 * largest * steepest), (input_error * (far + largest) * slope).clamp(max=1)


def norm(z: Float[Tensor, "n"]) -> float:
    """|z|, also of numbers whose squares are lost below 1e-308 or pass 1e308: a bound must not become 0."""
    largest = float(z.abs().max()) if z.numel() else 0.0
    # A power of two: no digit of z changes.
    unit = math.ldexp(1.0, math.frexp(largest)[1] - 1) if 0 < largest < math.inf else 1.0
    return float((z / unit).norm()) * unit


def _kernel_times(
    x: Float[Tensor, "m d"], z: Float[Tensor, "n d"], kernel: Kernel, right: Float[Tensor, "n r"]
) -> tuple[Float[Tensor, "r m"], Float[Tensor, "m"]]:
    """K(x, z) times `right`, transposed, and the norms of the rows of K, some rows at a time."""
    rows = max(1, _ENTRIES // max(1, len(z)))
    products, norms = [right.new_zeros(0, right.shape[1])], [right.new_zeros(0)]
    for piece in x.split(rows):
        K = kernel(piece, z)
        products.append(K @ right)
        # In units of the largest of a row: squares of small kernel values must not become 0.
        unit = K.amax(1, keepdim=True).clamp_min(torch.finfo(K.dtype).tiny) if len(z) else 1.0
        norms.append(((K / unit).norm(dim=1, keepdim=True) * unit)[:, 0])
    return torch.cat(products).T, torch.cat(norms)
