"""AdamW in two passes over memory: the squares of the gradient, then everything else and the copy for the products."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

SQUARES, UPDATE = 16384, 2048  # numbers a program reads


@triton.jit
def _squares(g_ptr, out_ptr, P, BLOCK: tl.constexpr):
    block, s = tl.program_id(0), tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(g_ptr + s.to(tl.int64) * P + at, mask=at < P, other=0.0)
    tl.store(out_ptr + s * tl.num_programs(0) + block, tl.sum(g * g, axis=0))


@triton.jit
def _update(
    w_ptr, g_ptr, m_ptr, v_ptr, low_ptr, squares_ptr, numbers_ptr, P, COUNT,
    COLUMNS: tl.constexpr, COUNT_P: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block, s = tl.program_id(0), tl.program_id(1)
    part = tl.arange(0, COUNT_P)
    norm = tl.sqrt(tl.sum(tl.load(squares_ptr + s * COUNT + part, mask=part < COUNT, other=0.0), axis=0))
    number = numbers_ptr + s * COLUMNS  # the order of adamw.COLUMNS
    clip, decay, one_minus_beta1 = tl.load(number), tl.load(number + 1), tl.load(number + 2)
    beta2, one_minus_beta2, rate = tl.load(number + 3), tl.load(number + 4), tl.load(number + 5)
    root, eps = tl.load(number + 6), tl.load(number + 7)
    inside = block * BLOCK + tl.arange(0, BLOCK) < P
    at = s.to(tl.int64) * P + block * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(g_ptr + at, mask=inside) * tl.minimum(clip / (norm + 1e-6), 1.0)
    m = tl.load(m_ptr + at, mask=inside)
    m += one_minus_beta1 * (g - m)
    v = beta2 * tl.load(v_ptr + at, mask=inside) + one_minus_beta2 * g * g
    w = tl.load(w_ptr + at, mask=inside) * decay - rate * m / (tl.sqrt(v) * root + eps)
    tl.store(m_ptr + at, m, mask=inside)
    tl.store(v_ptr + at, v, mask=inside)
    tl.store(w_ptr + at, w, mask=inside)
    tl.store(low_ptr + at, w.to(low_ptr.dtype.element_ty), mask=inside)


def update(w: Tensor, g: Tensor, m: Tensor, v: Tensor, low: Tensor, numbers: Tensor) -> None:
    """As `layerstep.training.adamw.adamw` on [S, P]; the gradient is left unclipped, `low` takes a copy of w."""
    S, P = w.shape
    count = triton.cdiv(P, SQUARES)
    squares = torch.empty(S, count, device=w.device)
    _squares[(count, S)](g, squares, P, BLOCK=SQUARES, num_warps=8)
    _update[(triton.cdiv(P, UPDATE), S)](
        w, g, m, v, low, squares, numbers, P, count,
        COLUMNS=numbers.shape[1], COUNT_P=triton.next_power_of_2(count), BLOCK=UPDATE, num_warps=4,
    )  # fmt: skip
