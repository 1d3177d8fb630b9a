"""Interventions of finite size on a chosen match: doses, the next layer, swaps, and what is left of the state.

Each writes into the examples of one site and watches the prediction. White noise delta ~ N(0, s²), s the rms of the
state; natural swaps take the states of other labels on the same points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.interventions.alignment import Moments, known_inputs
from layerstep.measurement.interventions.passes import Batch, at_examples, prediction, record
from layerstep.measurement.interventions.search import Match, Reading
from layerstep.measurement.reading.hooks import EditableReader
from layerstep.tasks import Prompts, Task
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Site:
    """A site with its chosen match, as the checks need it."""

    reader: EditableReader
    task: Task
    name: str
    match: Match
    reading: Reading
    moments: Moments
    inputs: Float[Tensor, "Z W"]  # regression of the states on what the tokens know

    def write(self, delta: Float[Tensor, "B n"], n: int) -> Callable[[Tensor], Tensor]:
        """The edit h_i + a delta_i at the first n examples."""
        return add(self.reader, delta[..., None] * self.match.writer, n)


def add(reader: EditableReader, change: Float[Tensor, "B n W"], n: int) -> Callable[[Tensor], Tensor]:
    """The edit that adds `change` to the states of the first n examples."""

    def edit(h: Tensor) -> Tensor:
        tokens = torch.arange(h.shape[1], device=h.device)[reader.examples][:n]
        return h.index_add(1, tokens, change.to(h))

    return edit


def noise(seed: int, batch: Batch, index: int, scale: float) -> Float[Tensor, "B n"]:
    return scale * normals(seed, index, NOISE, (batch.prefix.B, batch.n))


def doses(site: Site, batches: list[Batch], seed: int, sizes: tuple[float, ...] = DOSES) -> tuple[Dose, ...]:
    """White noise of several sizes, the same draws for all."""
    match, scale, found = site.match, site.reading.scale, []
    shift = (float(match.writer @ site.moments.inverse @ match.writer) / max(site.moments.rank, 1)) ** 0.5
    for size in sizes:
        dot = made = wanted = 0.0
        for index, batch in enumerate(batches):
            delta = noise(seed, batch, index, size * scale)
            p = match.candidate.iteration(batch.prefix, site.task).rows(match.candidate.form, match.steps_left)[-1]
            expected = (p * delta).sum(-1)
            change = _change(site.reader, batch, {site.name: site.write(delta, batch.n)})
            dot += float(expected @ change)
            made += float(change @ change)
            wanted += float(expected @ expected)
        share = dot * abs(dot) / (made * wanted) if made * wanted > 0 else 0.0
        gain = dot / wanted if wanted > 0 else 0.0
        found.append(Dose(size=size, share=share, gain=gain, shift=size * scale * shift))
    return tuple(found)


def transition(site: Site, later: Site, batches: list[Batch], seed: int) -> float:
    """T1: the share of what the candidate's own steps make of the noise that arrives in the next site's channels.

    The reader there is fitted to what arrives, on one half of the prompts, and scored on the other.
    """
    match, steps = site.match, site.match.steps_left - later.match.steps_left
    halves: list[tuple[list[Tensor], list[Tensor]]] = [([], []), ([], [])]
    for index, batch in enumerate(batches):
        delta = noise(seed, batch, index, site.reading.scale)
        expected = match.candidate.iteration(batch.prefix, site.task).change(match.candidate.form, delta, steps)
        before = record(site.reader, batch)[later.name]
        after = record(site.reader, batch, {site.name: site.write(delta, batch.n)})[later.name]
        moved = at_examples(site.reader, (after - before).to("cpu", torch.float64), batch.n)
        moved = moved @ later.match.channels.readers
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


def swaps(site: Site, batches: list[Batch], seed: int) -> Swap:
    known = known_inputs(batches).split([batch.prefix.B * batch.n for batch in batches])
    others = [_relabelled(batch, site.task, seed, index) for index, batch in enumerate(batches)]
    known_others = known_inputs(others).split([batch.prefix.B * batch.n for batch in batches])
    missed = inert = moved = 0.0
    a, u = site.match.writer, site.reading.reader
    for batch, other, Z, Z_other in zip(batches, others, known, known_others, strict=True):
        shape = (batch.prefix.B, batch.n, -1)
        here, there = (_examples(site, each) for each in (batch, other))
        fitted, fitted_there = ((values @ site.inputs).reshape(shape) for values in (Z, Z_other))
        left, left_there = here - fitted, there - fitted_there
        state = ((left_there - left) @ u)[..., None] * a
        rest = left - (left @ u)[..., None] * a
        whole = _change(site.reader, batch, {site.name: add(site.reader, there - here, batch.n)})
        partly = _change(site.reader, batch, {site.name: add(site.reader, fitted_there - fitted + state, batch.n)})
        shuffled = _change(site.reader, batch, {site.name: add(site.reader, rest.roll(1, 0) - rest, batch.n)})
        missed += float((partly - whole).square().sum())
        inert += float(shuffled.square().sum())
        moved += float(whole.square().sum())
    if not moved > 0:
        return Swap(coverage=0.0, inert=1.0)
    return Swap(coverage=1 - missed / moved, inert=1 - inert / moved)


def _change(reader: EditableReader, batch: Batch, edits: dict) -> Float[Tensor, "B"]:
    """The watched prediction with the edits, less that without."""
    changed, plain = (prediction(reader, record(reader, batch, given), batch.n) for given in (edits, {}))
    return (changed - plain).to("cpu", torch.float64)


def _examples(site: Site, batch: Batch) -> Float[Tensor, "B n W"]:
    state = record(site.reader, batch)[site.name]
    return at_examples(site.reader, state.to("cpu", torch.float64), batch.n)


def _relabelled(batch: Batch, task: Task, seed: int, index: int) -> Batch:
    """The same points with other labels of the task."""
    full = batch.prompts
    L = cholesky(task.gram(full.x.double(), full.x.double()), task.lam)
    y = (L @ normals(seed, index, LABELS, (full.B, full.N + 1, 1))).squeeze(-1)
    prompts = Prompts(full.x, y)
    prefix = Prompts(full.x[:, : batch.n + 1], y[:, : batch.n + 1])
    return Batch(prompts=prompts, prefix=prefix, n=batch.n)
