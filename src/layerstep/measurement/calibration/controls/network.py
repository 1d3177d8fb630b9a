"""Several GPTs of one shape, stacked, whose residual streams can be overwritten while they run.

Shapes: S models, B prompts, T tokens, W width, L layers; E fixed directions span what a token may hold: its state
first, then what it was given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from layerstep.measurement.calibration.controls.mechanism import COLUMNS
from layerstep.tasks.prompts import normals
from layerstep.training import GPT
from layerstep.training.stack import Layout

STATE = len(COLUMNS)
#: The length of the read-in's bias. A layer norm divides by the length of the stream: where that is nearly constant,
#: what is written into the stream is read in proportion.
BIAS = 8.0


@dataclass(frozen=True, kw_only=True)
class Edit:
    """After block l + 1 the states of tokens where `gate[l]` is 1 become `value`; where `mix[l]` is 1 all that lies
    outside the fixed directions comes from the other prompt of a pair (prompts 2i and 2i + 1)."""

    gate: Float[Tensor, "L S B T 4"]
    value: Float[Tensor, "S B T 4"]
    mix: Float[Tensor, "L S B 1 1"] | None = None


def directions(gpt: GPT, seed: int) -> Float[Tensor, "E W"]:
    """Orthonormal rows: the columns of a state, then the coordinates of a token, then the read-in's bias."""
    count = STATE + gpt.read_in.in_features + 1
    Q, _ = torch.linalg.qr(normals(seed, 0, 5, (gpt.model.width, count)))
    return Q.T.contiguous()


@torch.no_grad()
def initialise(gpt: GPT, seed: int) -> GPT:
    """As GPT.initialise; the read-in writes a token's coordinates along their fixed directions, and stays so."""
    gpt.initialise(seed)
    frame = directions(gpt, seed).to(gpt.read_in.weight)
    gpt.read_in.weight.copy_(frame[STATE:-1].T)
    gpt.read_in.bias.copy_(BIAS * frame[-1])
    return gpt


class Stacked:
    """Forward passes of S models whose weights are the rows of one buffer; products in TF32 where that is allowed."""

    def __init__(self, gpt: GPT, layout: Layout, weights: Float[Tensor, "S P"], frames: Float[Tensor, "S E W"]) -> None:
        self.layers, self.heads, self.width = gpt.model.layers, gpt.model.heads, gpt.model.width
        self.frames = frames
        #: Leaves that share memory with the buffer: the optimizer writes the rows, autograd sees the parameters.
        self.parameters = {name: layout.view(weights, name).detach().requires_grad_() for name in layout.slots}
        self.frozen = ("read_in.weight", "read_in.bias")
        for name in self.frozen:
            self.parameters[name].requires_grad_(False)

    def __call__(
        self, tokens: Float[Tensor, "S B T D"], mask: Bool[Tensor, "S B T T"], edit: Edit | None = None
    ) -> tuple[Float[Tensor, "L S B T 4"], Float[Tensor, "S B T"]]:
        """The states along the fixed directions after every block, and the head's output at every token."""
        S, B, T, _ = tokens.shape
        x = self._linear(tokens.flatten(1, 2), "read_in")
        if "positions" in self.parameters:
            x = (x.unflatten(1, (B, T)) + self.parameters["positions"][:, None]).flatten(1, 2)
        states = []
        hidden = (~mask)[:, :, None]
        for layer in range(self.layers):
            x = self._block(x, layer, hidden)
            if edit is not None:
                x = self._edit(x, layer, edit)
            states.append((x @ self.frames[:, :STATE].mT).unflatten(1, (B, T)))
        head = self._linear(self._norm(x, "norm"), "read_out")
        return torch.stack(states), head.view(S, B, T)

    def _block(
        self, x: Float[Tensor, "S M W"], layer: int, hidden: Bool[Tensor, "S B 1 T T"]
    ) -> Float[Tensor, "S M W"]:
        b = f"blocks.{layer}."
        S, B, _, T, _ = hidden.shape
        qkv = self._linear(self._norm(x, b + "norm1"), b + "attention.qkv")
        q, k, v = qkv.view(S, B, T, 3, self.heads, -1).permute(3, 0, 1, 4, 2, 5)
        score = (q @ k.mT) / math.sqrt(q.shape[-1])
        z = score.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        x = x + self._linear(z.transpose(2, 3).reshape(S, B * T, self.width), b + "attention.out")
        inner = F.gelu(self._linear(self._norm(x, b + "norm2"), b + "up"), approximate="tanh")
        return x + self._linear(inner, b + "down")

    def _edit(self, x: Float[Tensor, "S M W"], layer: int, edit: Edit) -> Float[Tensor, "S M W"]:
        _, S, B, T, _ = edit.gate.shape
        if edit.mix is not None:
            other = x.view(S, B // 2, 2, T, self.width).flip(2).reshape_as(x)
            away = other - x
            away = away - (away @ self.frames.mT) @ self.frames
            x = x + (edit.mix[layer] * away.view(S, B, T, self.width)).flatten(1, 2)
        held = (x @ self.frames[:, :STATE].mT).view(S, B, T, STATE)
        change = (edit.gate[layer] * (edit.value - held)).flatten(1, 2)
        return x + change @ self.frames[:, :STATE]

    def _linear(self, x: Float[Tensor, "S M K"], name: str) -> Float[Tensor, "S M N"]:
        return torch.baddbmm(self.parameters[name + ".bias"].unsqueeze(1), x, self.parameters[name + ".weight"].mT)

    def _norm(self, x: Float[Tensor, "S M W"], name: str) -> Float[Tensor, "S M W"]:
        weight, bias = self.parameters[name + ".weight"].unsqueeze(1), self.parameters[name + ".bias"].unsqueeze(1)
        return torch.addcmul(bias, F.layer_norm(x, (self.width,)), weight)
