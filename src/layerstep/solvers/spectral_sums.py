"""Sums of powers over a spectrum, for many exponents at once.

After t steps a stationary iteration leaves the fraction e_k(t) = q_k^t of component k; with momentum the fractions
obey e_k(t+1) = a_k e_k(t) - b_k e_k(t-1). Solvers need sum_k g_k e_k(t) for hundreds of t. Writing t = high + low
turns the hundreds of powers into about 2 √T, and the sums into one matrix product per system.
"""

from __future__ import annotations

import functools
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

Weights = Float[Tensor, "B n"]
Steps = Int[Tensor, "T"]
Sums = Float[Tensor, "B T"]
Power = tuple[Tensor, Tensor]  # p and r of a power p C + r


def power_sums(weights: Weights, decrement: Float[Tensor, "B n"], steps: Steps) -> Sums:
    """sum_k weights_k (1 - decrement_k)^t for every t in `steps`.

    Powers are exp(t log1p(-decrement)): forming 1 - decrement first would lose the digits of small decrements.
    """
    size = torch.where(decrement < 1, torch.log1p(-decrement), torch.log(decrement - 1))
    size = size.clamp_min(-1e5).unsqueeze(-1)  # where 1 - decrement is 0: exp(-1e5 t) is 0, and 1 at t = 0
    negative = (decrement > 1).unsqueeze(-1)
    any_negative = bool(negative.any())

    def powers(exponents: Tensor) -> Tensor:
        value = (size * exponents.to(size)).exp_()
        odd = (exponents % 2 == 1).to(size.device)
        return torch.where(negative & odd, -value, value) if any_negative else value

    high, low, pick = _split(steps, waste=4)
    return ((weights.unsqueeze(-1) * powers(high)).mT @ powers(low)).flatten(1)[:, pick]


def momentum_sums(
    weights: Weights, a: Float[Tensor, "B n"], b: Float[Tensor, "B n"], first: Float[Tensor, "B n"], steps: Steps
) -> Sums:
    """sum_k weights_k e_k(t), where e(0) = 1, e(1) = first, e(t+1) = a e(t) - b e(t-1).

    The shift C: e(t) -> e(t+1) obeys C² = a C - b, so C^h = p C + r with numbers p, r: e(h + l) = p e(l+1) + r e(l).
    """
    # A power costs tens of small operations here and a column of the table next to none: split almost any steps.
    high, low, pick = _split(steps, waste=64)
    p, r = _shift_powers(a, b, high)
    p_low, r_low = _shift_powers(a, b, low)
    weights, first, second = weights.unsqueeze(-1), first.unsqueeze(-1), (a * first - b).unsqueeze(-1)
    after = (p_low * second).addcmul_(r_low, first)
    now = p_low.mul_(first).add_(r_low)
    table = torch.baddbmm((weights * p).mT @ after, (weights * r).mT, now)
    return table.flatten(1)[:, pick]


def _shift_powers(
    a: Float[Tensor, "B n"], b: Float[Tensor, "B n"], exponents: Int[Tensor, "E"]
) -> tuple[Float[Tensor, "B n E"], Float[Tensor, "B n E"]]:
    """p, r with C^t = p_t C + r_t where C² = a C - b, for increasing t in `exponents`."""
    a, b = a.unsqueeze(-1), b.unsqueeze(-1)

    def times(x: Power, y: Power) -> Power:
        both = x[0] * y[0]
        p = (a * both).addcmul_(x[0], y[1]).addcmul_(x[1], y[0])
        return p, (x[1] * y[1]).addcmul_(b, both, value=-1)

    one = torch.zeros_like(a), torch.ones_like(a)
    doubled = [(torch.ones_like(a), torch.zeros_like(a))]  # C, C², C⁴, ...

    @functools.cache
    def power(t: int) -> Power:
        while 2 ** len(doubled) <= t:
            doubled.append(times(doubled[-1], doubled[-1]))
        return functools.reduce(times, (doubled[bit] for bit in range(t.bit_length()) if t >> bit & 1), one)

    ts = exponents.tolist()
    p, r = power(ts[0])
    while (size := p.shape[-1]) < len(ts):
        # Doubling: all powers so far, shifted, are the next ones where exponents are equally spaced. Else one by one.
        shift, more = ts[size] - ts[0], min(size, len(ts) - size)
        if all(ts[size + i] - ts[i] == shift for i in range(more)):
            new = times((p[..., :more], r[..., :more]), power(shift))
        else:
            new = times((p[..., -1:], r[..., -1:]), power(ts[size] - ts[size - 1]))
        p, r = torch.cat([p, new[0]], -1), torch.cat([r, new[1]], -1)
    return p, r


def _split(steps: Steps, waste: int) -> tuple[Tensor, Tensor, Tensor | slice]:
    """Exponents `high` (multiples of m) and `low` (below m) whose sums hold all steps, and where in their table.

    Scattered steps share few powers: a table of more than `waste` entries per step is not worth its while. The
    exponents are on the CPU.
    """
    device, steps = steps.device, steps.cpu()  # a handful of integers: a GPU would make the host wait for each
    m = math.isqrt(int(steps[-1])) + 1
    high, row = torch.unique(steps // m * m, return_inverse=True)
    low, column = torch.unique(steps % m, return_inverse=True)
    if len(high) * len(low) > waste * len(steps):
        return steps.new_zeros(1), steps, slice(None)
    pick = row * len(low) + column
    consecutive = bool((pick == torch.arange(len(pick))).all())
    return high, low, slice(len(pick)) if consecutive else pick.to(device)
