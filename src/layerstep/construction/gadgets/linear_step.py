"""The MLP of a linear step: w <- w + a_l g + b_l (w - w_previous), exact, with six units."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from layerstep.construction.blocks import MLP, Attention, Block, fixed
from layerstep.construction.stream import Stream


def both_signs(*forms: dict[str, float]) -> list[dict[str, float]]:
    """relu(z) - relu(-z) = z: each linear form and its negative."""
    return [{name: sign * value for name, value in form.items()} for form in forms for sign in (1, -1)]


def linear_iterations(
    stream: Stream,
    read_in: Sequence[Attention | None],
    start: dict[str, float],
    read: Sequence[Attention],
    direction: dict[str, float],
    a: Sequence[float],
    b: Sequence[float],
) -> list[list[Block]]:
    """Step l: u = a_l direction + b_l c; w <- w + u, c <- u, p <- 0. Six units; c = w_l - w_{l-1} in k_hat.

    The first step, from w = c = 0, is w = c = a_0 start. A step is a block for each attention of `read_in` or `read`,
    the last with the step's MLP. Steps with equal coefficients are the same blocks, and all but the first share W_out.
    """
    W_in = stream.forms(*both_signs({name: a[0] * value for name, value in start.items()}))
    pair = torch.tensor([1.0, -1.0], dtype=torch.float64)
    first = MLP(W_in, stream.write(w=pair, k_hat=pair))
    begin = [*(Block(each, None) for each in read_in[:-1]), Block(read_in[-1], first)]
    return [begin, *linear_steps(stream, read, direction, a[1:], b[1:])]


def linear_steps(
    stream: Stream, read: Sequence[Attention], direction: dict[str, float], a: Sequence[float], b: Sequence[float]
) -> list[list[Block]]:
    """The steps after the first: the blocks of each."""
    u, c, p = torch.eye(3, dtype=torch.float64).repeat_interleave(2, 1) * torch.tensor([1, -1] * 3)
    W_out = fixed(stream.write(w=u, k_hat=u - c, p=-p))
    made: dict[tuple[float, float], list[Block]] = {}
    for a_l, b_l in zip(a, b, strict=True):
        if (a_l, b_l) not in made:
            update = {name: a_l * value for name, value in direction.items()} | {"k_hat": b_l}
            mlp = MLP(stream.forms(*both_signs(update, {"k_hat": 1.0}, {"p": 1.0})), W_out)
            made[a_l, b_l] = [*(Block(each, None) for each in read[:-1]), Block(read[-1], mlp)]
    return [made[pair] for pair in zip(a, b, strict=True)]


def linear_map(stream: Stream, updates: dict[str, dict[str, float]]) -> MLP:
    """target += Σ coefficient source for each {target: {source: coefficient}}, of coordinates with as many rows."""
    forms = [sum(factor * stream.rows(source) for source, factor in update.items()) for update in updates.values()]
    targets = [stream.rows(target) for target in updates]
    W_in, W_out = torch.cat(forms), torch.cat(targets).T  # type: ignore[arg-type]
    return MLP(torch.cat([W_in, -W_in]), torch.cat([W_out, -W_out], dim=1))
