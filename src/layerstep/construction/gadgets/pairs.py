"""Heads beyond the kernel read: linear attention from a pair of signs, a token's own exponential, the mean.

Linear attention. Two heads with logits ±eps <q_i, k_j>, the dummy with weight A, values ±A / (2 eps) h_j:

    A / (2 eps) Σ_j [e^{eps l_j} / (A + S_+) - e^{-eps l_j} / (A + S_-)] h_j = Σ_j l_j h_j (1 + O(eps² l²) + O(n / A))

with l_j = <q_i, k_j>. So inner products reach every token, and Z (Zᵀ h) or V (Vᵀ h) are one attention. Rounding is
about u / eps of Σ |h_j|, since two nearly equal weights are subtracted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.construction.blocks import Attention, Mask
from layerstep.construction.gadgets.kernel_attention import SINK_AND_TRAIN, Read, kernel_logits
from layerstep.construction.kernels import Kernel
from layerstep.construction.stream import Stream

#: A training token sees the dummy and itself.
SELF = Mask(train=("dummy", "itself"))
EXAMPLES = Mask(train=SINK_AND_TRAIN)
QUERIES = Mask(query=SINK_AND_TRAIN)


@dataclass(frozen=True)
class Head:
    """The weights of one head."""

    W_Q: Float[Tensor, "r D"]
    W_K: Float[Tensor, "r D"]
    W_V: Float[Tensor, "D D"]
    mask: Mask


def together(*heads: Head) -> Attention:
    """One attention of these heads; rows of zeros give all logits as many terms."""
    rows = max(len(head.W_Q) for head in heads)
    W_Q, W_K = (
        torch.stack([torch.nn.functional.pad(W, (0, 0, 0, rows - len(W))) for W in parts])
        for parts in ([head.W_Q for head in heads], [head.W_K for head in heads])
    )
    return Attention(W_Q, W_K, torch.stack([head.W_V for head in heads]), tuple(head.mask for head in heads))


def kernel_heads(stream: Stream, kernel: Kernel, read: Read) -> list[Head]:
    """target <- target + factor Σ_j S_ij source_j, S the kernel row over `mask`'s keys: a head for each Gaussian."""
    return [
        Head(
            *kernel_logits(stream, gaussian, sink=read.sink),
            stream.copy(read.source, read.target, weight * read.factor),
            read.mask,
        )
        for weight, gaussian in kernel.parts
    ]


@dataclass(frozen=True, kw_only=True)
class SignPair:
    """Pairs of heads with signs ±eps and a dummy of weight A."""

    stream: Stream
    eps: float
    A: float

    def heads(
        self,
        Q: Float[Tensor, "r D"],
        K: Float[Tensor, "r D"],
        value: Float[Tensor, "D D"],
        mask: Mask = EXAMPLES,
        logit: tuple[Tensor, Tensor] | None = None,
    ) -> list[Head]:
        """z_i += Σ_j <Q z_i, K z_j> value z_j, times exp(logit) where there is one; Q or K is 0 on the dummy."""
        one, sink = self._sink()
        more = logit or (one[:0], one[:0])
        return [
            Head(
                torch.cat([sign * self.eps * Q, more[0], one]),
                torch.cat([K, more[1], sink]),
                sign * self.A / (2 * self.eps) * value,
                mask,
            )
            for sign in (1.0, -1.0)
        ]

    def exponential(self, logit: tuple[Tensor, Tensor], value: Float[Tensor, "D D"]) -> Head:
        """z_i += exp(logit_i) value z_i (1 + O(1 / A)), of training tokens."""
        one, sink = self._sink()
        return Head(torch.cat([logit[0], one]), torch.cat([logit[1], sink]), self.A * value, SELF)

    def _sink(self) -> tuple[Tensor, Tensor]:
        return self.stream.rows("one"), math.log(self.A) * self.stream.rows("s")


def mean_head(stream: Stream, source: str, target: str) -> Head:
    """target <- target + the mean of `source` over the training tokens: logits are 0."""
    nothing = torch.zeros(1, stream.width, dtype=torch.float64)
    return Head(nothing, nothing, stream.copy(source, target, 1.0), Mask(train=("train",)))
