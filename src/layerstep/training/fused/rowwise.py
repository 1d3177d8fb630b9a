"""Kernels that go row by row: embedding, layer norm, read-out with its loss. Sums over rows leave as partial sums."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

EPS = 1e-5  # of torch.nn.LayerNorm
# Rows at a time, and warps, forward and backward: chosen on an H200 by benchmarks/training_kernels.py.
BLOCK, WARPS = 8, 2
BACK_BLOCK, BACK_WARPS = 4, 2
CHUNK = 32  # rows whose sums one program of a backward kernel leaves


@triton.jit
def _normalise(x, W: tl.constexpr, EPS: tl.constexpr):
    """(x - mean)/√(var + eps) and 1/√(var + eps), row by row."""
    x = x - (tl.sum(x, axis=1) / W)[:, None]
    scale = 1 / tl.sqrt(tl.sum(x * x, axis=1) / W + EPS)
    return x * scale[:, None], scale


@triton.jit
def _norm_gradient(unit, scale, d, W: tl.constexpr):
    """∂/∂x of Σ d·unit(x): scale (d - mean d - unit mean(d unit))."""
    along = tl.sum(d * unit, axis=1) / W
    return scale[:, None] * (d - (tl.sum(d, axis=1) / W)[:, None] - unit * along[:, None])


@triton.jit
def _token(x_ptr, y_ptr, n_ptr, s, row, i: tl.constexpr, M, T, D: tl.constexpr, OPEN: tl.constexpr):
    """Coordinate i of the tokens x_1, y_1, ..., x_{N+1}, 0; or (open) of a dummy, n examples and queries."""
    inside = row < M
    if OPEN:
        at, sequence = row % T, s * (M // T) + row // T
        point = sequence * (T - 1) + at - 1
        n = tl.load(n_ptr + sequence, mask=inside, other=0)
        if i < D:
            value = tl.load(x_ptr + point * D + i, mask=inside & (at > 0), other=0.0)
        elif i == D:
            value = tl.load(y_ptr + point, mask=inside & (at > 0) & (at <= n), other=0.0)
        elif i == D + 1:
            value = tl.where(at == 0, 1.0, 0.0)
        else:
            value = tl.where(at > n, 1.0, 0.0)
    else:
        point = s * (M // 2) + row // 2
        value = tl.load(x_ptr + point * D + i, mask=inside & (row % 2 == 0), other=0.0)
        if i == 0:
            value += tl.load(y_ptr + point, mask=inside & (row % 2 == 1) & (row % T != T - 1), other=0.0)
    return value


@triton.jit
def _embed(
    x_ptr, y_ptr, n_ptr, w_ptr, b_ptr, p_ptr, out_ptr, M, T, P,
    D: tl.constexpr, K: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr, OPEN: tl.constexpr,
):  # fmt: skip
    s = tl.program_id(1)
    row, col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, W)
    acc = tl.zeros((BLOCK, W), tl.float32) + tl.load(b_ptr + s * P + col)[None, :]
    if not OPEN:
        acc = tl.load(p_ptr + s * P + (row % T)[:, None] * W + col[None, :]) + acc
    for i in tl.static_range(K):
        value = _token(x_ptr, y_ptr, n_ptr, s, row, i, M, T, D, OPEN)
        acc += value[:, None] * tl.load(w_ptr + s * P + col * K + i)[None, :]
    tl.store(out_ptr + (s * M + row)[:, None] * W + col[None, :], acc, mask=row[:, None] < M)


@triton.jit
def _embed_gradient(
    x_ptr, y_ptr, n_ptr, d_ptr, sums_ptr, M, T,
    D: tl.constexpr, K: tl.constexpr, W: tl.constexpr, CHUNK: tl.constexpr, OPEN: tl.constexpr,
):  # fmt: skip
    chunk, s = tl.program_id(0), tl.program_id(1)
    row, col = chunk * CHUNK + tl.arange(0, CHUNK), tl.arange(0, W)
    d = tl.load(d_ptr + (s * M + row)[:, None] * W + col[None, :], mask=row[:, None] < M, other=0.0)
    for i in tl.static_range(K):
        value = _token(x_ptr, y_ptr, n_ptr, s, row, i, M, T, D, OPEN)
        at = ((s * tl.cdiv(M, CHUNK) + chunk) * K + i) * W
        tl.store(sums_ptr + at + col, tl.sum(value[:, None] * d, axis=0))


@triton.jit
def _norm(
    x_ptr, w_ptr, b_ptr, out_ptr, M, P, W: tl.constexpr, BLOCK: tl.constexpr, EPS: tl.constexpr
):  # fmt: skip
    s = tl.program_id(1)
    row, col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, W)
    at, inside = (s * M + row)[:, None] * W + col[None, :], row[:, None] < M
    unit, _ = _normalise(tl.load(x_ptr + at, mask=inside, other=0.0), W, EPS)
    h = unit * tl.load(w_ptr + s * P + col)[None, :] + tl.load(b_ptr + s * P + col)[None, :]
    tl.store(out_ptr + at, h.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _norm_backward(
    x_ptr, dh_ptr, w_ptr, d_ptr, low_ptr, dw_ptr, db_ptr, M, P,
    W: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    chunk, s = tl.program_id(0), tl.program_id(1)
    col = tl.arange(0, W)
    w = tl.load(w_ptr + s * P + col)[None, :]
    dw = tl.zeros((BLOCK, W), tl.float32)
    db = tl.zeros((BLOCK, W), tl.float32)
    for start in range(0, CHUNK, BLOCK):
        row = chunk * CHUNK + start + tl.arange(0, BLOCK)
        at, inside = (s * M + row)[:, None] * W + col[None, :], row[:, None] < M
        unit, scale = _normalise(tl.load(x_ptr + at, mask=inside, other=0.0), W, EPS)
        dh = tl.load(dh_ptr + at, mask=inside, other=0.0).to(tl.float32)
        d = tl.load(d_ptr + at, mask=inside, other=0.0) + _norm_gradient(unit, scale, dh * w, W)
        tl.store(d_ptr + at, d, mask=inside)
        tl.store(low_ptr + at, d.to(low_ptr.dtype.element_ty), mask=inside)
        dw += dh * unit
        db += dh
    at = (s * tl.cdiv(M, CHUNK) + chunk) * W + col
    tl.store(dw_ptr + at, tl.sum(dw, axis=0))
    tl.store(db_ptr + at, tl.sum(db, axis=0))


@triton.jit
def _head(
    x_ptr, y_ptr, points_ptr, n_ptr, nw_ptr, nb_ptr, w_ptr, b_ptr,
    error_ptr, d_ptr, low_ptr, along_ptr, slope_ptr, M, T, P, B, STRIDE,
    W: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr, EPS: tl.constexpr, OPEN: tl.constexpr,
):  # fmt: skip
    chunk, s = tl.program_id(0), tl.program_id(1)
    col = tl.arange(0, W)
    w, b = tl.load(w_ptr + s * P + col), tl.load(b_ptr + s * P)
    gain = tl.load(nw_ptr + s * P + col) * w
    shift = tl.sum(tl.load(nb_ptr + s * P + col) * w, axis=0) + b
    points = tl.load(points_ptr + s * STRIDE)
    along = tl.zeros((BLOCK, W), tl.float32)
    slopes = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, CHUNK, BLOCK):
        row = chunk * CHUNK + start + tl.arange(0, BLOCK)
        at, inside = (s * M + row)[:, None] * W + col[None, :], row[:, None] < M
        unit, scale = _normalise(tl.load(x_ptr + at, mask=inside, other=0.0), W, EPS)
        if OPEN:
            asked, sequence = (row < M) & (row % T > 0), s * (M // T) + row // T
            point = sequence * (T - 1) + row % T - 1
            n = tl.load(n_ptr + sequence, mask=asked, other=0)
            counts = asked & (row % T > n)
            share = (T - 1 - n).to(tl.float32)  # queries of this prompt
        else:
            asked = (row < M) & (row % 2 == 0)
            point = s * (M // 2) + row // 2
            counts = asked & ((row % T) // 2 < points)
            share = points
        error = tl.sum(unit * gain[None, :], axis=1) + shift - tl.load(y_ptr + point, mask=asked, other=0.0)
        tl.store(error_ptr + point, error, mask=asked)
        slope = tl.where(counts, 2 * error / (share * B), 0.0)
        d = _norm_gradient(unit, scale, slope[:, None] * gain[None, :], W)
        tl.store(d_ptr + at, d, mask=inside)
        tl.store(low_ptr + at, d.to(low_ptr.dtype.element_ty), mask=inside)
        along += slope[:, None] * unit
        slopes += slope
    at = s * tl.cdiv(M, CHUNK) + chunk
    tl.store(along_ptr + at * W + col, tl.sum(along, axis=0))
    tl.store(slope_ptr + at, tl.sum(slopes, axis=0))


def chunks(M: int) -> int:
    return triton.cdiv(M, CHUNK)


def embed(
    x: Tensor, y: Tensor, n: Tensor | None, weight: Tensor, bias: Tensor, positions: Tensor | None, out: Tensor, T: int
) -> None:
    """out [S, M, W] ← read-in of the tokens of x [S, B, N+1, d], y [S, B, N+1], plus positions.

    n [S, B]: the tokens are those of an open mask, with so many examples and no positions.
    """
    S, M, W = out.shape
    spare = x
    _embed[(triton.cdiv(M, BLOCK), S)](
        x,
        y,
        spare if n is None else n,
        weight,
        bias,
        spare if positions is None else positions,
        out,
        M,
        T,
        weight.stride(0),
        D=x.shape[-1],
        K=weight.shape[-1],
        W=W,
        BLOCK=BLOCK,
        OPEN=n is not None,
        num_warps=WARPS,
    )


def embed_gradient(x: Tensor, y: Tensor, n: Tensor | None, d: Tensor, sums: Tensor, T: int) -> None:
    """sums [S, chunks, K, W] ← partial sums of tokenᵀ d; K numbers make a token."""
    S, M, W = d.shape
    _embed_gradient[(chunks(M), S)](
        x, y, x if n is None else n, d, sums, M, T,
        D=x.shape[-1], K=sums.shape[2], W=W, CHUNK=CHUNK, OPEN=n is not None,
    )  # fmt: skip


def norm(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    """out ← LayerNorm(x) weight + bias, for x [S, M, W]."""
    S, M, W = x.shape
    _norm[(triton.cdiv(M, BLOCK), S)](
        x, weight, bias, out, M, weight.stride(0), W=W, BLOCK=BLOCK, EPS=EPS, num_warps=WARPS
    )


def norm_backward(x: Tensor, dh: Tensor, weight: Tensor, d: Tensor, low: Tensor, dw: Tensor, db: Tensor) -> None:
    """d += ∂LayerNorm·dh, copied to `low`; dw, db [S, chunks, W] ← partial sums of dh·unit and dh."""
    S, M, W = x.shape
    _norm_backward[(chunks(M), S)](
        x, dh, weight, d, low, dw, db, M, weight.stride(0),
        W=W, CHUNK=CHUNK, BLOCK=BACK_BLOCK, EPS=EPS, num_warps=BACK_WARPS,
    )  # fmt: skip


def head(
    x: Tensor, y: Tensor, points: Tensor, n: Tensor | None, norm_weight: Tensor, norm_bias: Tensor,
    weight: Tensor, bias: Tensor, error: Tensor, d: Tensor, low: Tensor, along: Tensor, slope: Tensor, T: int, B: int,
) -> None:  # fmt: skip
    """B: all prompts of a model, over which the loss is a mean, also where x holds fewer. n: see `embed`.

    error [S, B, N+1] ← prediction - y; d [S, M, W] ← ∂loss/∂x; along, slope ← Σ ∂loss/∂prediction (unit, 1).
    """
    S, M, W = x.shape
    _head[(chunks(M), S)](
        x, y, points, points if n is None else n, norm_weight, norm_bias, weight, bias, error, d, low, along, slope,
        M, T, weight.stride(0), B, points.stride(0),
        W=W, CHUNK=CHUNK, BLOCK=BACK_BLOCK, EPS=EPS, OPEN=n is not None, num_warps=BACK_WARPS,
    )  # fmt: skip
