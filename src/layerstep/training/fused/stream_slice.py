"""Stream slices: forward and backward of some models on some prompts, each slice on a CUDA stream of its own.

A launch of one model is too small to keep a GPU busy to its end: while it drains, another slice computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from layerstep.training.fused import rowwise
from layerstep.training.fused.attention import attention_backward, attention_forward
from layerstep.training.fused.matmul import linear

if TYPE_CHECKING:
    from layerstep.training.fused.network import FusedNetwork


@dataclass(frozen=True)
class Part:
    """Some models, and part number `part` of `parts` equal ones of their prompts."""

    models: slice
    part: int = 0
    parts: int = 1

    def of(self, tensor: Tensor, axis: int = 0) -> Tensor:
        """The view of a tensor whose `axis` counts models and whose next one runs along the prompts."""
        size = tensor.shape[axis + 1] // self.parts
        return tensor[(slice(None),) * axis + (self.models, slice(size * self.part, size * (self.part + 1)))]


def split(S: int, B: int, T: int, slices: int) -> list[Part]:
    """At most `slices` parts: of the models, and where these are too few, of each one's prompts.

    Kernels go from model to model by whole buffers, so only a slice of one model may have a part of its prompts.
    """
    if slices <= S:
        edges = [S * i // slices for i in range(slices + 1)]
        return [Part(slice(first, last)) for first, last in pairwise(edges)]
    # Rows are summed by chunks, which must not be torn.
    parts = max(k for k in range(1, slices // S + 1) if k == 1 or (B % k == 0 and B // k * T % rowwise.CHUNK == 0))
    return [Part(slice(s, s + 1), part, parts) for s in range(S) for part in range(parts)]


def run_on_streams(tasks: Sequence[Callable[[], None]], streams: Sequence[torch.cuda.Stream]) -> None:
    """Do the first task here and each other one on a stream of its own (without streams: one after another)."""
    if not streams:
        for task in tasks:
            task()
        return
    here, beside = torch.cuda.current_stream(), streams[: len(tasks) - 1]
    for stream in beside:
        stream.wait_stream(here)
    for task, stream in zip(tasks, [here, *beside], strict=True):
        with torch.cuda.stream(stream):
            task()
    for stream in beside:
        here.wait_stream(stream)


class StreamSlice:
    """Forward and backward of one part, on views of the network's buffers."""

    def __init__(self, network: FusedNetwork, part: Part) -> None:
        n = network
        self.part, self.T, self.B = part, n.T, n.B
        self.heads, self.kind, self.layers = n.heads, n.kind, n.layers
        self.w = {name: tensor[part.models] for name, tensor in n.w.items()}
        self.p = {name: tensor[part.models] for name, tensor in n.p.items()}
        self.stream, self.h1, self.h2, self.z, self.log = (part.of(t, 1) for t in (n.stream, n.h1, n.h2, n.z, n.log))
        self.qkv, self.act, self.slope = (part.of(t, 1) for t in (n.qkv, n.act, n.slope))
        self.d, self.dh, self.dz, self.d_in = (part.of(t) for t in (n.d, n.dh, n.dz, n.d_in))
        self.d_mid, self.d_out, self.dqkv, self.dpre = (part.of(t, 1) for t in (n.d_mid, n.d_out, n.dqkv, n.dpre))
        self.norm_sums = part.of(n.norm_sums, 2)
        self.error, self.along, self.error_sums = (part.of(t) for t in (n.error, n.along, n.error_sums))

    def __call__(self, x: Tensor, y: Tensor, points: Tensor, n: Tensor | None) -> None:
        x, y, points = self.part.of(x), self.part.of(y), points[self.part.models]
        n = n if n is None else self.part.of(n)
        self._forward(x, y, n)
        self._backward(y, points, n)

    def _forward(self, x: Tensor, y: Tensor, n: Tensor | None) -> None:
        w, p, stream = self.w, self.p, self.stream
        rowwise.embed(x, y, n, w["read_in.weight"], w["read_in.bias"], w.get("positions"), stream[0], self.T)
        for i in range(self.layers):
            b = f"blocks.{i}."
            before, middle, after = stream[2 * i], stream[2 * i + 1], stream[2 * i + 2]
            rowwise.norm(before, w[b + "norm1.weight"], w[b + "norm1.bias"], self.h1[i])
            linear(self.h1[i], p[b + "attention.qkv.weight"], w[b + "attention.qkv.bias"], self.qkv[i])
            attention_forward(self.qkv[i], self.z[i], self.log[i], self.T, self.heads, self.kind, n)
            out = p[b + "attention.out.weight"], w[b + "attention.out.bias"]
            linear(self.z[i], *out, middle, "residual", extra=before)
            rowwise.norm(middle, w[b + "norm2.weight"], w[b + "norm2.bias"], self.h2[i])
            linear(self.h2[i], p[b + "up.weight"], w[b + "up.bias"], self.act[i], "gelu", slope=self.slope[i])
            linear(self.act[i], p[b + "down.weight"], w[b + "down.bias"], after, "residual", extra=middle)

    def _backward(self, y: Tensor, points: Tensor, n: Tensor | None) -> None:
        w, p, last = self.w, self.p, self.layers - 1
        rowwise.head(
            self.stream[-1], y, points, n, w["norm.weight"], w["norm.bias"], w["read_out.weight"], w["read_out.bias"],
            self.error, self.d, self.d_out[last], self.along, self.error_sums, self.T, self.B,
        )  # fmt: skip
        for i in reversed(range(self.layers)):
            b = f"blocks.{i}."
            linear(self.d_out[i], p[b + "down.weight"], None, self.dpre[i], "times", back=True, extra=self.slope[i])
            linear(self.dpre[i], p[b + "up.weight"], None, self.dh, back=True)
            self._norm_backward(2 * i + 1, w[b + "norm2.weight"], self.d_mid[i])
            linear(self.d_mid[i], p[b + "attention.out.weight"], None, self.dz, back=True)
            attention_backward(
                self.qkv[i], self.z[i], self.log[i], self.dz, self.dqkv[i],
                self.T, self.heads, self.kind, n,
            )  # fmt: skip
            linear(self.dqkv[i], p[b + "attention.qkv.weight"], None, self.dh, back=True)
            self._norm_backward(2 * i, w[b + "norm1.weight"], self.d_out[i - 1] if i else self.d_in)

    def _norm_backward(self, j: int, weight: Tensor, low: Tensor) -> None:
        """Through the norm in front of half-block j, into the stream's gradient."""
        dw, db = self.norm_sums[0, j], self.norm_sums[1, j]
        rowwise.norm_backward(self.stream[j], self.dh, weight, self.d, low, dw, db)
