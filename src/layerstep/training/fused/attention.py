"""Attention for short sequences, causal or open: one program holds the whole problem of one (sequence, head) on chip.

Sequences are cut into blocks; a block of rows meets only the blocks of keys it can see. Under an open mask, whose
tokens are a dummy, n examples and queries, that is every block. The loops over blocks are unrolled, so the backward
pass keeps the gradients of all rows in registers, and no two programs write to one place.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from layerstep.errors import require_choice
from layerstep.training.fused import ATTENTION

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _load(ptr, row, T: tl.constexpr, STRIDE: tl.constexpr, D: tl.constexpr, DP: tl.constexpr):
    """Rows of one head, [BLOCK, D], zero outside."""
    c = tl.arange(0, DP)
    return tl.load(ptr + row[:, None] * STRIDE + c[None, :], mask=(row[:, None] < T) & (c[None, :] < D), other=0.0)


@triton.jit
def _store(ptr, value, row, T: tl.constexpr, STRIDE: tl.constexpr, D: tl.constexpr, DP: tl.constexpr):
    c = tl.arange(0, DP)
    at, inside = row[:, None] * STRIDE + c[None, :], (row[:, None] < T) & (c[None, :] < D)
    tl.store(ptr + at, value.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def _visible(row, key, n, OPEN: tl.constexpr):
    """Whether a row sees a key: all before it and itself, or (open) the dummy, all n examples and itself."""
    if OPEN:
        seen = (key <= n) | (key == row)
    else:
        seen = key <= row
    return seen


@triton.jit
def _linear_weight(score, row, key, n, SCALE: tl.constexpr, KIND: tl.constexpr, OPEN: tl.constexpr):
    """What multiplies v in linear attention, and d score in its backward pass; row and key as they lie in `score`."""
    score = tl.where(_visible(row, key, n, OPEN), score * SCALE, 0.0)
    if KIND == "linear-mean":
        if OPEN:
            score = score / tl.where(row <= n, n + 1, n + 2).to(tl.float32)
        else:
            score = score / (row + 1).to(tl.float32)
    return score


@triton.jit
def _forward(
    qkv_ptr, out_ptr, log_ptr, n_ptr, T: tl.constexpr,
    HEADS: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr,
    SCALE: tl.constexpr, KIND: tl.constexpr, OPEN: tl.constexpr,
):  # fmt: skip
    head, sequence = tl.program_id(0), tl.program_id(1)  # heads of a sequence run together: they share cache lines
    W: tl.constexpr = HEADS * D
    COUNT: tl.constexpr = (T + BLOCK - 1) // BLOCK
    base = qkv_ptr + sequence * T * 3 * W + head * D
    n = tl.load(n_ptr + sequence) if OPEN else 0
    for i in tl.static_range(COUNT):
        row = i * BLOCK + tl.arange(0, BLOCK)
        q = _load(base, row, T, 3 * W, D, DP)
        z = tl.zeros((BLOCK, DP), tl.float32)
        top = tl.full((BLOCK,), -1e30, tl.float32)  # finite: the first block of keys may hold none that a row sees
        total = tl.zeros((BLOCK,), tl.float32)
        for j in tl.static_range(COUNT):
            if OPEN or j <= i:
                key = j * BLOCK + tl.arange(0, BLOCK)
                k = _load(base + W, key, T, 3 * W, D, DP)
                v = _load(base + 2 * W, key, T, 3 * W, D, DP)
                score = tl.dot(q, tl.trans(k), input_precision="ieee")
                if KIND == "softmax":
                    score *= SCALE * LOG2E
                    if OPEN or i == j:
                        score = tl.where(_visible(row[:, None], key[None, :], n, OPEN), score, float("-inf"))
                    higher = tl.maximum(top, tl.max(score, axis=1))
                    score = tl.exp2(score - higher[:, None])
                    keep = tl.exp2(top - higher)
                    top = higher
                    total = total * keep + tl.sum(score, axis=1)
                    z = z * keep[:, None]
                else:
                    score = _linear_weight(score, row[:, None], key[None, :], n, SCALE, KIND, OPEN)
                z = tl.dot(score.to(v.dtype), v, z, input_precision="ieee")
        if KIND == "softmax":
            z = z / total[:, None]
            tl.store(log_ptr + (sequence * HEADS + head) * T + row, top + tl.log2(total), mask=row < T)
        _store(out_ptr + sequence * T * W + head * D, z, row, T, W, D, DP)


@triton.jit
def _backward(
    qkv_ptr, z_ptr, log_ptr, dz_ptr, dqkv_ptr, n_ptr, T: tl.constexpr,
    HEADS: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr,
    SCALE: tl.constexpr, KIND: tl.constexpr, OPEN: tl.constexpr,
):  # fmt: skip
    head, sequence = tl.program_id(0), tl.program_id(1)
    W: tl.constexpr = HEADS * D
    COUNT: tl.constexpr = (T + BLOCK - 1) // BLOCK
    first = sequence * T * 3 * W + head * D
    qkv, dqkv = qkv_ptr + first, dqkv_ptr + first
    z_base, dz_base = z_ptr + sequence * T * W + head * D, dz_ptr + sequence * T * W + head * D
    n = tl.load(n_ptr + sequence) if OPEN else 0
    # Gradients of up to four blocks of rows, by name: registers cannot be indexed.
    dq0 = tl.zeros((BLOCK, DP), tl.float32)
    dq1 = tl.zeros((BLOCK, DP), tl.float32)
    dq2 = tl.zeros((BLOCK, DP), tl.float32)
    dq3 = tl.zeros((BLOCK, DP), tl.float32)
    for j in tl.static_range(COUNT):
        key = j * BLOCK + tl.arange(0, BLOCK)
        k = _load(qkv + W, key, T, 3 * W, D, DP)
        v = _load(qkv + 2 * W, key, T, 3 * W, D, DP)
        dk = tl.zeros((BLOCK, DP), tl.float32)
        dv = tl.zeros((BLOCK, DP), tl.float32)
        for i in tl.static_range(COUNT):
            if OPEN or i >= j:
                row = i * BLOCK + tl.arange(0, BLOCK)
                q = _load(qkv, row, T, 3 * W, D, DP)
                dz = _load(dz_base, row, T, W, D, DP)
                # Scores lie keys by rows: then only the gradient of q needs a transposed operand.
                score = tl.dot(k, tl.trans(q), input_precision="ieee")
                dscore = tl.dot(v, tl.trans(dz), input_precision="ieee")
                if KIND == "softmax":
                    z = _load(z_base, row, T, W, D, DP)
                    along = tl.sum(z.to(tl.float32) * dz.to(tl.float32), axis=1)
                    log = tl.load(log_ptr + (sequence * HEADS + head) * T + row, mask=row < T, other=0.0)
                    weight = tl.exp2(score * (SCALE * LOG2E) - log[None, :])
                    if OPEN or i == j:
                        weight = tl.where(_visible(row[None, :], key[:, None], n, OPEN), weight, 0.0)
                    dscore = weight * (dscore - along[None, :]) * SCALE
                else:
                    weight = _linear_weight(score, row[None, :], key[:, None], n, SCALE, KIND, OPEN)
                    dscore = _linear_weight(dscore, row[None, :], key[:, None], n, SCALE, KIND, OPEN)
                dscore = dscore.to(q.dtype)
                dv = tl.dot(weight.to(dz.dtype), dz, dv, input_precision="ieee")
                dk = tl.dot(dscore, q, dk, input_precision="ieee")
                dscore = tl.trans(dscore)
                if i == 0:
                    dq0 = tl.dot(dscore, k, dq0, input_precision="ieee")
                elif i == 1:
                    dq1 = tl.dot(dscore, k, dq1, input_precision="ieee")
                elif i == 2:
                    dq2 = tl.dot(dscore, k, dq2, input_precision="ieee")
                else:
                    dq3 = tl.dot(dscore, k, dq3, input_precision="ieee")
        _store(dqkv + W, dk, key, T, 3 * W, D, DP)
        _store(dqkv + 2 * W, dv, key, T, 3 * W, D, DP)
    rows = tl.arange(0, BLOCK)
    _store(dqkv, dq0, rows, T, 3 * W, D, DP)
    if COUNT > 1:
        _store(dqkv, dq1, BLOCK + rows, T, 3 * W, D, DP)
    if COUNT > 2:
        _store(dqkv, dq2, 2 * BLOCK + rows, T, 3 * W, D, DP)
    if COUNT > 3:
        _store(dqkv, dq3, 3 * BLOCK + rows, T, 3 * W, D, DP)


# Warps for heads of 32 numbers, forward and backward: chosen on an H200 by benchmarks/training_kernels.py.
FORWARD_WARPS, BACKWARD_WARPS = 1, 1


def _shape(T: int, heads: int, width: int, kind: str, warps: int, n: Tensor | None) -> dict:
    require_choice("attention", kind, ATTENTION)
    D, block = width // heads, 16
    while block * 4 < T or (block < 32 and T > 16):  # at most four blocks
        block *= 2
    return {
        "T": T,
        "HEADS": heads,
        "D": D,
        "DP": max(16, triton.next_power_of_2(D)),
        "BLOCK": block,
        "SCALE": 1 / math.sqrt(D),
        "KIND": kind,
        "OPEN": n is not None,
        "num_warps": warps * max(1, triton.next_power_of_2(D) * block // 1024),
    }


def attention_forward(
    qkv: Tensor, out: Tensor, log: Tensor, T: int, heads: int, kind: str, n: Tensor | None = None
) -> None:
    """out [S, M, W] ← attention over sequences of T rows of qkv [S, M, 3W]; log [S, M, heads] ← log₂ of its sums.

    n [S, B]: the mask is open, and so many tokens behind the dummy are examples; None: the mask is causal.
    """
    sequences = qkv.numel() // (T * qkv.shape[-1])
    shape = _shape(T, heads, out.shape[-1], kind, FORWARD_WARPS, n)
    _forward[(heads, sequences)](qkv, out, log, log if n is None else n, **shape)


def attention_backward(
    qkv: Tensor, out: Tensor, log: Tensor, dz: Tensor, dqkv: Tensor, T: int, heads: int, kind: str,
    n: Tensor | None = None,
) -> None:  # fmt: skip
    """dqkv [S, M, 3W] from dz [S, M, W], the gradient of `out`."""
    sequences = qkv.numel() // (T * qkv.shape[-1])
    shape = _shape(T, heads, dz.shape[-1], kind, BACKWARD_WARPS, n)
    _backward[(heads, sequences)](qkv, out, log, dz, dqkv, log if n is None else n, **shape)
