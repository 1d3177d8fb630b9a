"""The bootstrap of every interval: whole sequences are drawn with replacement, every statistic on the same draws."""

from __future__ import annotations

import functools

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@functools.lru_cache(maxsize=4)
def resamples(B: int, count: int, seed: int) -> Float[Tensor, "R B"]:
    """How often each of B sequences is drawn in each of `count` resamples; sums over one are products with it.

    The same tensor for every caller: not to be written to."""
    return torch.from_numpy(np.random.default_rng(seed).multinomial(B, np.full(B, 1 / B), size=count).astype(float))


def resampled(B: int, count: int, seed: int, size: int | None = None) -> Int[Tensor, "R size"]:
    """Which of B sequences are drawn, `size` of them (default: B) in each of `count` resamples: for medians and R²."""
    return torch.from_numpy(np.random.default_rng(seed).integers(B, size=(count, size or B)))


def interval(draws: Float[Tensor, "R *rest"], level: float) -> Float[Tensor, "2 *rest"]:
    """The central interval that holds `level` of a statistic's resamples; those where it is NaN do not count.

    Verdicts give 90 %, the 5 % and 95 % quantiles, because a claim asks about one side; everything else gives 95 %.
    """
    tail = round((1 - level) / 2, 9)
    return draws.nanquantile(torch.tensor([tail, 1 - tail], dtype=draws.dtype), dim=0)
