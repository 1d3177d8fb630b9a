"""Matrix products with what follows them: bias, GELU, residual; and gradients of weights, all layers at once."""

from __future__ import annotations

import math
import os

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def _gelu_gate(x):
    """(1 + tanh u)/2, u = √(2/π)(x + .044715 x³): GELU is x times this."""
    u = x * (0.7978845608028654 + 0.035677408136300125 * x * x)
    if INTERPRETED:
        gate = 1 / (1 + tl.exp(-2 * u))
    else:  # one instruction, right to 11 bits, three more than bfloat16 keeps
        gate = 0.5 + 0.5 * tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [u], dtype=tl.float32, is_pure=True, pack=1
        )
    return gate


@triton.jit
def _linear(
    x_ptr, w_ptr, b_ptr, extra_ptr, y_ptr, slope_ptr, P, M: tl.constexpr,
    N: tl.constexpr, K: tl.constexpr, BACK: tl.constexpr, KIND: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    tile, s = tl.program_id(0), tl.program_id(1)
    m, n = tile // (N // BN), tile % (N // BN)
    row, col = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
    if M % BM:
        inside = row[:, None] < M
    else:
        inside = tl.full((BM, 1), 1, tl.int1)
    out = (s * M + row)[:, None] * N + col[None, :]
    if KIND == "residual" or KIND == "times":  # on its way while the product is computed
        extra = tl.load(extra_ptr + out, mask=inside, other=0.0)
    k = tl.arange(0, BK)
    x_at = x_ptr + (s * M + row)[:, None] * K + k[None, :]
    if BACK:
        w_at = w_ptr + s * P + k[:, None] * N + col[None, :]
    else:
        w_at = w_ptr + s * P + col[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(x_at, mask=inside, other=0.0), tl.load(w_at), acc, input_precision="ieee")
        x_at += BK
        w_at += BK * N if BACK else BK
    if not BACK:
        acc += tl.load(b_ptr + s * P + col)[None, :]
    if KIND == "residual":
        tl.store(y_ptr + out, acc + extra, mask=inside)
    elif KIND == "gelu":
        gate = _gelu_gate(acc)
        tl.store(y_ptr + out, (acc * gate).to(y_ptr.dtype.element_ty), mask=inside)
        # d/dx x gate = gate + 2 x gate (1 - gate) u', worked out here while the gate is at hand.
        slope = gate + acc * gate * (1 - gate) * (1.5957691216057308 + 0.21406444881780076 * acc * acc)
        tl.store(slope_ptr + out, slope.to(slope_ptr.dtype.element_ty), mask=inside)
    elif KIND == "times":
        tl.store(y_ptr + out, (acc * extra.to(tl.float32)).to(y_ptr.dtype.element_ty), mask=inside)
    else:
        tl.store(y_ptr + out, acc.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _weight_gradient(
    dy_ptr, x_ptr, w_ptr, b_ptr, P, LAYER, S, M: tl.constexpr,
    N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    tile, batch = tl.program_id(0), tl.program_id(1)
    layer, s = batch // S, batch % S
    col_n = tile // (K // BK) * BN + tl.arange(0, BN)
    col_k = tile % (K // BK) * BK + tl.arange(0, BK)
    row = tl.arange(0, BM)
    first = batch.to(tl.int64) * M
    dy_at = dy_ptr + (first + row)[:, None] * N + col_n[None, :]
    x_at = x_ptr + (first + row)[:, None] * K + col_k[None, :]
    acc = tl.zeros((BN, BK), tl.float32)
    # The bias sees an input that is always 1: sixteen columns of ones are the least a product takes.
    ones = tl.full((BM, 16), 1.0, x_ptr.dtype.element_ty)
    bias = tl.zeros((BN, 16), tl.float32)
    for m in range(0, M, BM):
        if M % BM:
            inside = (m + row)[:, None] < M
        else:
            inside = tl.full((BM, 1), 1, tl.int1)
        dy = tl.trans(tl.load(dy_at, mask=inside, other=0.0))
        acc = tl.dot(dy, tl.load(x_at, mask=inside, other=0.0), acc, input_precision="ieee")
        bias = tl.dot(dy, ones, bias, input_precision="ieee")
        dy_at += BM * N
        x_at += BM * K
    start = s.to(tl.int64) * P + layer * LAYER
    tl.store(w_ptr + start + col_n[:, None] * K + col_k[None, :], acc)
    if tile % (K // BK) == 0:
        tl.store(b_ptr + start + col_n, tl.max(bias, axis=1))


# Rows, columns and depth of a tile, warps, stages: chosen on an H200 by benchmarks/training_kernels.py.
TILES = {
    "": (128, 128, 64, 8, 3),
    "residual": (64, 128, 64, 4, 4),
    "gelu": (128, 128, 64, 8, 3),
    "times": (128, 128, 64, 8, 3),
}
GRADIENT_TILE = (128, 128, 64, 8, 3)  # columns of dy, columns of x, rows, warps, stages


def linear(
    x: Tensor,  # [S, M, K]
    weight: Tensor,  # [S, N, K], or [S, K, N] when `back`: a view of the rows of [S, P]
    bias: Tensor | None,  # [S, N]
    out: Tensor,  # [S, M, N]
    kind: str = "",
    *,
    back: bool = False,
    extra: Tensor | None = None,
    slope: Tensor | None = None,
) -> None:
    """out = x Wᵀ + b, or x W when `back`.

    kind: 'residual' adds `extra`, 'times' multiplies by it, 'gelu' stores GELU of the sum and its slope in `slope`.
    """
    S, M, K = x.shape
    N = out.shape[-1]
    BM, BN, BK, warps, stages = TILES[kind]
    BN, BK = math.gcd(N, BN), math.gcd(K, BK)
    spare = x
    _linear[(triton.cdiv(M, BM) * (N // BN), S)](
        x, weight, bias if bias is not None else spare, extra if extra is not None else spare, out,
        slope if slope is not None else spare, weight.stride(0),
        M=M, N=N, K=K, BACK=back, KIND=kind, BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def weight_gradient(dy: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> None:
    """weight [S, L, N, K] ← Σ_m dy[l, s, m] x[l, s, m]ᵀ and bias [S, L, N] ← Σ_m dy[l, s, m], all layers at once."""
    L, S, M, N = dy.shape
    K = x.shape[-1]
    BN, BK, BM, warps, stages = GRADIENT_TILE
    BN, BK = math.gcd(N, BN), math.gcd(K, BK)
    _weight_gradient[((N // BN) * (K // BK), L * S)](
        dy, x, weight, bias, weight.stride(0), weight.stride(1), S,
        M=M, N=N, K=K, BN=BN, BK=BK, BM=BM, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def dtype_of_products(device: torch.device) -> torch.dtype:
    """bfloat16 on the GPU; Triton's interpreter on the CPU checks the same code in float32."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32
