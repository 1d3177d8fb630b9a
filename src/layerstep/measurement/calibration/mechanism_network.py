"""A network whose layers really take a solver's steps, from a state hidden in rotated directions.

Every token holds named features: its input x, its label y, the solver's state, a decoy and distractors. Each feature
is one direction of the residual stream, of a random orthonormal basis, times a scale of its own; the scales span three
decades. A layer reads features off the stream, computes, and adds the change: nothing passes from layer to layer but
the stream. The decoy is a better or another prediction, written beside the state and read by no layer.

A is the system's matrix, P the preconditioner, k_q the query's row (docs/interventions.md):
    functional  r <- r - A P r,  f_q <- f_q + k_q P r      (the residuals are kept, the prediction is added up)
    dual        w <- w + P (y - A w),  f_q <- k_q w        (the coefficients are kept, the prediction is made anew)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerstep.tasks import Prompts
from layerstep.tasks.kernels import KERNELS
from layerstep.tasks.posterior import posterior_means, ridge


@dataclass(frozen=True, eq=False, kw_only=True)
class Context:
    """What a layer sees: points and labels of e examples and q queries, and which example is visible where."""

    x: Float[Tensor, "B e d"]
    xq: Float[Tensor, "B q d"]
    y: Float[Tensor, "B e"]
    visible: Float[Tensor, "e e"]
    visible_q: Float[Tensor, "q e"]
    kernel: str
    lam: float

    def K(self, v: float) -> Float[Tensor, "B e e"]:
        return KERNELS[self.kernel](self.x, self.x, v) * self.visible

    def Kq(self, v: float) -> Float[Tensor, "B q e"]:
        return KERNELS[self.kernel](self.xq, self.x, v) * self.visible_q


#: (A, P, Kq) of a linear iteration.
Rules = tuple[Float[Tensor, "B e e"], Float[Tensor, "B e e"], Float[Tensor, "B q e"]]
#: A, P up to the size of the steps, Kq, and the size that is the solver's own, by prompt.
Sized = tuple[Float[Tensor, "B e e"], Float[Tensor, "B e e"], Float[Tensor, "B q e"], Float[Tensor, "B"]]
Rule = Callable[[Context, float], Sized]


def _scaled(K: Tensor, scale: Tensor) -> Tensor:
    return scale[..., None] * torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)


def _always(K: Tensor, size: float = 1.0) -> Float[Tensor, "B"]:
    return K.new_full(K.shape[:1], size)


def _largest(matrices: Float[Tensor, "B e e"]) -> Float[Tensor, "B"]:
    """The largest eigenvalue; 1 where there are no examples."""
    return torch.linalg.eigvalsh(matrices).amax(-1) if matrices.shape[-1] else matrices.new_ones(len(matrices))


def _richardson(context: Context, v: float) -> Sized:
    K = context.K(v)
    A, D = ridge(K, context.lam), K.sum(-1)
    root = D.rsqrt()
    largest = _largest(root[..., None] * A * root[..., None, :])
    return A, _scaled(K, 1 / D), context.Kq(v), 1 / largest


def _causal_richardson(context: Context, v: float) -> Sized:
    K = context.K(v)
    return ridge(K, context.lam), _scaled(K, 1 / K.sum(-1)), context.Kq(v), _always(K)


def _fixed(context: Context, v: float) -> Sized:
    K = context.K(v)
    A = ridge(K, context.lam)
    return A, _scaled(K, torch.ones_like(context.y)), context.Kq(v), 1 / _largest(A)


def _causal_fixed(context: Context, v: float) -> Sized:
    """One step size for all points, which no token may derive from later ones: 1 / (1 + e/4)."""
    K = context.K(v)
    one = _scaled(K, torch.ones_like(context.y))
    return ridge(K, context.lam), one, context.Kq(v), _always(K, 1 / (1 + K.shape[-1] / 4))


def _gd(context: Context, v: float) -> Sized:
    K = context.K(v)
    A = ridge(K, context.lam)
    curvature = _largest(K @ A)
    return A, K, context.Kq(v), 1 / curvature


def _boost(context: Context, v: float) -> Sized:
    K, Kq = context.K(v), context.Kq(v)
    one = torch.ones_like(context.y)
    averages = Kq / Kq.sum(-1, keepdim=True).clamp_min(1e-300)
    return K / K.sum(-1, keepdim=True), _scaled(K, one), averages, _always(K)


def _half(context: Context, v: float) -> Sized:
    """Near miss: the square root of the preconditioner."""
    K = context.K(v)
    D = K.sum(-1)
    scale = 0.5 / (D * D.mean(-1, keepdim=True)).sqrt() if bool((context.visible > 0).all()) else 0.3 / D.sqrt()
    return ridge(K, context.lam), _scaled(K, scale), context.Kq(v), _always(K)


def _mixed(context: Context, v: float) -> Sized:
    """Near miss: half a step of Richardson's iteration, half a step of boosting."""
    (A, P, Kq, own), (S, one, Sq, _) = _causal_richardson(context, v), _boost(context, v)
    return 0.5 * (A @ P + S), one, 0.5 * (Kq @ P + Sq), own


def _attention(context: Context, v: float) -> Sized:
    """Near miss: averages whose weights are a softmax of random products of the inputs, no kernel at all."""
    generator = torch.Generator().manual_seed(int(1e6 * v))
    d = context.x.shape[-1]
    W = torch.randn(d, d, dtype=torch.float64, generator=generator).to(context.x)

    def weights(x: Tensor, visible: Tensor) -> Tensor:
        score = 2 * (x @ W @ context.x.mT) / d**0.5
        weight = torch.exp(score - score.amax(-1, keepdim=True)) * visible
        return weight / weight.sum(-1, keepdim=True).clamp_min(1e-300)

    S = weights(context.x, context.visible)
    return S, _scaled(S, torch.ones_like(context.y)), weights(context.xq, context.visible_q), _always(S)


#: By name, the iterations; "causal-" ones use only what a token may see.
RULES: dict[str, Rule] = {
    "richardson": _richardson,
    "richardson-fixed": _fixed,
    "gd": _gd,
    "boost": _boost,
    "causal-richardson": _causal_richardson,
    "causal-richardson-fixed": _causal_fixed,
    "causal-boost": _boost,
    "half-preconditioned": _half,
    "mixed": _mixed,
    "random-attention": _attention,
}


def rules_of(name: str, context: Context, v: float, eta: float | None = None) -> Rules:
    """An iteration with steps of the size eta on all prompts, or of its own."""
    A, P, Kq, own = RULES[name](context, v)
    return A, (own[:, None, None] if eta is None else eta) * P, Kq


def typical_size(name: str, context: Context, v: float) -> float:
    """The size of an iteration's own steps, on average over prompts."""
    return float(RULES[name](context, v)[3].mean())


def iterate(rules: Rules, y: Tensor, form: str, state: Tensor, f: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """`steps` steps of one form: the state of the examples [B, e], the predictions at the queries [B, q]."""
    A, P, Kq = rules
    for _ in range(steps):
        if form == "functional":
            move = torch.einsum("bij,bj->bi", P, state)
            f = f + torch.einsum("bqi,bi->bq", Kq, move)
            state = state - torch.einsum("bij,bj->bi", A, move)
        else:
            state = state + torch.einsum("bij,bj->bi", P, y - torch.einsum("bij,bj->bi", A, state))
    if form == "dual":
        f = torch.einsum("bqi,bi->bq", Kq, state)
    return state, f


def momentum(rules: Rules, y: Tensor, state: Tensor, before: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Heavy ball on the dual form, with the momentum .5: a solver whose state is two numbers per token."""
    A, P, Kq = rules
    for _ in range(steps):
        move = torch.einsum("bij,bj->bi", P, y - torch.einsum("bij,bj->bi", A, state))
        state, before = state + move + 0.5 * (state - before), state
    return state, before, torch.einsum("bqi,bi->bq", Kq, state)


def half_step(
    rules: Rules, y: Tensor, state: Tensor, residual: Tensor, move: bool
) -> tuple[Tensor, Tensor, Float[Tensor, "B q"]]:
    """Half a step of the dual form: what is left of the labels is noted, or the coefficients move along it."""
    A, P, Kq = rules
    if move:
        state = state + torch.einsum("bij,bj->bi", P, residual)
    else:
        residual = y - torch.einsum("bij,bj->bi", A, state)
    return state, residual, torch.einsum("bqi,bi->bq", Kq, state)


def conjugate(rules: Rules, y: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Conjugate gradients from w = 0: (w, residual, predictions). Its step sizes depend on y: it is not linear."""
    A, _, Kq = rules
    w, r = torch.zeros_like(y), y
    p = r
    for _ in range(steps):
        Ap = torch.einsum("bij,bj->bi", A, p)
        size = r.square().sum(-1, keepdim=True)
        alpha = size / (p * Ap).sum(-1, keepdim=True).clamp_min(1e-300)
        w, r = w + alpha * p, r - alpha * Ap
        p = r + r.square().sum(-1, keepdim=True) / size.clamp_min(1e-300) * p
    return w, r, torch.einsum("bqi,bi->bq", Kq, w)


def exact(context: Context, v: float) -> Float[Tensor, "B q"]:
    """Kernel ridge regression at every query from the examples it sees: the decoy that predicts best."""
    points, q = context.xq, context.xq.shape[1]
    if q == 1:
        points = torch.cat([context.x, context.xq], 1)
    labels = torch.cat([context.y, context.y.new_zeros(len(context.y), 1)], 1)
    return posterior_means(KERNELS[context.kernel](points, points, v), labels, context.lam)[:, -q:]


class Frame(nn.Module):
    """Features by name and the directions they are written in: h = features @ directions."""

    directions: Tensor
    readers: Tensor

    def __init__(self, d: int, distractors: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        sizes = {"x": d, "y": 1, "role": 1, "state": 1, "second": 1, "f": 1, "decoy": 1, "decoy_f": 1}
        sizes["distractors"] = distractors
        self.slices: dict[str, slice] = {}
        start = 0
        for name, size in sizes.items():
            self.slices[name] = slice(start, start + size)
            start += size
        Q = torch.linalg.qr(torch.randn(width, start, dtype=torch.float64, generator=generator)).Q
        scale = 10 ** (3 * torch.rand(start, dtype=torch.float64, generator=generator) - 1.5)
        self.register_buffer("directions", (Q * scale).T.contiguous())
        self.register_buffer("readers", Q / scale)

    def read(self, h: Float[Tensor, "B T W"], name: str) -> Tensor:
        """One feature at all tokens: [B, T], or [B, T, k] where it has several parts."""
        part = self.slices[name]
        values = h @ self.readers[:, part]
        return values if name in ("x", "distractors") else values.squeeze(-1)

    def write(self, name: str, values: Tensor) -> Float[Tensor, "B T W"]:
        values = values if name in ("x", "distractors") else values.unsqueeze(-1)
        return values @ self.directions[self.slices[name]]


class Embedding(nn.Module):
    """From features [B, T, d+2] (x, y, role) to the stream."""

    def __init__(self, frame: Frame, form: str) -> None:
        super().__init__()
        self.frame, self.form = frame, form

    def forward(self, tokens: Float[Tensor, "B T F"]) -> Float[Tensor, "B T W"]:
        x, y, role = tokens[..., :-2], tokens[..., -2], tokens[..., -1]
        start = y if self.form == "functional" else torch.zeros_like(y)
        parts = {"x": x, "y": y, "role": role, "state": start * role}
        return torch.stack([self.frame.write(name, value) for name, value in parts.items()]).sum(0)


def interleaved(prompts: Prompts) -> Float[Tensor, "B T F"]:
    """Tokens x_1, (x_1, y_1), x_2, ..., x_{N+1}: a query, then the same point with its label."""
    label = torch.stack([torch.zeros_like(prompts.y), prompts.y], dim=2).flatten(1, 2)[:, :-1]
    x = prompts.x.repeat_interleave(2, dim=1)[:, :-1]
    role = torch.zeros_like(label)
    role[:, 1::2] = 1
    return torch.cat([x, label[..., None], role[..., None]], dim=-1).double()


def paired(prompts: Prompts) -> Float[Tensor, "B T F"]:
    """Tokens (x_1, y_1), ..., (x_N, y_N), x_{N+1}: one per pair, the query last."""
    label, role = prompts.y.clone(), torch.ones_like(prompts.y)
    label[:, -1], role[:, -1] = 0, 0
    return torch.cat([prompts.x, label[..., None], role[..., None]], dim=-1).double()
