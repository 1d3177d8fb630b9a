"""Prompts as the tokens of the literature's models: functions for `ls.Hooked(inputs=...)`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require
from layerstep.tasks import Prompts

Tokens = Callable[[Prompts], Tensor]


def interleaved(width: int | None = None) -> Tokens:
    """x_1, y_1, x_2, ..., x_{N+1} of `width` numbers; predictions are asked at the even tokens.

    width d: x and (y, 0, ..., 0), as Garg et al., Fu et al. and looped transformers. width d + 1: (0, x) and
    (y, 0, ..., 0), as Akyürek et al. and Raventós et al. By default d. The last label is not among the tokens.
    """

    def tokens(prompts: Prompts) -> Float[Tensor, "B T W"]:
        d, W = prompts.d, width or prompts.d
        require(W in (d, d + 1), "width", W, f"{d} or {d + 1}, d or d + 1")
        out = prompts.x.new_zeros(prompts.B, 2 * (prompts.N + 1), W)
        out[:, 0::2, W - d :] = prompts.x
        out[:, 1:-1:2, 0] = prompts.y[:, :-1]
        return out

    return tokens


def pairs(query: float = 0.0, sign: float = 1.0) -> Tokens:
    """[x_i; y_i] for every example and [x_{n+1}; query] last, one token per pair (von Oswald, Ahn, Bai, ...).

    For `ls.Hooked(mask="open")`, which calls it with the first n + 1 points for every n. sign: of the labels.
    """

    def tokens(prompts: Prompts) -> Float[Tensor, "B M W"]:
        y = torch.cat([sign * prompts.y[:, :-1], torch.full_like(prompts.y[:, -1:], query)], dim=1)
        return torch.cat([prompts.x, y.unsqueeze(-1)], dim=-1)

    return tokens
