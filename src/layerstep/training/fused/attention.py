"""Causal attention for short sequences: one program holds the whole problem of one (sequence, head) on chip.

The backward pass recomputes the weights from q and k, so nothing but q, k, v is kept, and no two programs write
to one place.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _weights(q, k, row, key, SCALE: tl.constexpr, KIND: tl.constexpr):
    """Attention weights of a block of rows over all keys."""
    score = tl.dot(q, tl.trans(k), input_precision="ieee") * SCALE
    visible = key[None, :] <= row[:, None]
    if KIND == "softmax":
        score = tl.where(visible, score, float("-inf"))
        score = tl.exp(score - tl.max(score, axis=1)[:, None])
        return score / tl.sum(score, axis=1)[:, None]
    score = tl.where(visible, score, 0.0)
    if KIND == "linear-mean":
        score = score / (row + 1).to(tl.float32)[:, None]
    return score


@triton.jit
def _forward(
    qkv_ptr, out_ptr, T: tl.constexpr,
    HEADS: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TP: tl.constexpr, ROWS: tl.constexpr,
    SCALE: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0), tl.program_id(1)
    W: tl.constexpr = HEADS * D
    c, key = tl.arange(0, DP), tl.arange(0, TP)
    in_head = c[None, :] < D
    base = qkv_ptr + sequence * T * 3 * W + head * D
    at = key[:, None] * 3 * W + c[None, :]
    key_there = (key[:, None] < T) & in_head
    k = tl.load(base + W + at, mask=key_there, other=0.0)
    v = tl.load(base + 2 * W + at, mask=key_there, other=0.0)
    for start in range(0, T, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row[:, None] < T) & in_head
        q = tl.load(base + row[:, None] * 3 * W + c[None, :], mask=there, other=0.0)
        weight = _weights(q, k, row, key, SCALE, KIND)
        z = tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        out = out_ptr + (sequence * T + row)[:, None] * W + head * D + c[None, :]
        tl.store(out, z.to(out_ptr.dtype.element_ty), mask=there)


@triton.jit
def _backward(
    qkv_ptr, dz_ptr, dqkv_ptr, sums_ptr, T: tl.constexpr,
    HEADS: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TP: tl.constexpr, ROWS: tl.constexpr,
    SCALE: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0), tl.program_id(1)
    W: tl.constexpr = HEADS * D
    c, key = tl.arange(0, DP), tl.arange(0, TP)
    in_head = c[None, :] < D
    first = sequence * T * 3 * W + head * D
    at = first + key[:, None] * 3 * W + c[None, :]
    key_there = (key[:, None] < T) & in_head
    k = tl.load(qkv_ptr + W + at, mask=key_there, other=0.0)
    v = tl.load(qkv_ptr + 2 * W + at, mask=key_there, other=0.0)
    dk = tl.zeros((TP, DP), tl.float32)
    dv = tl.zeros((TP, DP), tl.float32)
    dq_sum = tl.zeros((DP,), tl.float32)
    for start in range(0, T, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row[:, None] < T) & in_head
        row_at = first + row[:, None] * 3 * W + c[None, :]
        q = tl.load(qkv_ptr + row_at, mask=there, other=0.0)
        dz = tl.load(dz_ptr + (sequence * T + row)[:, None] * W + head * D + c[None, :], mask=there, other=0.0)
        weight = _weights(q, k, row, key, SCALE, KIND)
        dweight = tl.dot(dz, tl.trans(v), input_precision="ieee")
        if KIND == "softmax":
            dscore = weight * (dweight - tl.sum(weight * dweight, axis=1)[:, None])
        else:
            dscore = tl.where(key[None, :] <= row[:, None], dweight, 0.0)
            if KIND == "linear-mean":
                dscore = dscore / (row + 1).to(tl.float32)[:, None]
        dscore = (dscore * SCALE).to(q.dtype)
        dv = tl.dot(tl.trans(weight.to(dz.dtype)), dz, dv, input_precision="ieee")
        dk = tl.dot(tl.trans(dscore), q, dk, input_precision="ieee")
        dq = tl.dot(dscore, k, input_precision="ieee")
        dq_sum += tl.sum(dq, axis=0)
        tl.store(dqkv_ptr + row_at, dq.to(dqkv_ptr.dtype.element_ty), mask=there)
    tl.store(dqkv_ptr + W + at, dk.to(dqkv_ptr.dtype.element_ty), mask=key_there)
    tl.store(dqkv_ptr + 2 * W + at, dv.to(dqkv_ptr.dtype.element_ty), mask=key_there)
    sums = sums_ptr + sequence * 3 * W + head * D + c
    tl.store(sums, dq_sum, mask=c < D)
    tl.store(sums + W, tl.sum(dk, axis=0), mask=c < D)
    tl.store(sums + 2 * W, tl.sum(dv, axis=0), mask=c < D)


# Rows at a time, warps: chosen on an H200 by benchmarks/training_kernels.py.
FORWARD_TILE = (32, 4)
BACKWARD_TILE = (32, 4)


def _shape(T: int, heads: int, width: int, kind: str, rows: int, warps: int) -> dict:
    D, TP = width // heads, max(16, triton.next_power_of_2(T))
    return {
        "HEADS": heads,
        "D": D,
        "DP": max(16, triton.next_power_of_2(D)),
        "TP": TP,
        "ROWS": min(rows, TP),
        "SCALE": 1 / math.sqrt(D),
        "KIND": kind,
        "num_warps": warps,
    }


def attention(qkv: Tensor, out: Tensor, T: int, heads: int, kind: str) -> None:
    """out [S, M, W] ← attention over sequences of T rows of qkv [S, M, 3W]."""
    sequences = qkv.numel() // (T * qkv.shape[-1])
    shape = _shape(T, heads, out.shape[-1], kind, *FORWARD_TILE)
    _forward[(sequences, heads)](qkv, out, T, **shape)


def attention_backward(qkv: Tensor, dz: Tensor, dqkv: Tensor, sums: Tensor, T: int, heads: int, kind: str) -> None:
    """dqkv [S, M, 3W] from dz [S, M, W]; `sums` [S, B, 3W] takes its sums over each sequence."""
    sequences = qkv.numel() // (T * qkv.shape[-1])
    shape = _shape(T, heads, dz.shape[-1], kind, *BACKWARD_TILE)
    _backward[(sequences, heads)](qkv, dz, dqkv, sums, T, **shape)
