"""Forward and backward of S stacked models by hand. Shapes: L layers, S models, M = B·T rows, W width, C chunks."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.training.autograd import losses
from layerstep.training.config import Run
from layerstep.training.fused import adamw, rowwise, token_count
from layerstep.training.fused.matmul import dtype_of_products, weight_gradient
from layerstep.training.fused.stream_slice import StreamSlice, run_on_streams, split
from layerstep.training.stack import Layout


class FusedNetwork:
    """gradient ← ∂ loss / ∂ weights, for S models whose weights are the rows of one buffer.

    Products read a bfloat16 copy of the weights; the residual stream, its gradient and every sum are float32.
    Forward and backward go in stream slices. Gradients of the weights wait until their end: then all layers make one
    launch.
    """

    def __init__(self, run: Run, layout: Layout, weights: Tensor, gradient: Tensor, slices: int = 1) -> None:
        self.weights, self.low = weights, weights.to(dtype_of_products(weights.device))
        self.heads, self.kind, self.layers = run.model.heads, run.model.attention, run.model.layers
        self.T = token_count(run)
        self.B, self.points = run.batch, run.task.N + 1
        L, S, B, W = self.layers, len(weights), self.B, run.model.width
        M, K = B * self.T, layout.slots["read_in.weight"].shape[1]
        C = rowwise.chunks(M)

        def low(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=self.low.dtype, device=weights.device)

        def full(*shape: int) -> Tensor:
            return torch.zeros(*shape, device=weights.device)

        # The stream before each half-block and at the end, and what the halves keep for the backward pass.
        self.stream = full(2 * L + 1, S, M, W)
        self.h1, self.h2, self.z = low(L, S, M, W), low(L, S, M, W), low(L, S, M, W)
        self.log = full(L, S, M, self.heads)
        self.qkv, self.act, self.slope = low(L, S, M, 3 * W), low(L, S, M, 4 * W), low(L, S, M, 4 * W)
        # Gradients: of the stream (updated in place), and of every product's output, kept for the weights.
        self.d, self.dh, self.dz = full(S, M, W), low(S, M, W), low(S, M, W)
        self.d_mid, self.d_out, self.d_in = low(L, S, M, W), low(L, S, M, W), low(S, M, W)
        self.dqkv, self.dpre = low(L, S, M, 3 * W), low(L, S, M, 4 * W)
        # Partial sums over rows, of what the norms' gradients and the read-in's are sums of.
        self.norm_sums = full(2, 2 * L, S, C, W)
        self.embed_sums = full(S, C, K, W)
        self.error, self.along, self.error_sums = full(S, B, self.points), full(S, C, W), full(S, C)
        self.g = {name: layout.view(gradient, name) for name in layout.slots if not name.startswith("blocks.")}
        self.w = {name: layout.view(weights, name) for name in layout.slots}
        self.p = {name: layout.view(self.low, name) for name in layout.slots}
        names = [name.removeprefix("blocks.0.") for name in layout.slots if name.startswith("blocks.0.")]
        self.g_layers = {name: layout.layers(gradient, name) for name in names}
        self.slices = [StreamSlice(self, part) for part in split(S, B, self.T, slices)]
        beside = max(1, len(self.slices) - 1) if weights.is_cuda else 0
        self.streams = [torch.cuda.Stream(weights.device) for _ in range(beside)]

    def refresh(self) -> None:
        """Copy the weights for the products, after someone else changed them."""
        self.low.copy_(self.weights)

    @torch.no_grad()
    def __call__(
        self,
        x: Float[Tensor, "S B M d"],
        y: Float[Tensor, "S B M"],
        points: Float[Tensor, "S"],
        n: Int[Tensor, "S B"] | None = None,
    ) -> Float[Tensor, "S 2"]:
        """Fill the gradient; return each model's loss, and its squared error with the longest context.

        n, of an open mask only: how many points of a prompt are examples.
        """
        run_on_streams([partial(each, x, y, points, n) for each in self.slices], self.streams)
        run_on_streams([self._products, partial(self._sums, x, y, n)], self.streams)
        return losses(self.error.square(), points, n)

    def _products(self) -> None:
        """The gradients that are matrix products: of the blocks' weights and their biases."""
        layers = self.g_layers
        for name, dy, inputs in (
            ("attention.qkv", self.dqkv, self.h1),
            ("attention.out", self.d_mid, self.z),
            ("up", self.dpre, self.h2),
            ("down", self.d_out, self.act),
        ):
            weight_gradient(dy, inputs, layers[f"{name}.weight"], layers[f"{name}.bias"])

    def _sums(self, x: Tensor, y: Tensor, n: Tensor | None) -> None:
        """All other gradients: sums of what the slices left."""
        g, layers, w = self.g, self.g_layers, self.w
        for norm, first in (("norm1", 0), ("norm2", 1)):
            for part, sums in zip(("weight", "bias"), self.norm_sums, strict=True):
                torch.sum(sums[first::2], dim=2, out=layers[f"{norm}.{part}"].transpose(0, 1))
        rowwise.embed_gradient(x, y, n, self.d, self.embed_sums, self.T)
        torch.sum(self.embed_sums, dim=1, out=g["read_in.weight"].transpose(1, 2))
        if n is None:
            torch.sum(self.d.unflatten(1, (-1, self.T)), dim=1, out=g["positions"])
            torch.sum(g["positions"], dim=1, out=g["read_in.bias"])
        else:
            torch.sum(self.d, dim=1, out=g["read_in.bias"])
        along, slope = self.along.sum(1), self.error_sums.sum(1, keepdim=True)
        read_out = w["read_out.weight"].squeeze(1)
        torch.mul(along, read_out, out=g["norm.weight"])
        torch.mul(slope, read_out, out=g["norm.bias"])
        g["read_out.weight"].squeeze(1).copy_(along * w["norm.weight"] + slope * w["norm.bias"])
        g["read_out.bias"].copy_(slope)

    def update(self, w: Tensor, g: Tensor, m: Tensor, v: Tensor, numbers: Tensor) -> None:
        adamw.update(w, g, m, v, self.low, numbers)
