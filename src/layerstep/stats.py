"""The bootstrap of this room: sequences are drawn with replacement, whole, and every statistic on the same draws."""

from __future__ import annotations

import functools

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


@functools.lru_cache(maxsize=4)
def resamples(B: int, count: int, seed: int) -> Float[Tensor, "R B"]:
    """How often each of B sequences is drawn in each of `count` resamples; sums over one are products with it.

    The same tensor for every caller: not to be written to."""
    return torch.from_numpy(np.random.default_rng(seed).multinomial(B, np.full(B, 1 / B), size=count).astype(float))


def interval(draws: Float[Tensor, "R"]) -> tuple[float, float]:
    """The 5 % and 95 % quantiles of a statistic over its resamples."""
    low, high = draws.quantile(torch.tensor([0.05, 0.95], dtype=draws.dtype)).tolist()
    return low, high
