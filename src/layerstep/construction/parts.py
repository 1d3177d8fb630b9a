"""Parts that the compact and the exact scheme share: kernel logits with a sink, the linear step, the sink read-out.

A *sink* of weight a is the dummy token, seen by everybody with unnormalised attention weight a: attention of token
i then returns Σ_j K_ij v_j / (a + D_i), D_i = Σ_j K_ij. One row of W_Q and W_K does it, with log a in W_K.
Queries are nobody's key, and wherever a token has nothing to do it looks at the dummy, whose y and w are 0. So
several queries do not see each other, and their unused coefficients stay exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.construction.blocks import MLP, Attention, Block, Mask, fixed
from layerstep.construction.stream import Stream

SINK_AND_TRAIN = ("dummy", "train")


def kernel_logits(
    stream: Stream, v: float, *, sink: float | None = None, dummy: bool = True
) -> tuple[Float[Tensor, "r D"], Float[Tensor, "r D"]]:
    """W_Q, W_K with <W_Q z_i, W_K z_j> = -|x_i - x_j|² / 2v², and 0 (or log sink for key 0) with the dummy.

    dummy=False drops s from the formula: the dummy then is a point at x = 0, and has to be masked.
    """
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


def attention(stream: Stream, v: float, *reads: Read) -> Attention:
    """The attention whose heads are `reads`."""
    logits = [kernel_logits(stream, v, sink=read.sink) for read in reads]
    return Attention(
        W_Q=torch.stack([W_Q for W_Q, _ in logits]),
        W_K=torch.stack([W_K for _, W_K in logits]),
        W_V=torch.stack([stream.copy(read.source, read.target, read.factor) for read in reads]),
        masks=tuple(read.mask for read in reads),
    )


def both_signs(*forms: dict[str, float]) -> list[dict[str, float]]:
    """relu(z) - relu(-z) = z: each linear form and its negative."""
    return [{name: sign * value for name, value in form.items()} for form in forms for sign in (1, -1)]


def first_step(stream: Stream, source: str, a: float) -> MLP:
    """w <- w + a source, c <- c + a source, from w = c = 0. The momentum cache c lives in k_hat."""
    pair = torch.tensor([1.0, -1.0], dtype=torch.float64)
    return MLP(stream.forms(*both_signs({source: a})), stream.write(w=pair, k_hat=pair))


def linear_steps(stream: Stream, direction: dict[str, float], a: Sequence[float], b: Sequence[float]) -> list[MLP]:
    """Step l: u = a_l direction + b_l c; w <- w + u, c <- u, p <- 0. Six units; c = w_l - w_{l-1} in k_hat.

    Steps with equal coefficients are one MLP, and all share W_out.
    """
    u, c, p = torch.eye(3, dtype=torch.float64).repeat_interleave(2, 1) * torch.tensor([1, -1] * 3)
    W_out = fixed(stream.write(w=u, k_hat=u - c, p=-p))
    made: dict[tuple[float, float], MLP] = {}
    for a_l, b_l in zip(a, b, strict=True):
        if (a_l, b_l) not in made:
            update = {name: a_l * value for name, value in direction.items()} | {"k_hat": b_l}
            W_in = stream.forms(*both_signs(update, {"k_hat": 1.0}, {"p": 1.0}))
            made[a_l, b_l] = MLP(W_in, W_out)
    return [made[pair] for pair in zip(a, b, strict=True)]


def step_blocks(reads: Sequence[Attention], mlps: Sequence[MLP]) -> list[list[Block]]:
    """For every step a block for each attention, the last with the step's MLP. Equal steps are the same blocks."""
    made = {mlp: [*(Block(read, None) for read in reads[:-1]), Block(reads[-1], mlp)] for mlp in set(mlps)}
    return [made[mlp] for mlp in mlps]


def sink_readout(stream: Stream, v: float, a: float) -> Block:
    """y of a query <- a Σ_j K_qj w_j / (a + D_q): k_q·w up to the factor a / (a + D_q), and no division."""
    mask = Mask(query=SINK_AND_TRAIN)
    return Block(attention(stream, v, Read(source="w", target="y", factor=a, mask=mask, sink=a)), None)
