"""Sums of powers over a spectrum, for many exponents at once.

After t steps a stationary iteration leaves the fraction q_k^t of component k (first order), or the first entry of
C_k^t (1, 1) with a 2 x 2 matrix C_k (with momentum). Solvers need sum_k g_k q_k^t for hundreds of t. Writing
t = m i + j turns the hundreds of powers into about 2 sqrt(T) and the sums into one matrix product a system.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

Weights = Float[Tensor, "B n"]
Steps = Num[Tensor, "T"]
Sums = Float[Tensor, "T B"]


def power_sums(weights: Weights, decrement: Float[Tensor, "B n"], steps: Int[Tensor, "T"]) -> Sums:
    """sum_k weights_k (1 - decrement_k)^t for every t in `steps`.

    Powers are exp(t log1p(-decrement)): forming 1 - decrement first would lose the digits of small decrements.
    """
    size = torch.where(decrement < 1, torch.log1p(-decrement), torch.log(decrement - 1))
    size = size.nan_to_num(nan=-1e5).clamp_min(-1e5)  # 1 - decrement = 0: exp(-1e5 t) is 0, and 1 at t = 0
    negative = decrement > 1

    def powers(exponents: Tensor) -> Tensor:
        exponents = exponents.to(size)
        flip = negative.unsqueeze(-1) & (exponents % 2 == 1)
        value = torch.exp(size.unsqueeze(-1) * exponents)
        return torch.where(flip, -value, value)

    high, low, pick = _split(steps)
    table = (weights.unsqueeze(-1) * powers(high)).mT @ powers(low)
    return pick(table)


def momentum_sums(weights: Weights, matrix: Float[Tensor, "B n 2 2"], steps: Int[Tensor, "T"]) -> Sums:
    """sum_k weights_k e_k(t), e_k(t) the first entry of matrix_k^t (1, 1), for every t in `steps`."""
    high, low, pick = _split(steps)
    squares = _squares(matrix, int(max(high.max(), low.max())))
    rows = torch.zeros(*matrix.shape[:2], len(low), 2).to(matrix)
    rows[..., 0] = 1
    columns = torch.ones(*matrix.shape[:2], 2, len(high)).to(matrix)
    for bit, square in enumerate(squares):
        in_low, in_high = ((low >> bit) & 1) == 1, ((high >> bit) & 1) == 1
        rows[:, :, in_low] = rows[:, :, in_low] @ square
        columns[..., in_high] = square @ columns[..., in_high]
    left = (weights.unsqueeze(-1).unsqueeze(-1) * columns).flatten(1, 2).mT  # [B, high, n 2]
    right = rows.transpose(2, 3).flatten(1, 2)  # [B, n 2, low]
    return pick(left @ right)


def _split(steps: Int[Tensor, "T"]):
    """Exponents `high` (multiples of m) and `low` (below m) whose sums hold all steps, and the picker of those sums."""
    top = int(steps.max())
    m = math.isqrt(top) + 1
    high, high_index = torch.unique(steps // m * m, return_inverse=True)
    low, low_index = torch.unique(steps % m, return_inverse=True)
    if len(high) * len(low) > 4 * len(steps):  # scattered steps share no powers: take each as it is
        high, high_index = steps.new_zeros(1), torch.zeros_like(steps)
        low, low_index = steps, torch.arange(len(steps), device=steps.device)

    def pick(table: Float[Tensor, "B high low"]) -> Sums:
        return table[:, high_index, low_index].T

    return high, low, pick


def _squares(matrix: Float[Tensor, "B n 2 2"], top: int) -> list[Tensor]:
    """matrix^1, matrix^2, matrix^4, ... as many as the binary digits of `top` ask for."""
    squares = [matrix]
    while 2 ** len(squares) <= top:
        squares.append(squares[-1] @ squares[-1])
    return squares
