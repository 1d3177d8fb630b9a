"""GPT: the decoder of the paper's experiments in one screenful, and the reference for everything faster.

Shapes: B prompts, T = 2(N+1) tokens, W width, H heads, h = W/H, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from layerstep.errors import require, require_choice, require_count, require_kind
from layerstep.memory import require_memory
from layerstep.tasks import Prompts
from layerstep.tasks.prompts import normals
from layerstep.training.config import Model
from layerstep.training.pretrained import Pretrained


def interleave(x: Float[Tensor, "B M d"], y: Float[Tensor, "B M"]) -> Float[Tensor, "B T d"]:
    """Tokens x_1, y_1, ..., x_M, 0: a label is the vector (y, 0, ..., 0), the last one is asked for."""
    labels = torch.zeros_like(x)
    labels[:, :-1, 0] = y[:, :-1]
    return torch.stack([x, labels], dim=2).flatten(1, 2)


def gelu(x: Tensor) -> Tensor:
    """x (1 + tanh u)/2 = x σ(2u), u = √(2/π)(x + .044715 x³)."""
    if torch.is_grad_enabled():
        return F.gelu(x, approximate="tanh")
    gate = x * x  # in place from here: half the time that torch's own takes on a CPU
    return gate.mul_(0.044715).add_(1).mul_(x).mul_(math.sqrt(8 / math.pi)).sigmoid_().mul_(x)


class Attention(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.heads, self.kind = model.heads, model.attention
        self.qkv = nn.Linear(model.width, 3 * model.width)
        self.out = nn.Linear(model.width, model.width)

    def forward(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        q_BHTh, k_BHTh, v_BHTh = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.kind == "softmax":
            z_BHTh = F.scaled_dot_product_attention(q_BHTh, k_BHTh, v_BHTh, is_causal=True)
        else:
            require_choice("attention", self.kind, ("linear", "linear-mean"))
            score_BHTT = (q_BHTh @ k_BHTh.mT / math.sqrt(q_BHTh.shape[-1])).tril()
            if self.kind == "linear-mean":
                visible_T = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=score_BHTT.dtype)
                score_BHTT = score_BHTT / visible_T.unsqueeze(-1)
            z_BHTh = score_BHTT @ v_BHTh
        return self.out(z_BHTh.transpose(1, 2).flatten(2))


BLOCK_BYTES = 30_000  # of Python objects, whatever the width: measured over 1,000 blocks


def parameters(model: Model, d: int, N: int) -> int:
    """How many numbers a GPT learns: 12 W² + 13 W in every block."""
    W = model.width
    return model.layers * (12 * W + 13) * W + (d + 1 + 2 * (N + 1) + 3) * W + 1


class Block(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(model.width)
        self.attention = Attention(model)
        self.norm2 = nn.LayerNorm(model.width)
        self.up = nn.Linear(model.width, 4 * model.width)
        self.down = nn.Linear(4 * model.width, model.width)

    def forward(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        return self.feed(self.attend(x))

    def attend(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        """The first half of a block."""
        return x + self.attention(self.norm1(x))

    def feed(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        """The second half."""
        return x + self.down(gelu(self.up(self.norm2(x))))


class GPT(Pretrained, nn.Module):
    """Pre-LN decoder on interleaved tokens; at the token x_{n+1} it predicts y_{n+1} from the n pairs before."""

    def __init__(self, model: Model, d: int = 5, N: int = 40) -> None:
        super().__init__()
        require_kind("model", model, Model, "Make one with ls.Model(layers=12).")
        require_count(d=d, N=N)
        self.model, self.d, self.N = model, int(d), int(N)
        needed = 4.0 * parameters(model, d, N) + BLOCK_BYTES * model.layers
        require_memory("model", model, needed, "Take fewer layers or a smaller width.")
        self.read_in = nn.Linear(d, model.width)
        self.positions = nn.Parameter(torch.zeros(2 * (N + 1), model.width))
        self.blocks = nn.ModuleList(Block(model) for _ in range(model.layers))
        self.norm = nn.LayerNorm(model.width)
        self.read_out = nn.Linear(model.width, 1)

    def forward(
        self, prompts: Prompts | Float[Tensor, "B T d"], hidden: bool = False
    ) -> Float[Tensor, "B M"] | tuple[Float[Tensor, "B M"], Float[Tensor, "L1 B T W"]]:
        """Predictions at the x tokens [B, N+1], entry n from n examples.

        hidden=True adds the residual stream after the embedding and after every block, [L+1, B, T, W].
        """
        stream = []
        for x in self.stream(prompts):
            stream = [*stream, x] if hidden else [x]
        prediction = self.head(stream[-1])
        return (prediction, torch.stack(stream)) if hidden else prediction

    def head(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B M"]:
        """Predictions at the x tokens, from the residual stream after the last block (or, as a lens, any other)."""
        return self.read_out(self.norm(x[:, ::2])).squeeze(-1)

    def stream(self, prompts: Prompts | Float[Tensor, "B T d"]) -> Iterator[Float[Tensor, "B T W"]]:
        """The residual stream, one state at a time: after the embedding, then after every block."""
        tokens = self.tokens(prompts) if isinstance(prompts, Prompts) else prompts
        T = tokens.shape[1]
        require(tokens.shape[2] == self.d, "d", tokens.shape[2], f"{self.d}, as the model was built for")
        longest = f"at most {len(self.positions)}: the model holds N = {self.N} examples and a query"
        require(len(self.positions) >= T, "tokens", T, longest)
        x = self.read_in(tokens) + self.positions[:T]
        yield x
        for block in self.blocks:
            x = block(x)
            yield x

    def tokens(self, prompts: Prompts) -> Float[Tensor, "B T d"]:
        """Prompts as this model's tokens, in its dtype and on its device."""
        moved = prompts.to(self.positions.dtype, self.positions.device)
        return interleave(moved.x, moved.y)

    @torch.no_grad()
    def initialise(self, seed: int) -> GPT:
        """Weights N(0, .02²), residual outputs divided by √(2L), read-in N(0, 1/d); biases 0, norms 1."""
        for index, (name, parameter) in enumerate(self.named_parameters()):
            if parameter.ndim == 1:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            std = 1 / math.sqrt(self.d) if name.startswith("read_in") else 0.02
            if name.endswith(("attention.out.weight", "down.weight")):
                std /= math.sqrt(2 * self.model.layers)
            parameter.copy_(std * normals(seed, index, 3, parameter.shape))
        return self
