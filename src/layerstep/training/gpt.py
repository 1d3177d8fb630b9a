"""GPT: the transformer of the paper's experiments in one screenful, and the reference for everything faster.

Shapes: B prompts, M = N+1 points, T tokens (2M under a causal mask, M+1 under an open one), W width, H heads, h = W/H,
L layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
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


def enlist(x: Float[Tensor, "B M d"], y: Float[Tensor, "B M"], n: int | Int[Tensor, "B"]) -> Float[Tensor, "B T D"]:
    """Tokens (x, y, s, t) of an open mask: the dummy (0, 0, 1, 0), n examples (x_i, y_i, 0, 0), queries (x_i, 0, 0, 1).

    n: how many of the points are examples, for all prompts or for each.
    """
    n = torch.as_tensor(n, device=x.device).expand(len(x)).unsqueeze(-1)
    asked = (torch.arange(x.shape[1], device=x.device) >= n).to(x.dtype)
    points = torch.cat([x, torch.stack([y * (1 - asked), torch.zeros_like(y), asked], dim=-1)], dim=-1)
    dummy = torch.zeros_like(points[:, :1])
    dummy[..., -2] = 1
    return torch.cat([dummy, points], dim=1)


def seen(tokens: Float[Tensor, "B T D"]) -> Bool[Tensor, "B 1 T T"]:
    """The open mask: every token sees the dummy, all examples and itself; a query is seen by no other token."""
    key = (tokens[..., -1] == 0)[:, None, None, :]
    return key | torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)


def gelu(x: Tensor) -> Tensor:
    """x (1 + tanh u)/2 = x σ(2u), u = √(2/π)(x + .044715 x³)."""
    if torch.is_grad_enabled():
        return F.gelu(x, approximate="tanh")
    gate = x * x  # in place from here: half the time that torch's own takes on a CPU
    return gate.mul_(0.044715).add_(1).mul_(x).mul_(math.sqrt(8 / math.pi)).sigmoid_().mul_(x)


#: oneDNN's affine map: its kernels use all of AVX-512 on any CPU, those of MKL, torch's default, only on Intel's.
ONE_DNN = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
_one_dnn = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if ONE_DNN else None


class Linear(nn.Linear):
    """nn.Linear, without gradients twice as fast on some CPUs."""

    def forward(self, input: Float[Tensor, "*rest W"]) -> Float[Tensor, "*rest V"]:
        single = input.dtype == self.weight.dtype == torch.float32 and input.device.type == "cpu"
        if _one_dnn is None or torch.is_grad_enabled() or not single or not input.numel():
            return super().forward(input)
        return _one_dnn(input, self.weight, self.bias, "none", [], "")


class Attention(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.heads, self.kind, self.causal = model.heads, model.attention, model.mask == "causal"
        self.qkv = Linear(model.width, 3 * model.width)
        self.out = Linear(model.width, model.width)

    def forward(self, x: Float[Tensor, "B T W"], mask: Bool[Tensor, "B 1 T T"] | None = None) -> Float[Tensor, "B T W"]:
        """mask: what every token sees; a causal attention takes none."""
        q_BHTh, k_BHTh, v_BHTh = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.kind == "softmax":
            z_BHTh = F.scaled_dot_product_attention(q_BHTh, k_BHTh, v_BHTh, attn_mask=mask, is_causal=self.causal)
        else:
            require_choice("attention", self.kind, ("linear", "linear-mean"))
            score_BHTT = q_BHTh @ k_BHTh.mT / math.sqrt(q_BHTh.shape[-1])
            score_BHTT = score_BHTT.tril() if mask is None else score_BHTT * mask
            if self.kind == "linear-mean":
                visible_T = torch.arange(1, x.shape[1] + 1, device=x.device) if mask is None else mask.sum(-1)
                score_BHTT = score_BHTT / visible_T.to(score_BHTT).unsqueeze(-1)
            z_BHTh = score_BHTT @ v_BHTh
        return self.out(z_BHTh.transpose(1, 2).flatten(2))


BLOCK_BYTES = 30_000  # of Python objects, whatever the width: measured over 1,000 blocks


def parameters(model: Model, d: int, N: int) -> int:
    """How many numbers a GPT learns: 12 W² + 13 W in every block; positions under a causal mask, wider tokens else."""
    W = model.width
    tokens = d + 2 * (N + 1) if model.mask == "causal" else d + 3
    return model.layers * (12 * W + 13) * W + (tokens + 4) * W + 1


class Block(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(model.width)
        self.attention = Attention(model)
        self.norm2 = nn.LayerNorm(model.width)
        self.up = Linear(model.width, 4 * model.width)
        self.down = Linear(4 * model.width, model.width)

    def forward(self, x: Float[Tensor, "B T W"], mask: Bool[Tensor, "B 1 T T"] | None = None) -> Float[Tensor, "B T W"]:
        return self.feed(self.attend(x, mask))

    def attend(self, x: Float[Tensor, "B T W"], mask: Bool[Tensor, "B 1 T T"] | None = None) -> Float[Tensor, "B T W"]:
        """The first half of a block."""
        return x + self.attention(self.norm1(x), mask)

    def feed(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        """The second half."""
        return x + self.down(gelu(self.up(self.norm2(x))))


class GPT(Pretrained, nn.Module):
    """Pre-LN transformer that predicts y_{n+1} at x_{n+1} from n examples.

    Where the model has loops, its blocks f are used as often: z <- f(x + norm(z)), x the embedded tokens.

    Causal mask: tokens x_1, y_1, x_2, ..., one pass gives the predictions for all n. Open mask: one pass for each n, as
    every example sees all n of them; no positions, so that the order of the examples cannot matter.
    """

    positions: nn.Parameter  # of a causal model

    def __init__(self, model: Model, d: int = 5, N: int = 40) -> None:
        super().__init__()
        require_kind("model", model, Model, "Make one with ls.Model(layers=12).")
        require_count(d=d, N=N)
        self.model, self.d, self.N = model, int(d), int(N)
        needed = 4 * parameters(model, d, N) + BLOCK_BYTES * model.layers
        require_memory("model", model, needed, "Take fewer layers or a smaller width.")
        self.causal = model.mask == "causal"
        #: The tokens at which predictions can be asked.
        self.asked = slice(0, None, 2) if self.causal else slice(1, None)
        self.read_in = nn.Linear(d if self.causal else d + 3, model.width)
        positions = nn.Parameter(torch.zeros(2 * (N + 1), model.width)) if self.causal else None
        self.register_parameter("positions", positions)
        self.blocks = nn.ModuleList(Block(model) for _ in range(model.layers))
        self.norm = nn.LayerNorm(model.width)
        self.read_out = nn.Linear(model.width, 1)

    def __repr__(self) -> str:
        model, count = self.model, sum(each.numel() for each in self.parameters())
        layers = f"{model.layers} layers" + (f" used {model.loops} times" if model.loops > 1 else "")
        kind = f"{layers} of width {model.width}, {model.heads} heads, {model.attention} attention"
        where = f"{self.read_in.weight.dtype}, {self.read_in.weight.device}"
        return f"GPT({kind}, {model.mask} mask, d={self.d}, N={self.N}, {count:,} parameters, {where})"

    def forward(
        self, prompts: Prompts | Float[Tensor, "B T D"], hidden: bool = False
    ) -> Float[Tensor, "B M"] | tuple[Float[Tensor, "B M"], Float[Tensor, "L1 B T W"]]:
        """Predictions at the x tokens [B, N+1], entry n from n examples; of tokens under an open mask, at every point.

        hidden=True adds the residual stream after the embedding and every use of a block, [L+1, B, T, W]; under an open
        mask that of the queries, [L+1, B, N+1, W], entry n from n examples.
        """
        if isinstance(prompts, Prompts) and not self.causal:
            stream = self._queries(prompts)
            prediction = self._read(stream[-1])
        else:
            stream = []
            for x in self.stream(prompts):
                stream = [*stream, x] if hidden else [x]
            prediction = self.head(stream[-1])
        return (prediction, torch.stack(stream)) if hidden else prediction

    def head(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B M"]:
        """Predictions at all points, from the residual stream after the last block (or, as a lens, any other)."""
        return self._read(x[:, self.asked])

    def _read(self, x: Float[Tensor, "B M W"]) -> Float[Tensor, "B M"]:
        return self.read_out(self.norm(x)).squeeze(-1)

    def _queries(self, prompts: Prompts) -> list[Float[Tensor, "B M W"]]:
        """Under an open mask, the stream at x_{n+1} with n examples, n = 0..N: a pass for each."""
        x, y = prompts.x, prompts.y
        passes = [
            [state[:, -1] for state in self.stream(self._moved(enlist(x[:, : n + 1], y[:, : n + 1], n)))]
            for n in range(prompts.N + 1)
        ]
        return [torch.stack(states, dim=1) for states in zip(*passes, strict=True)]

    def stream(
        self, prompts: Prompts | Float[Tensor, "B T D"], n: int | Int[Tensor, "B"] | None = None
    ) -> Iterator[Float[Tensor, "B T W"]]:
        """The residual stream, one state at a time: after the embedding, then after every use of a block.

        n, under an open mask: the first n points of the prompts are examples, all others queries that see them, by
        default the last point alone. Token 0 is the dummy.
        """
        tokens = self.tokens(prompts, n) if isinstance(prompts, Prompts) else prompts
        x, mask = self.embed(tokens)
        yield x
        embedded = x
        for use, block in enumerate(self.uses):
            x = block(self.enter(use, x, embedded), mask)
            yield x

    @property
    def uses(self) -> list[Block]:
        """The blocks in the order of their use: in every loop the same."""
        return [*self.blocks] * self.model.loops  # type: ignore[list-item]

    def enter(self, use: int, x: Float[Tensor, "B T W"], embedded: Float[Tensor, "B T W"]) -> Float[Tensor, "B T W"]:
        """What a block is given at this use of the blocks: the state before it, or the tokens again in a new loop."""
        return embedded + self.norm(x) if use and use % self.model.layers == 0 else x

    def embed(self, tokens: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B T W"], Bool[Tensor, "B 1 T T"] | None]:
        """Tokens in the residual stream, and what each of them sees (None: all before it)."""
        shaped = isinstance(tokens, Tensor) and tokens.ndim == 3 and tokens.is_floating_point()
        require(shaped, "prompts", tokens, "Prompts, or floating-point tokens [B, T, d]")
        T, D = tokens.shape[1:]
        d = D if self.causal else D - 3
        require(d == self.d, "d", d, f"{self.d}, as the model was built for")
        kind = self.read_in.weight.dtype
        require(tokens.dtype == kind, "tokens", tokens.dtype, f"{kind}, as the model's weights", "Prompts are cast.")
        x = self.read_in(tokens)
        if not self.causal:
            return x, seen(tokens)
        longest = f"at most {len(self.positions)}: the model holds N = {self.N} examples and a query"
        require(len(self.positions) >= T, "tokens", T, longest)
        return x + self.positions[:T], None

    def tokens(self, prompts: Prompts, n: int | Int[Tensor, "B"] | None = None) -> Float[Tensor, "B T D"]:
        """Prompts as this model's tokens, in its dtype and on its device. n: see `stream`."""
        require_kind("prompts", prompts, Prompts)
        if self.causal:
            require(n is None, "n", n, "left out under a causal mask", "One pass gives the predictions for all n.")
            return self._moved(interleave(prompts.x, prompts.y))
        return self._moved(enlist(prompts.x, prompts.y, prompts.N if n is None else n))

    def _moved(self, tokens: Tensor) -> Tensor:
        """In the model's dtype and on its device, where the norms can still square them."""
        dtype = self.read_in.weight.dtype
        largest, allowed = float(tokens.detach().abs().max()), math.sqrt(torch.finfo(dtype).max)
        words = f"numbers up to {allowed:.2g}, whose squares {str(dtype).removeprefix('torch.')} holds"
        require(largest <= allowed, "prompts", f"numbers up to {largest:.2g}", words, "Scale them, or use float64.")
        return tokens.to(self.read_in.weight)

    @torch.no_grad()
    def initialise(self, seed: int) -> GPT:
        """Weights N(0, .02²), residual outputs divided by √(2L), read-in N(0, 1/d); biases 0, norms 1."""
        for index, (name, parameter) in enumerate(self.named_parameters()):
            if parameter.ndim == 1:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            std = 1 / math.sqrt(self.d) if name.startswith("read_in") else 0.02
            if name.endswith(("attention.out.weight", "down.weight")):
                std /= math.sqrt(2 * self.model.layers * self.model.loops)
            parameter.copy_(std * normals(seed, index, 3, parameter.shape))
        return self
