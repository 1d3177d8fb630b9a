"""The MLP of a linear step: w <- w + a_l g + b_l (w - w_previous), exact, with six units."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from layerstep.construction.blocks import MLP, Attention, Block, fixed
from layerstep.construction.stream import Stream


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
