"""What a control answers when its state is overwritten, beside what its solver would: the test that it is one.

Needs no training code: a control is a GPT and a `control.json` that says where its state lies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.calibration.controls.lessons import Units, at_tokens, points, problem, roles
from layerstep.measurement.calibration.controls.mechanism import COLUMNS, F, Mechanism, Swap
from layerstep.measurement.calibration.controls.suite import Control
from layerstep.tasks.prompts import normals
from layerstep.training import GPT
from layerstep.training.gpt import enlist, interleave
from layerstep.training.sampling import draw

RIDGE = 1e-6  # of the mean variance of a coordinate


@dataclass(frozen=True, kw_only=True)
class Response:
    """After noise was written into the solver's column behind one layer: what moved, and what should have.

    slope and r2: of the line through the origin from the solver's change of the output to the model's; r2 is 1 minus
    the squared error of the solver's own change (slope 1) over the size of that change.
    """

    layer: int
    slope: float
    r2: float
    correlation: float


@torch.no_grad()
def responses(
    gpt: GPT, control: Control, mechanism: Mechanism, frame: Float[Tensor, "4 W"] | None, B: int = 256, seed: int = 7
) -> list[Response]:
    """White noise of the state's size at all examples, after every layer that holds a state and has another behind it.

    frame: the directions of a control's own state; None: reader and writer are fitted, as for a network that was
    trained on labels (u = Sigma⁻¹ Cov(h, s), a = Sigma u / u' Sigma u).
    """
    run, layers = control.run, control.run.model.layers
    device, units = gpt.read_in.weight.device, Units.of(replace(control, mechanism=mechanism))
    M = points(control)
    n = torch.full((B,), run.task.N, device=device)
    x, y = draw(run.task, normals(seed, 0, 7, (B, M, run.task.d + 1)).float().to(device))
    tokens = enlist(x, y, n) if control.mask == "open" else interleave(x, y)
    setup = problem(control, mechanism, x, y, n)
    place = at_tokens(roles(control, M, n).float(), control.mask)
    raw = mechanism.states(setup, layers)
    size = units.size.to(device)
    clean = _run(gpt, tokens)
    asked = place[..., F] > 0
    found = []
    for layer in range(mechanism.earliest, layers):
        noise = normals(seed, layer, 8, (B, M)).float().to(device) * roles(control, M, n)[..., 0]
        noise = noise * units.rms[layer - 1, 0].to(device) * size[0]
        value = raw[layer - 1].clone()
        value[..., 0] += noise
        moved = mechanism.states(setup, layers, Swap(layer=torch.full_like(n, layer), value=value))[-1, ..., F]
        wanted = at_tokens(torch.stack([moved - raw[-1, ..., F]] * len(COLUMNS), -1), control.mask)[..., F][asked]
        delta = at_tokens(torch.stack([noise / size[0]] * len(COLUMNS), -1), control.mask)[..., 0]
        if frame is None:
            writer = _writer(gpt, tokens, layer, at_tokens(raw[layer - 1] / size, control.mask), place)
        else:
            writer = frame[0].to(device)
        change = _run(gpt, tokens, layer, delta.unsqueeze(-1) * writer) - clean
        got = change[asked]
        slope = float((got @ wanted) / wanted.square().sum())
        r2 = 1 - float((got - wanted).square().sum() / wanted.square().sum())
        correlation = float(got @ wanted / (got.norm() * wanted.norm()).clamp_min(1e-12))
        found.append(Response(layer=layer, slope=slope, r2=r2, correlation=correlation))
    return found


def _run(gpt: GPT, tokens: Tensor, layer: int = 0, change: Tensor | None = None) -> Float[Tensor, "B T"]:
    """The head's output at every token; `change` is added to the stream after `layer` blocks."""
    x, mask = gpt.embed(tokens)
    for index, block in enumerate(gpt.blocks, 1):
        x = block(x, mask)
        if index == layer and change is not None:
            x = x + change
    return gpt.read_out(gpt.norm(x)).squeeze(-1)


def _writer(gpt: GPT, tokens: Tensor, layer: int, states: Tensor, place: Tensor) -> Float[Tensor, "W"]:
    x, mask = gpt.embed(tokens)
    for block in gpt.blocks[:layer]:
        x = block(x, mask)
    at = place[..., 0] > 0
    h, s = x[at].double(), states[..., 0][at].double()
    h, s = h - h.mean(0), s - s.mean()
    covariance = h.T @ h / len(h)
    ridge = RIDGE * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=h.dtype, device=h.device)
    u = torch.linalg.solve(covariance + ridge, h.T @ s / len(h))
    return (covariance @ u / (u @ covariance @ u)).float()
