"""A bump written at one example, followed to the output: what is read at a query after every later site.

At a site early in the network a unit is written into the state of one example, with the writer of the state of
Richardson's iteration (causal Richardson's under a causal mask) that keeps the inputs fixed: of its residual, or of its
coefficient. In the functional form a bump of the residual grows into the prediction; in the dual form a bump of the
coefficient is corrected away. Read is the model's own output, by the affine map fitted to it at each later site, at
queries at chosen distances from that example.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import InputError
from layerstep.measurement.interventions.alignment import Inputs, Moments, align, known_inputs
from layerstep.measurement.interventions.candidates import FORMS, Candidate
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
#: Steps after which a state is looked for; the one that is read best is written.
STEPS = [1, 2, 3, 4, 6, 9]
SOLVER = {"open": "richardson", "causal": "causal-richardson"}
#: The share of a site's place in the network, and of the examples before the one that is written into.
SITE, EXAMPLE = 1 / 4, 1 / 4


@dataclass(frozen=True, kw_only=True)
class Impulse:
    """response [site, distance]: change of what is read at later `sites` (the last: the output), per unit written.

    solver [steps, distance]: the same of the solver `of` in this form, one step and more after the unit came into its
    state. explained: R² of the reader of the state beside the inputs.
    """

    written_at: str
    explained: float
    distances: list[float]
    sites: list[str]
    response: list[list[float]]
    of: str
    form: str
    solver: list[list[float]]


def impulse_response(reader: EditableReader, task: Task, seed: int = 0) -> list[Impulse]:
    """A bump of the residual (functional form), and one of the coefficient (dual form)."""
    with one_thread(), torch.no_grad():
        fit = draw(reader, task, FIT, seed, 4)
        examples, queries, outputs = states(reader, fit)
        place = round(SITE * (len(reader.sites) - 1))
        inputs = Inputs.of(known_inputs(fit))
        moments = Moments.of(torch.cat([part.flatten(0, 1) for part in examples[place]]), inputs)
        asked, output = Inputs.of(known_inputs(fit, label=False)), torch.cat(outputs)[:, None]
        later = range(place + 1, len(reader.sites))
        readers = [align(Moments.of(torch.cat(queries[at]), asked), asked, output).readers[:, 0] for at in later]
        found = []
        for form in FORMS:
            candidate = Candidate(solver=SOLVER[reader.mask], form=form, mask=reader.mask, v=task.v)
            parts = [
                candidate.iteration(batch.prefix, task).states(form, max(STEPS))[STEPS].flatten(1) for batch in fit
            ]
            aligned = align(moments, inputs, torch.cat(parts, dim=1).mT)
            if bool(aligned.usable.any()):
                _, writer, explained, scale = aligned.pick(int(aligned.explained.argmax()))
                found.append(_followed(reader, task, seed, candidate, place, writer * scale, scale, explained, readers))
        if not found:
            raise InputError("model: no state of the iteration can be read beside the inputs.")
        return found


def _followed(
    reader: EditableReader,
    task: Task,
    seed: int,
    candidate: Candidate,
    place: int,
    change: Float[Tensor, "W"],
    size: float,
    explained: float,
    readers: list[Tensor],
) -> Impulse:
    later = range(place + 1, len(reader.sites))
    responses, predicted = [], []
    for distance in DISTANCES:
        batch, at = _asked(reader, task, seed, distance)
        delta = torch.zeros(batch.prefix.B, batch.n, 1, dtype=torch.float64)
        delta[:, at] = 1
        edit = add(reader, delta * change, batch.n)
        responses.append(_response(reader, batch, reader.sites[place], edit, later, readers) / size)
        predicted.append(candidate.iteration(batch.prefix, task).rows(candidate.form, len(later))[1:, :, at].mean(1))
    return Impulse(
        written_at=reader.sites[place],
        explained=explained,
        distances=list(DISTANCES),
        sites=[*(reader.sites[index] for index in later[:-1]), "output"],
        response=torch.stack(responses, -1).tolist(),
        of=candidate.solver,
        form=candidate.form,
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
    reader: EditableReader, batch: Batch, site: str, edit: Edit, later: Sequence[int], readers: list[Tensor]
) -> Float[Tensor, "sites"]:
    """Mean change of what is read after each of the sites but the last, and of the output."""
    plain, changed = record(reader, batch), record(reader, batch, {site: edit})
    found = []
    for index, u in zip(later[:-1], readers, strict=False):
        moved = (changed[index] - plain[index])[:, reader.queries]
        found.append((at_query(reader, moved, batch.n).to("cpu", torch.float64) @ u).mean())
    output = prediction(reader, changed, batch.n) - prediction(reader, plain, batch.n)
    return torch.stack([*found, output.to("cpu", torch.float64).mean()])
