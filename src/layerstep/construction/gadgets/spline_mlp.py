"""Gadgets of the theorem's network: a spline as an MLP, a product of two coordinates, a gate, the step."""

from __future__ import annotations

import torch
from torch import Tensor

from layerstep.construction.blocks import MLP, Attention, Mask
from layerstep.construction.gadgets.kernel_attention import kernel_logits
from layerstep.construction.gadgets.linear_step import both_signs
from layerstep.construction.gadgets.splines import Spline
from layerstep.construction.kernels import Gaussian
from layerstep.construction.stream import Stream


def read(
    stream: Stream, kernel: Gaussian, source: str, target: str, factor: float, mask: Mask, dummy: bool
) -> Attention:
    W_Q, W_K = kernel_logits(stream, kernel, dummy=dummy)
    return Attention(W_Q[None], W_K[None], stream.copy(source, target, factor)[None], (mask,))


def units(stream: Stream, phi: Spline, argument: dict[str, float]) -> Tensor:
    """W_in rows a_s argument + b_s one."""
    return phi.a[:, None] * stream.form(**argument) + phi.b[:, None] * stream.form(one=1.0)


def spline(stream: Stream, phi: Spline, argument: dict[str, float], target: str) -> MLP:
    """target += phi(argument)."""
    return MLP(units(stream, phi, argument), stream.write(**{target: phi.c}))


def plus_and_minus(stream: Stream, phi: Spline, p: dict[str, float], q: dict[str, float]) -> Tensor:
    """Units of phi(p + q), then those of phi(p - q)."""
    minus = {name: -value for name, value in q.items()}
    return torch.cat([units(stream, phi, p | q), units(stream, phi, p | minus)])


def product(stream: Stream, phi: Spline, p: dict[str, float], q: dict[str, float], factor: float, target: str) -> MLP:
    """target += factor [phi(p + q) - phi(p - q)], about 4 factor p q; the constant of phi cancels."""
    return MLP(plus_and_minus(stream, phi, p, q), stream.write(**{target: factor * torch.cat([phi.c, -phi.c])}))


def gate(stream: Stream, name: str, B: float) -> MLP:
    """z += relu(-z - B (one - t)) - relu(z - B (one - t)): nothing where t = 0 and |z| <= B, -z where t = 1."""
    closed = {"one": -B, "t": B}
    W_in = stream.forms({name: -1.0} | closed, {name: 1.0} | closed)
    return MLP(W_in, stream.write(**{name: torch.tensor([1.0, -1.0], dtype=torch.float64)}))


def richardson_step(stream: Stream, phi: Spline, eta: float, lam: float) -> MLP:
    """w += -eta lam/4 [phi(w + alpha) - phi(w - alpha)] + beta + eta p;  p += -p."""
    W_in = torch.cat(
        [plus_and_minus(stream, phi, {"w": 1.0}, {"alpha": 1.0}), stream.forms(*both_signs({"beta": 1.0}, {"p": 1.0}))]
    )
    products = -eta * lam / 4 * torch.cat([phi.c, -phi.c])
    w = torch.cat([products, torch.tensor([1.0, -1.0, eta, -eta], dtype=torch.float64)])
    p = torch.cat([torch.zeros_like(products), torch.tensor([0.0, 0.0, -1.0, 1.0], dtype=torch.float64)])
    return MLP(W_in, stream.write(w=w, p=p))
