"""What controls learn from: prompts, the states their solver has on them, and what follows when a state is replaced.

Shapes: C steps, S controls, B prompts, M points, T tokens, L layers. Values are in units in which a state has size one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerstep.measurement.calibration.controls.mechanism import COLUMNS, SCALE, F, Mechanism, Problem, Swap, supervised
from layerstep.measurement.calibration.controls.suite import Control
from layerstep.tasks.prompts import normals
from layerstep.training.gpt import enlist, interleave
from layerstep.training.sampling import draw

QUERIES = 8  # points of an open prompt that are never examples
LEAST = 4  # the shortest context is a LEAST-th of the longest
LEAST_NOISE = 0.3  # of the largest state: what noise is measured by where a state is small or 0
CALIBRATION = 512  # prompts that units are measured on


@dataclass(frozen=True, kw_only=True, eq=False)
class Lesson:
    """Prompts of one or many steps as tokens, the states after every layer, and the states after an intervention.

    layer: the block (counted from 0) after which states are replaced by `value`. mix: whether all else is replaced too.
    """

    tokens: Float[Tensor, "*step B T D"]
    clean: Float[Tensor, "*step L B T 4"]
    swapped: Float[Tensor, "*step L B T 4"]
    value: Float[Tensor, "*step B T 4"]
    answer: Float[Tensor, "*step B T"]
    swapped_answer: Float[Tensor, "*step B T"]
    layer: Int[Tensor, "*step B"]
    mix: Float[Tensor, "*step B"]

    def __iter__(self):
        return (getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, kw_only=True, eq=False)
class Units:
    """Of one control: the size of each column, of every layer's states in it, and of the steps between layers."""

    size: Float[Tensor, "4"]
    rms: Float[Tensor, "L 4"]
    step: Float[Tensor, "L 4"]

    def to(self, device: torch.device) -> Units:
        return Units(size=self.size.to(device), rms=self.rms.to(device), step=self.step.to(device))

    @staticmethod
    def of(control: Control) -> Units:
        """Measured on prompts of a seed of their own; columns that hold nothing have size 1."""
        layers, mechanism = control.run.model.layers, control.mechanism
        if mechanism is None:
            return Units(size=torch.ones(4), rms=torch.ones(layers, 4), step=torch.ones(layers, 4))
        z = normals(control.run.seed, 0, 6, (CALIBRATION, points(control), control.run.task.d + 1))
        x, y = draw(control.run.task, z)
        n = torch.full((CALIBRATION,), control.run.task.N)
        states = mechanism.states(problem(control, mechanism, x, y, n), layers)
        places = roles(control, x.shape[1], n)[..., None, :, :, :] * supervised(mechanism, layers)[:, None, None, :]
        rms = _mean(states.square(), places).sqrt()
        before = torch.cat([torch.zeros_like(states[:1]), states[:-1]])
        step = _mean((states - before).square(), places).sqrt()
        size = rms.amax(0)
        size = torch.where(size > 0, size, 1.0)
        return Units(size=size.float(), rms=(rms / size).float(), step=(step / size).float())


def _mean(values: Float[Tensor, "L B M 4"], places: Tensor) -> Float[Tensor, "L 4"]:
    return (values * places).sum((1, 2)) / places.sum((1, 2)).clamp_min(1)


def points(control: Control) -> int:
    """Points of a prompt: an open one has queries beside all its examples."""
    return control.run.task.N + (QUERIES if control.mask == "open" else 1)


def problem(control: Control, mechanism: Mechanism, x: Tensor, y: Tensor, n: Int[Tensor, "B"]) -> Problem:
    task = mechanism.task(control.run.task)
    return Problem.open(task, x, y, n) if control.mask == "open" else Problem.causal(task, x, y)


def roles(control: Control, M: int, n: Int[Tensor, "B"]) -> Bool[Tensor, "B M 4"]:
    """Which columns live at which points: solver and memory at examples, the prediction at queries, the scale at both
    (under a causal mask at examples alone)."""
    at = torch.arange(M, device=n.device)
    if control.mask == "open":
        example = at < n.unsqueeze(-1)
        query, scale = ~example, torch.ones_like(example)
    else:  # a point is both, at two tokens; the last label is not shown
        example = (at < M - 1).expand(len(n), M)
        query, scale = torch.ones_like(example), example
    return torch.stack([example, example, scale, query], dim=-1)


def at_tokens(values: Float[Tensor, "*any M 4"], mask: str) -> Float[Tensor, "*any T 4"]:
    """From points to tokens: behind the dummy of an open mask; the prediction at x_i, the rest at y_i."""
    if mask == "open":
        return torch.cat([torch.zeros_like(values[..., :1, :]), values], dim=-2)
    predicts = values.new_zeros(len(COLUMNS))
    predicts[F] = 1
    return torch.stack([values * predicts, values * (1 - predicts)], dim=-2).flatten(-3, -2)


def lesson(control: Control, units: Units, steps: int, chunk: int, device: torch.device) -> Lesson:
    """The lessons of some steps; (seed, chunk) decides them. Half of the interventions give a prompt the state of the
    other one of its pair, half add white noise of up to one and a half times the state's size."""
    run, layers, mechanism = control.run, control.run.model.layers, control.mechanism
    B, M, N = run.batch, points(control), run.task.N
    generator = torch.Generator(device).manual_seed(run.seed * 2**24 + chunk)
    make = {"generator": generator, "device": device}
    x, y = draw(run.task, torch.randn(steps * B, M, run.task.d + 1, **make))
    shortest = max(1, N // LEAST)
    n = torch.randint(shortest, N + 1, (steps * B // 2,), **make).repeat_interleave(2)
    tokens = enlist(x, y, n) if control.mask == "open" else interleave(x, y)
    place = roles(control, M, n)
    mix = (torch.rand(steps * B, **make) < 0.5).float()
    if mechanism is None:
        layer = torch.full_like(n, layers)
        clean = swapped = torch.zeros(layers, steps * B, M, len(COLUMNS), device=device)
        value, answer = clean[0], y
    else:
        size = units.size
        setup = problem(control, mechanism, x, y, n)
        held = supervised(mechanism, layers).to(device)
        held[:, SCALE] = False  # a part of the problem, not of the solver: nothing is written there
        raw = mechanism.states(setup, layers)
        layer = torch.randint(mechanism.earliest, layers, n.shape, **make)  # counted from 1; one layer or more is left
        here = raw[layer - 1, torch.arange(len(n), device=device)]
        noise = torch.randn(here.shape, **make) * units.rms[layer - 1, None].clamp_min(LEAST_NOISE) * size
        noisy = here + noise * (0.25 + 1.25 * torch.rand(len(n), 1, 1, **make))
        partner = here.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
        white = torch.rand(len(n), 1, 1, **make) < 0.5
        value = torch.where(place & held[layer - 1, None], torch.where(white, noisy, partner), here)
        swapped = raw
        if control.kind != "decoy":
            swapped = mechanism.states(setup, layers, Swap(layer=layer, value=value))
        clean, swapped, value, layer = raw / size, swapped / size, value / size, layer - 1
        answer = y if control.kind == "decoy" else raw[-1, ..., F]
    swapped_answer = answer if mechanism is None or control.kind == "decoy" else swapped[-1, ..., F] * units.size[F]
    spread = {"tokens": tokens, "value": at_tokens(value, control.mask), "layer": layer, "mix": mix}
    spread |= {"answer": _answers(answer, control.mask), "swapped_answer": _answers(swapped_answer, control.mask)}
    cut = {name: tensor.unflatten(0, (steps, B)) for name, tensor in spread.items()}
    for name, states in {"clean": clean, "swapped": swapped}.items():
        cut[name] = at_tokens(states, control.mask).unflatten(1, (steps, B)).transpose(0, 1)
    return Lesson(**cut)


def _answers(values: Float[Tensor, "B M"], mask: str) -> Float[Tensor, "B T"]:
    return at_tokens(torch.stack([values] * len(COLUMNS), dim=-1), mask)[..., F]


def stacked(lessons: Sequence[Lesson]) -> Lesson:
    """The lessons of several controls beside each other: the axis of controls comes behind that of steps."""
    columns = zip(*lessons, strict=True)
    names = [field.name for field in fields(Lesson)]
    return Lesson(**{name: torch.stack(list(column), 1) for name, column in zip(names, columns, strict=True)})
