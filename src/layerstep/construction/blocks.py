"""A block is softmax attention and a ReLU MLP, both added to the stream: the paper's Definitions 1-3.

    z_i <- z_i + Σ_h Σ_j softmax_j(<W_Q z_i, W_K z_j> + mask_ij) W_V z_j
    z_i <- z_i + W_out relu(W_in z_i)

No biases, no scaling, no normalisation. The softmax runs over keys j and the mask is indexed (query i, key j);
the matrix formula of the paper's definition says otherwise, its elementwise formula says this.
Weights are parameters without gradients: they are constructed, not learned.

Letters of shapes: B prompts, T tokens, D stream width, H heads, r rows of W_Q and W_K (the paper's matrices are
these with rows of zeros below).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layerstep.construction.stream import DUMMY, QUERY, TRAIN


@dataclass(frozen=True, kw_only=True)
class Mask:
    """Which keys a token may attend to, by the kind of the token.

    Keys: "dummy", "train" (every training token), "others" (every training token but itself), "query" (every
    query), "itself". Padding attends to the dummy and is nobody's key.
    """

    dummy: tuple[str, ...] = ("dummy",)
    train: tuple[str, ...] = ("dummy",)
    query: tuple[str, ...] = ("dummy",)

    def allowed(
        self,
        rows: Int[Tensor, "B R"],
        keys: Int[Tensor, "B K"],
        first_row: int = 0,
        first_key: int = 0,
    ) -> Bool[Tensor, "B R K"]:
        """May token i attend to token j? `rows` and `keys` are kinds of tokens, counted from the two firsts."""
        i = first_row + torch.arange(rows.shape[1], device=rows.device)
        j = first_key + torch.arange(keys.shape[1], device=keys.device)
        same = i[:, None] == j
        key_is = {
            "dummy": (keys == DUMMY)[:, None],
            "train": (keys == TRAIN)[:, None],
            "others": (keys == TRAIN)[:, None] & ~same,
            "query": (keys == QUERY)[:, None],
            "itself": same[None],
        }
        allowed = (rows > QUERY)[..., None] & key_is["dummy"]
        for kind, names in ((DUMMY, self.dummy), (TRAIN, self.train), (QUERY, self.query)):
            for name in names:
                allowed = allowed | ((rows == kind)[..., None] & key_is[name])
        return allowed

    def matrix(self, kinds: Int[Tensor, "B T"], dtype: torch.dtype) -> Float[Tensor, "B T T"]:
        """The mask itself, 0 or -inf, indexed (query, key)."""
        allowed = self.allowed(kinds, kinds)
        return torch.zeros(allowed.shape, dtype=dtype, device=kinds.device).masked_fill(~allowed, -torch.inf)


def fixed(weights: Tensor) -> nn.Parameter:
    """A weight that is constructed, not learned; one that is already so is shared, not copied."""
    return weights if isinstance(weights, nn.Parameter) else nn.Parameter(weights, requires_grad=False)


class Attention(nn.Module):
    """z_i <- z_i + Σ_h Σ_j softmax_j(<W_Q z_i, W_K z_j> + mask_ij) W_V z_j."""

    def __init__(
        self,
        W_Q: Float[Tensor, "H r D"],
        W_K: Float[Tensor, "H r D"],
        W_V: Float[Tensor, "H D D"],
        masks: tuple[Mask, ...],
    ) -> None:
        super().__init__()
        self.W_Q, self.W_K, self.W_V = fixed(W_Q), fixed(W_K), fixed(W_V)
        self.masks = masks

    def forward(self, Z: Float[Tensor, "B T D"], kinds: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        update = torch.zeros_like(Z)
        for W_Q, W_K, W_V, mask in zip(self.W_Q, self.W_K, self.W_V, self.masks, strict=True):
            logits = (Z @ W_Q.T) @ (Z @ W_K.T).mT + mask.matrix(kinds, Z.dtype)
            update = update + torch.softmax(logits, dim=-1) @ (Z @ W_V.T)
        return Z + update


class MLP(nn.Module):
    """z <- z + W_out relu(W_in z)."""

    def __init__(self, W_in: Float[Tensor, "width D"], W_out: Float[Tensor, "D width"]) -> None:
        super().__init__()
        self.W_in, self.W_out = fixed(W_in), fixed(W_out)

    @property
    def width(self) -> int:
        return self.W_in.shape[0]

    def forward(self, Z: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return Z + torch.relu(Z @ self.W_in.T) @ self.W_out.T


class Block(nn.Module):
    """Attention, then MLP; either may be absent. Blocks with equal weights hold the same module, not a copy."""

    def __init__(self, attention: Attention | None, mlp: MLP | None) -> None:
        super().__init__()
        self.attention, self.mlp = attention, mlp

    def forward(self, Z: Float[Tensor, "B T D"], kinds: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        if self.attention is not None:
            Z = self.attention(Z, kinds)
        if self.mlp is not None:
            Z = self.mlp(Z)
        return Z
