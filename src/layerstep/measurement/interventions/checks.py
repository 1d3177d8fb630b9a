"""Interventions of finite size on a chosen match: doses, the next layer, swaps, and what is left of the state.

Each writes into the examples of one site and watches the prediction. White noise delta ~ N(0, s²), s the rms of the
state; natural swaps take the states of other labels on the same points.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.linear_tasks import is_linear
from layerstep.measurement.interventions.alignment import Inputs, Moments, known_inputs
from layerstep.measurement.interventions.candidates import Candidate
from layerstep.measurement.interventions.library import READ_STEPS, Library
from layerstep.measurement.interventions.passes import Batch, at_examples, prediction, record
from layerstep.measurement.interventions.search import Match, Reading
from layerstep.measurement.reading.edits import Edit, Recording
from layerstep.measurement.reading.hooks import EditableReader
from layerstep.tasks import Prompts
from layerstep.tasks.posterior import cholesky
from layerstep.tasks.prompts import normals

DOSES = (0.25, 0.5, 1.0, 2.0)
#: Streams of `normals`: the noise written, the labels swapped in.
NOISE, LABELS = 5, 6


@dataclass(frozen=True, kw_only=True)
class Dose:
    """White noise of one size: the share of the response the candidate explains, its gain, and how far it moves.

    shift: rms Mahalanobis length of the change at a token, over that of the natural states (1: as far as a draw).
    """

    size: float
    share: float
    gain: float
    shift: float


class Passes:
    """Prompts that finite changes are made on: passes without any, made once for all sites."""

    def __init__(self, reader: EditableReader, task: Any, batches: list[Batch], seed: int) -> None:
        self.reader, self.task, self.batches, self.seed = reader, task, batches, seed

    @functools.cached_property
    def plain(self) -> list[Recording]:
        return [record(self.reader, batch) for batch in self.batches]

    @functools.cached_property
    def others(self) -> list[tuple[Batch, Recording]]:
        """The same points with other labels of the task."""
        batches = [_relabelled(batch, self.task, self.seed, index) for index, batch in enumerate(self.batches)]
        return [(batch, record(self.reader, batch)) for batch in batches]

    def change(self, index: int, site: str, edit: Edit) -> tuple[Float[Tensor, "B"], Recording]:
        """The watched prediction of a batch with an edit less that without, and the pass with it."""
        batch, plain = self.batches[index], self.plain[index]
        edited = record(self.reader, batch, {site: edit})
        change = prediction(self.reader, edited, batch.n) - prediction(self.reader, plain, batch.n)
        return change.to("cpu", torch.float64), edited

    def examples(self, recording: Recording, site: str, n: int) -> Float[Tensor, "B n W"]:
        return at_examples(self.reader, recording[site].to("cpu", torch.float64), n)


@dataclass(frozen=True, eq=False, kw_only=True)
class Site:
    """A site with its chosen match, as the checks need it."""

    passes: Passes
    name: str
    match: Match
    reading: Reading
    moments: Moments
    inputs: Float[Tensor, "Z W"]  # regression of the states on what the tokens know

    def write(self, delta: Float[Tensor, "B n"], n: int) -> Edit:
        """The edit h_i + a delta_i at the first n examples."""
        return add(self.passes.reader, delta[..., None] * self.match.writer, n)

    def noise(self, index: int, scale: float) -> Float[Tensor, "B n"]:
        batch = self.passes.batches[index]
        return scale * normals(self.passes.seed, index, NOISE, (batch.prefix.B, batch.n))


def add(reader: EditableReader, change: Float[Tensor, "B n W"], n: int) -> Edit:
    """The edit that adds `change` to the states of the first n examples."""

    def edit(h: Tensor) -> Tensor:
        tokens = torch.arange(h.shape[1], device=h.device)[reader.examples][:n]
        return h.index_add(1, tokens, change.to(h))

    return edit


def doses(site: Site, sizes: tuple[float, ...] = DOSES) -> tuple[Dose, ...]:
    """White noise of several sizes, the same draws for all."""
    match, scale, found = site.match, site.reading.scale, []
    shift = (float(match.writer @ site.moments.inverse @ match.writer) / max(site.moments.rank, 1)) ** 0.5
    for size in sizes:
        dot = made = wanted = 0.0
        for index, batch in enumerate(site.passes.batches):
            delta = site.noise(index, size * scale)
            p = match.candidate.iteration(batch.prefix, site.passes.task).row(match.candidate.form, match.steps_left)
            expected = (p * delta).sum(-1)
            change, _ = site.passes.change(index, site.name, site.write(delta, batch.n))
            dot += float(expected @ change)
            made += float(change @ change)
            wanted += float(expected @ expected)
        share = dot * abs(dot) / (made * wanted) if made * wanted > 0 else 0.0
        gain = dot / wanted if wanted > 0 else 0.0
        found.append(Dose(size=size, share=share, gain=gain, shift=size * scale * shift))
    return tuple(found)


def accumulates(
    library: Library, candidate: Candidate, contribution: Float[Tensor, "queries"], inputs: Inputs
) -> float:
    """T3: how much of the solver's prediction so far the query's own state hands on to the output, beside the inputs.

    contribution: the state at the query times the gradient of the output there. Where predictions are added up, the
    functional form, it is the prediction so far, f_t; where they are made anew it is not. t: the best of all.
    """
    predictions = library.predictions_of(candidate, READ_STEPS)
    f, c = inputs.left(predictions), inputs.left(contribution[:, None])
    together, size = (f * c).sum(0), f.square().sum(0).clamp_min(1e-300)
    best = int((together / size.sqrt()).argmax())
    return float(together[best] / size[best])


def transition(site: Site, later: Site) -> float:
    """T1: the share of what the candidate's own steps make of the noise that arrives in the next site's channels.

    The reader there is fitted to what arrives, on one half of the prompts, and scored on the other.
    """
    match, steps, passes = site.match, site.match.steps_left - later.match.steps_left, site.passes
    halves: list[tuple[list[Tensor], list[Tensor]]] = [([], []), ([], [])]
    for index, batch in enumerate(passes.batches):
        delta = site.noise(index, site.reading.scale)
        expected = match.candidate.iteration(batch.prefix, passes.task).change(match.candidate.form, delta, steps)
        _, edited = passes.change(index, site.name, site.write(delta, batch.n))
        before, after = (passes.examples(each, later.name, batch.n) for each in (passes.plain[index], edited))
        moved = (after - before) @ later.match.channels.readers
        for half, (arrived, wanted) in enumerate(halves):
            arrived.append(moved[half::2].flatten(0, 1))
            wanted.append(expected[half::2].flatten())
    (X, s), (X_other, s_other) = ((torch.cat(arrived), torch.cat(wanted)) for arrived, wanted in halves)
    missed = 0.0
    for A, b, C, d in ((X, s, X_other, s_other), (X_other, s_other, X, s)):
        reader = torch.linalg.lstsq(A, b[:, None], driver="gelsd").solution[:, 0]
        missed += float((C @ reader - d).square().sum())
    size = float(s.square().sum() + s_other.square().sum())
    return 1 - missed / size if size > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Swap:
    """What is swapped comes from the same points with other labels.

    coverage: 1 - |out(state and inputs swapped) - out(tokens swapped)|² / |out(tokens swapped) - out|².
    inert: 1 - |out(rest resampled) - out|² / the same; the rest is all of a token but the state and what it knows.
    """

    coverage: float
    inert: float


def swaps(site: Site) -> Swap:
    passes = site.passes
    known = known_inputs(passes.batches).split([batch.prefix.B * batch.n for batch in passes.batches])
    others = [batch for batch, _ in passes.others]
    known_others = known_inputs(others).split([batch.prefix.B * batch.n for batch in passes.batches])
    missed = inert = moved = 0.0
    a, u = site.match.writer, site.reading.reader
    for index, (batch, Z, Z_other) in enumerate(zip(passes.batches, known, known_others, strict=True)):
        shape = (batch.prefix.B, batch.n, -1)
        recordings = passes.plain[index], passes.others[index][1]
        here, there = (passes.examples(each, site.name, batch.n) for each in recordings)
        fitted, fitted_there = ((values @ site.inputs).reshape(shape) for values in (Z, Z_other))
        left, left_there = here - fitted, there - fitted_there
        state = ((left_there - left) @ u)[..., None] * a
        rest = left - (left @ u)[..., None] * a
        edits = there - here, fitted_there - fitted + state, rest.roll(1, 0) - rest
        changes = [passes.change(index, site.name, add(passes.reader, each, batch.n))[0] for each in edits]
        whole, partly, shuffled = changes
        missed += float((partly - whole).square().sum())
        inert += float(shuffled.square().sum())
        moved += float(whole.square().sum())
    if not moved > 0:
        return Swap(coverage=0.0, inert=1.0)
    return Swap(coverage=1 - missed / moved, inert=1 - inert / moved)


def _relabelled(batch: Batch, task: Any, seed: int, index: int) -> Batch:
    """The same points with other labels of the task."""
    full = batch.prompts
    if is_linear(task):  # whose K + lam I may be singular
        y = task.relabel(full, seed + index).y.to(full.y)
    else:
        L = cholesky(task.gram(full.x.double(), full.x.double()), task.lam)
        y = (L @ normals(seed, index, LABELS, (full.B, full.N + 1, 1))).squeeze(-1)
    prompts = Prompts(full.x, y)
    prefix = Prompts(full.x[:, : batch.n + 1], y[:, : batch.n + 1])
    return Batch(prompts=prompts, prefix=prefix, n=batch.n)
