"""Attention that reads with the kernel: logits, heads, the sink, the read-out through a sink.

A *sink* of weight a is the dummy token, seen by everybody with unnormalised attention weight a: attention of token
i then returns Σ_j K_ij v_j / (a + D_i), D_i = Σ_j K_ij. One row of W_Q and W_K does it, with log a in W_K.
Queries are nobody's key, and wherever a token has nothing to do it looks at the dummy, whose y and w are 0. So
several queries do not see each other, and their unused coefficients stay exactly 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.construction.blocks import Attention, Block, Mask
from layerstep.construction.kernels import Gaussian, Kernel
from layerstep.construction.stream import Stream

SINK_AND_TRAIN = ("dummy", "train")


def kernel_logits(
    stream: Stream, kernel: Gaussian, *, sink: float | None = None, dummy: bool = True
) -> tuple[Float[Tensor, "r D"], Float[Tensor, "r D"]]:
    """W_Q, W_K with <W_Q z_i, W_K z_j> = -|x_i - x_j|² / 2v², and 0 (or log sink for key 0) with the dummy.

    dummy=False drops s from the formula: the dummy then is a point at x = 0, and has to be masked.
    """
    v = kernel.v
    half = {"one": -0.5 / v} | ({"s": 0.5 / v} if dummy else {})
    x = torch.zeros(stream.d, stream.width, dtype=torch.float64)
    x[:, stream["x"]] = torch.eye(stream.d, dtype=torch.float64) / v
    W_Q = torch.cat([x, stream.forms({"x2": 1 / v}, half)])
    W_K = torch.cat([x, stream.forms(half, {"x2": 1 / v})])
    if sink is not None:
        W_Q = torch.cat([W_Q, stream.forms({"one": 1.0})])
        W_K = torch.cat([W_K, stream.forms({"s": math.log(sink)})])
    return W_Q, W_K


@dataclass(frozen=True, kw_only=True)
class Read:
    """One attention head: target <- target + factor Σ_j S_ij source_j, S the kernel row over `mask`'s keys."""

    source: str
    target: str
    factor: float
    mask: Mask
    sink: float = 1.0


def attention(stream: Stream, kernel: Kernel, *reads: Read) -> Attention:
    """The attention whose heads are `reads`, one for each Gaussian of the kernel."""
    [whole] = attentions(stream, kernel, *reads)
    return whole


def attentions(stream: Stream, kernel: Kernel, *reads: Read, heads: int | None = None) -> list[Attention]:
    """The same in as many attentions as that takes with at most `heads` heads each."""
    every = [
        (*kernel_logits(stream, gaussian, sink=read.sink), weight * read.factor, read)
        for read in reads
        for weight, gaussian in kernel.parts
    ]
    step = heads or len(every)
    return [
        Attention(
            W_Q=torch.stack([W_Q for W_Q, _, _, _ in some]),
            W_K=torch.stack([W_K for _, W_K, _, _ in some]),
            W_V=torch.stack([stream.copy(read.source, read.target, factor) for _, _, factor, read in some]),
            masks=tuple(read.mask for _, _, _, read in some),
        )
        for some in (every[start : start + step] for start in range(0, len(every), step))
    ]


def sink_readout(stream: Stream, kernel: Kernel, a: float, heads: int | None = None) -> list[Block]:
    """y of a query <- a Σ_j K_qj w_j / (a + D_q): k_q·w up to the factor a / (a + D_q), and no division."""
    read = Read(source="w", target="y", factor=a, mask=Mask(query=SINK_AND_TRAIN), sink=a)
    return [Block(each, None) for each in attentions(stream, kernel, read, heads=heads)]
