"""The search: which solver, in which form, with which bandwidth and how many steps left, explains a site's responses.

White noise delta, written into the state at every example, changes the prediction by R delta; the row R comes from one
backward pass. A candidate says p delta. Over white delta the correlation of the two is the cosine of the rows

    c = sum R p / sqrt(sum R² sum p²)        share explained = c²

pooled over prompts and positions. The writer is sought among the channels of a site: the few directions along which
what varies there, with the inputs fixed, reaches the prediction. Every candidate is given the same channels and the
writer that suits it best. Everything is chosen on one set of prompts and scored on another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.interventions.alignment import LEFT, Inputs, Moments
from layerstep.measurement.interventions.candidates import BANDWIDTHS, FORMS, Candidate
from layerstep.measurement.interventions.passes import Batch
from layerstep.tasks import Task

#: Steps t at which a candidate's state is looked for. Any that correlates with the state will do: t is not identified.
READ_STEPS = tuple(range(1, 29))
#: The most steps left that are looked for.
MOST_STEPS = 48
#: The most channels of a site, and the least influence of one, as a share of the greatest.
CHANNELS, LEAST = 12, 1e-3
#: As few channels are used as leave, with the best candidate, at most so many times what all of them leave.
ENOUGH = 2.0
#: How many numbers of steps left have their bandwidth refined.
SEARCHED = 6
#: How far, in log bandwidth, the best of one step more or less is looked for.
RIDGE = 0.1
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Channels:
    """Directions in which a site reaches the prediction, the most influential first.

    Natural variation beside the inputs, h = root z with white z, changes the prediction by J root z. The right singular
    vectors of J root are the channels: they do not depend on the units of the stream. answers: their responses,
    orthonormal; influence: the singular values.
    """

    answers: Float[Tensor, "entries m"]
    influence: Float[Tensor, "m"]
    directions: Float[Tensor, "W m"]  # of the stream, one natural unit each
    readers: Float[Tensor, "W m"]  # how much of each there is, of what is left beside the inputs

    @staticmethod
    def of(J: Float[Tensor, "entries W"], moments: Moments) -> Channels:
        U, S, V = torch.linalg.svd(J @ moments.root, full_matrices=False)
        count = min(CHANNELS, int((LEAST * S[0] < S).sum()))
        V = V[:count].mT
        return Channels(
            answers=U[:, :count],
            influence=S[:count],
            directions=moments.root @ V,
            readers=moments.inverse @ moments.root @ V,
        )

    def first(self, count: int) -> Channels:
        parts = {name: getattr(self, name)[..., :count] for name in ("answers", "influence", "directions", "readers")}
        return Channels(**parts)

    def shares(self, rows: Float[Tensor, "k entries"]) -> Float[Tensor, "k m"]:
        """The share of each row that the first 1..m channels explain, with the writer that suits it best."""
        size = rows.square().sum(1, keepdim=True)
        found = (rows @ self.answers).square().cumsum(1)
        return torch.where(size > 1e-200, found / size.clamp_min(1e-300), torch.zeros_like(found))

    def weights(self, row: Float[Tensor, "entries"]) -> Float[Tensor, "m"]:
        """How much of each channel the writer has whose response is nearest to a row."""
        return (self.answers.mT @ row) / self.influence


@dataclass(frozen=True, eq=False, kw_only=True)
class Match:
    """A candidate at one site: chosen on one half of the prompts, before scoring. The response of the writer, so much
    (`weights`) of each channel, is the nearest to the candidate's that there is."""

    candidate: Candidate
    steps_left: int
    channels: Channels
    weights: Float[Tensor, "m"]
    share: float  # on the half it was chosen on

    @property
    def writer(self) -> Float[Tensor, "W"]:
        return self.channels.directions @ self.weights


@dataclass(frozen=True, eq=False, kw_only=True)
class Reading:
    """What the channels of a match hold by nature: the candidate's state after `step` steps, beside the inputs.

    The step is the one that is read best. gain: what the reader makes of a unit written.
    """

    reader: Float[Tensor, "W"]
    step: int
    explained: float  # R² beside the inputs
    gain: float
    scale: float  # rms of the state


@dataclass(frozen=True, eq=False, kw_only=True)
class Sums:
    """Per prompt sum R p, sum R², sum p²: what every score is made of."""

    Rp: Float[Tensor, "B"]
    RR: Float[Tensor, "B"]
    pp: Float[Tensor, "B"]

    def weighted(self, weights: Float[Tensor, "*R B"]) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over the prompts, each counted `weights` times."""
        return weights @ self.Rp, weights @ self.RR, weights @ self.pp

    def share(self, weights: Float[Tensor, "*R B"]) -> Tensor:
        """c², negative where the correlation is."""
        Rp, RR, pp = self.weighted(weights)
        return (Rp * Rp.abs() / (RR * pp).clamp_min(1e-300)).clamp(-1, 1)

    def gain(self, weights: Float[Tensor, "*R B"]) -> Tensor:
        Rp, _, pp = self.weighted(weights)
        return Rp / pp.clamp_min(1e-300)

    def unit_gain_share(self, weights: Float[Tensor, "*R B"]) -> Tensor:
        """1 - sum (R - p)² / sum p²: the share explained when the gain must be 1."""
        Rp, RR, pp = self.weighted(weights)
        return 1 - (RR - 2 * Rp + pp) / pp.clamp_min(1e-300)


class Library:
    """The rows of every candidate on given prompts, made once for all sites."""

    def __init__(self, task: Task, mask: str, solvers: Sequence[str], fit: list[Batch], choose: list[Batch]) -> None:
        self.task, self.mask, self.fit, self.choose = task, mask, fit, choose
        self.bandwidths = [factor * task.v for factor in BANDWIDTHS]
        self.names = [(solver, form) for solver in solvers for form in FORMS]
        self.rows = {
            (name, v): self.rows_of(self.candidate(*name, v), choose, MOST_STEPS)
            for name in self.names
            for v in self.bandwidths
        }

    def candidate(self, solver: str, form: str, v: float) -> Candidate:
        return Candidate(solver=solver, form=form, mask=self.mask, v=v)

    def states_of(self, candidate: Candidate, steps: Sequence[int]) -> Float[Tensor, "tokens t"]:
        """The candidate's states after these steps, at all examples the readers are fitted on."""
        parts = []
        for batch in self.fit:
            kept = candidate.iteration(batch.prefix, self.task).states(candidate.form, max(steps))
            parts.append(kept[list(steps)].flatten(1))
        return torch.cat(parts, dim=1).mT

    def relabelled(self, candidate: Candidate, orders: list[Tensor], steps: Sequence[int]) -> Float[Tensor, "tokens k"]:
        """The same made from the labels of other prompts: orders [draws, B] for every batch, steps fastest."""
        parts = []
        for batch, order in zip(self.fit, orders, strict=True):
            iteration = candidate.iteration(batch.prefix, self.task)
            maps = iteration.maps(candidate.form, max(steps))[list(steps)]
            parts.append(torch.einsum("tbij,rbj->birt", maps, iteration.y[order]).flatten(2).flatten(0, 1))
        return torch.cat(parts)

    def rows_of(self, candidate: Candidate, batches: list[Batch], steps: int) -> Float[Tensor, "k entries"]:
        """Its rows with 0..steps steps left; 0 with none left, for then no step is taken that could be recognised."""
        iterations = [candidate.iteration(batch.prefix, self.task) for batch in batches]
        rows = torch.cat([iteration.rows(candidate.form, steps).flatten(1) for iteration in iterations], dim=1)
        rows[0] = 0
        return rows


def best_matches(library: Library, moments: Moments, J: Float[Tensor, "entries W"]) -> list[Match]:
    """The best match of every (solver, form) at one site, by the responses of the prompts it is chosen on."""
    channels = Channels.of(J, moments)
    tables = {key: channels.shares(rows) for key, rows in library.rows.items()}
    left = 1 - torch.stack([table.amax(0) for table in tables.values()]).amax(0)
    count = int((left <= ENOUGH * left[-1] + 1e-9).nonzero()[0]) + 1
    channels = channels.first(count)
    found = []
    for name in library.names:
        table = torch.stack([tables[name, v][:, count - 1] for v in library.bandwidths])
        v, row, steps_left = _refined(library, name, channels, table)
        found.append(
            Match(
                candidate=library.candidate(*name, v),
                steps_left=steps_left,
                channels=channels,
                weights=channels.weights(row),
                share=float(channels.shares(row[None])[0, -1]),
            )
        )
    return found


def read(library: Library, match: Match, moments: Moments, inputs: Inputs) -> Reading:
    """The state of the candidate in the channels of its match."""
    states = library.states_of(match.candidate, READ_STEPS)
    cross, explained = in_channels(states, match.channels, moments, inputs)
    step = int(explained.argmax())
    return Reading(
        reader=match.channels.readers @ cross[:, step],
        step=READ_STEPS[step],
        explained=float(explained[step]),
        gain=float(cross[:, step] @ match.weights),
        scale=float(states[:, step].square().mean().sqrt()),
    )


def in_channels(
    quantities: Float[Tensor, "tokens k"], channels: Channels, moments: Moments, inputs: Inputs
) -> tuple[Float[Tensor, "m k"], Float[Tensor, "k"]]:
    """Weights of the quantities' readers on the channels, which are white, and their R² beside the inputs."""
    s = inputs.left(quantities)
    raw, left = quantities.square().mean(0), s.square().mean(0)
    cross = (moments.left @ channels.readers).mT @ s / len(s)
    return cross, torch.where(left > LEFT * raw, cross.square().sum(0) / left.clamp_min(1e-300), torch.zeros_like(left))


def _refined(
    library: Library, name: tuple[str, str], channels: Channels, table: Float[Tensor, "v k"]
) -> tuple[float, Float[Tensor, "entries"], int]:
    """The bandwidth between grid points, its row and the steps left: golden-section searches of log v.

    Steps and bandwidth trade off, so that the share has a peak for every number of steps: each of the SEARCHED best is
    looked at, and the highest peak once more.
    """
    grid = [math.log(v) for v in library.bandwidths]
    likely = table.amax(0).argsort(descending=True)[:SEARCHED].tolist()
    most = min(max(likely) + 4, MOST_STEPS)
    kept: dict[float, Tensor] = {}

    def rows(log_v: float) -> Tensor:
        if log_v not in kept:
            kept[log_v] = library.rows_of(library.candidate(*name, math.exp(log_v)), library.choose, most)
        return kept[log_v]

    def score(log_v: float, k: int) -> float:
        return float(channels.shares(rows(log_v)[k : k + 1])[0, -1])

    peaks = []
    for k in likely:
        start = int(table[:, k].argmax())
        bounds = grid[max(start - 1, 0)], grid[min(start + 1, len(grid) - 1)]
        log_v = _golden(lambda log_v, k=k: score(log_v, k), *bounds, rounds=7)
        peaks.append((score(log_v, k), log_v, k, (bounds[1] - bounds[0]) * GOLDEN**6))
    best, log_v, k, width = max(peaks)
    log_v = _golden(lambda each: score(each, k), log_v - width, log_v + width, rounds=10)
    best = score(log_v, k)
    for step in (1, -1):  # along the ridge of steps and bandwidths
        while 0 < k + step <= most:
            near = _golden(lambda each, k=k + step: score(each, k), log_v - RIDGE, log_v + RIDGE, rounds=12)
            if score(near, k + step) <= best:
                break
            best, log_v, k = score(near, k + step), near, k + step
    return math.exp(log_v), rows(log_v)[k], k


def _golden(score: Callable[[float], float], low: float, high: float, rounds: int) -> float:
    """Where `score` is largest between two points, by golden-section search."""
    seen: dict[float, float] = {}

    def at(point: float) -> float:
        seen[point] = score(point) if point not in seen else seen[point]
        return seen[point]

    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    for _ in range(rounds):
        if at(left) >= at(right):
            high, right = right, left
            left = high - GOLDEN * (high - low)
        else:
            low, left = left, right
            right = low + GOLDEN * (high - low)
    return max(seen, key=seen.__getitem__)


def sums_of(library: Library, match: Match, batches: list[Batch], responses: list[Float[Tensor, "_ _ _"]]) -> Sums:
    """Per prompt sums of a chosen match on other prompts."""
    parts = []
    for batch, response in zip(batches, responses, strict=True):
        iteration = match.candidate.iteration(batch.prefix, library.task)
        p = iteration.rows(match.candidate.form, match.steps_left)[-1]
        R = response @ match.writer
        parts.append(torch.stack([(R * p).sum(1), R.square().sum(1), p.square().sum(1)]))
    Rp, RR, pp = torch.cat(parts, dim=1)
    return Sums(Rp=Rp, RR=RR, pp=pp)
