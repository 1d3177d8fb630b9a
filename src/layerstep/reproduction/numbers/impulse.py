"""A bump written at one example, followed to the output: what is read at a query after every later site.

At a site early in the network a unit is written into the state of one example, with the writer of the residual of
Richardson's iteration (causal Richardson's under a causal mask) that keeps the inputs fixed. Read is the model's own
output, by the affine map fitted to it at each later site, at queries at chosen distances from that example.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import InputError
from layerstep.measurement.interventions.alignment import Inputs, Moments, align, known_inputs
from layerstep.measurement.interventions.candidates import Candidate
from layerstep.measurement.interventions.checks import add
from layerstep.measurement.interventions.passes import (
    FIRST_STEP,
    Batch,
    at_query,
    draw,
    prediction,
    record,
    states,
)
from layerstep.measurement.reading.edits import Edit
from layerstep.measurement.reading.hooks import EditableReader
from layerstep.tasks import Prompts, Task, sample
from layerstep.threads import one_thread

#: Prompts that readers are fitted on, and that are written into.
FIT, PROMPTS = 144, 24
#: Distances between the query and the example; 2 is the diameter of the sphere.
DISTANCES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0, 1.2, 1.45, 1.7, 2.0)
#: Steps at which a residual is looked for; the one that is read best is written.
STEPS = (1, 2, 3, 4, 6, 9)
#: The share of a site's place in the network, and of the examples before the one that is written into.
SITE, EXAMPLE = 1 / 4, 1 / 4


@dataclass(frozen=True, kw_only=True)
class Impulse:
    """response [site, distance]: change of what is read at later `sites` (the last: the output), per unit written.

    solver [steps, distance]: the same of the solver `of`, one step and more after the unit came into its residual.
    explained: R² of the reader of the residual beside the inputs.
    """

    written_at: str
    explained: float
    distances: list[float]
    sites: list[str]
    response: list[list[float]]
    of: str
    solver: list[list[float]]


def impulse_response(reader: EditableReader, task: Task, seed: int = 0) -> Impulse:
    with one_thread(), torch.no_grad():
        return _impulse(reader, task, seed)


def _impulse(reader: EditableReader, task: Task, seed: int) -> Impulse:
    mask = reader.mask
    candidate = Candidate(
        solver="richardson" if mask == "open" else "causal-richardson", form="functional", mask=mask, v=task.v
    )
    fit = draw(reader, task, FIT, seed, 4)
    examples, queries, outputs = states(reader, fit)
    place = round(SITE * (len(reader.sites) - 1))
    inputs = Inputs.of(known_inputs(fit))
    moments = Moments.of(torch.cat([part.flatten(0, 1) for part in examples[place]]), inputs)
    kept = [
        candidate.iteration(batch.prefix, task).states("functional", max(STEPS))[list(STEPS)].flatten(1)
        for batch in fit
    ]
    residuals = torch.cat(kept, dim=1).mT
    found = align(moments, inputs, residuals)
    if not bool(found.usable.any()):
        raise InputError("model: no residual can be read beside the inputs.")
    _, writer, explained, scale = found.pick(int(found.explained.argmax()))
    asked, output = Inputs.of(known_inputs(fit, label=False)), torch.cat(outputs)[:, None]
    later = range(place + 1, len(reader.sites))
    readers = [align(Moments.of(torch.cat(queries[index]), asked), asked, output).readers[:, 0] for index in later]
    responses, predicted = [], []
    for distance in DISTANCES:
        batch, at = _asked(reader, task, seed, distance)
        delta = torch.zeros(batch.prefix.B, batch.n, dtype=torch.float64)
        delta[:, at] = scale
        edit = add(reader, delta[..., None] * writer, batch.n)
        responses.append(_response(reader, batch, reader.sites[place], edit, list(later), readers) / scale)
        rows = candidate.iteration(batch.prefix, task).rows("functional", len(later))
        predicted.append(rows[1:, :, at].mean(1))
    names = [*(reader.sites[index] for index in later[:-1]), "output"]
    return Impulse(
        written_at=reader.sites[place],
        explained=explained,
        distances=list(DISTANCES),
        sites=names,
        response=torch.stack(responses, -1).tolist(),
        of=candidate.solver,
        solver=torch.stack(predicted, -1).tolist(),
    )


def _asked(reader: EditableReader, task: Task, seed: int, distance: float) -> tuple[Batch, int]:
    """The same prompts for every distance, asked at that distance from one of their examples; its place."""
    prompts = sample(task, PROMPTS, seed, FIRST_STEP + 5)
    at = math.floor(EXAMPLE * task.N)
    x = prompts.x.clone()
    x[:, -1] = _away(x[:, at], x[:, -1], distance, on_sphere=task.inputs == "sphere")
    asked = Prompts(x, prompts.y)
    return Batch(prompts=asked, prefix=asked, n=task.N), at


def _away(
    x: Float[Tensor, "B d"], towards: Float[Tensor, "B d"], distance: float, *, on_sphere: bool
) -> Float[Tensor, "B d"]:
    """The point at `distance` from x in the direction of another, on the sphere along its great circle."""
    aside = towards - x
    if not on_sphere:
        return x + distance * aside / aside.norm(dim=-1, keepdim=True)
    aside = aside - (aside * x).sum(-1, keepdim=True) * x
    aside = aside / aside.norm(dim=-1, keepdim=True)
    angle = 2 * math.asin(min(distance / 2, 1.0))
    return math.cos(angle) * x + math.sin(angle) * aside


def _response(
    reader: EditableReader, batch: Batch, site: str, edit: Edit, later: list[int], readers: list[Tensor]
) -> Float[Tensor, "sites"]:
    """Mean change of what is read after each of the sites but the last, and of the output."""
    plain, changed = record(reader, batch), record(reader, batch, {site: edit})
    found = []
    for index, u in zip(later[:-1], readers, strict=False):
        moved = (changed[index] - plain[index])[:, reader.queries]
        found.append((at_query(reader, moved, batch.n).to("cpu", torch.float64) @ u).mean())
    output = prediction(reader, changed, batch.n) - prediction(reader, plain, batch.n)
    return torch.stack([*found, output.to("cpu", torch.float64).mean()])
