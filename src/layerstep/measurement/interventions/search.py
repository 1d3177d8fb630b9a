"""The search: which solver, in which form, with which bandwidth and how many steps left, explains a site's responses.

White noise delta, written into the state at every example, changes the prediction by R delta; the row R comes from one
backward pass. A candidate says p delta. Over white delta the correlation of the two is the cosine of the rows

    c = sum R p / sqrt(sum R² sum p²)        share explained = c²        gain = sum R p / sum p²

pooled over prompts and positions. Everything is chosen on one set of prompts and scored on another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.interventions.alignment import Alignment, Inputs, Moments, align
from layerstep.measurement.interventions.candidates import BANDWIDTHS, FORMS, Candidate
from layerstep.measurement.interventions.passes import Batch
from layerstep.tasks import Task

#: Steps t at which a candidate's state is looked for. Any that correlates with the state will do: t is not identified.
READ_STEPS = (1, 2, 3, 4, 6, 9, 13, 19, 28)
#: Those of the candidate that was chosen.
ALL_STEPS = tuple(range(1, 29))
#: Bandwidths of the states looked for, multiples of the task's.
READ_BANDWIDTHS = (0.7, 1.0, 1.4)
#: The most steps left that are looked for.
MOST_STEPS = 48
#: Directions that explain as much as the best but for this share are told apart by how well they are read.
TIE = 1e-3
#: How many numbers of steps left have their bandwidth refined.
SEARCHED = 6
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Match:
    """A candidate at one site: chosen on one half of the prompts, before scoring."""

    candidate: Candidate
    steps_left: int
    read_step: int
    read_v: float
    reader: Float[Tensor, "W"]
    writer: Float[Tensor, "W"]
    explained_state: float  # R² of the reader beside the inputs
    scale: float  # rms of the state
    share: float  # on the half it was chosen on


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
    """The states and the rows of every candidate on given prompts, made once for all sites."""

    def __init__(self, task: Task, mask: str, solvers: Sequence[str], fit: list[Batch], choose: list[Batch]) -> None:
        self.task, self.mask, self.fit, self.choose = task, mask, fit, choose
        self.bandwidths = [factor * task.v for factor in BANDWIDTHS]
        self.names = [(solver, form) for solver in solvers for form in FORMS]
        self.states = {name: self._states(*name) for name in self.names}
        self.rows = {
            (name, v): self.rows_of(self._candidate(*name, v), choose, MOST_STEPS)
            for name in self.names
            for v in self.bandwidths
        }

    def _candidate(self, solver: str, form: str, v: float) -> Candidate:
        return Candidate(solver=solver, form=form, mask=self.mask, v=v)

    def _states(self, solver: str, form: str) -> Float[Tensor, "tokens k"]:
        wanted = [factor * self.task.v for factor in READ_BANDWIDTHS]
        return torch.cat([self.states_of(self._candidate(solver, form, v), READ_STEPS) for v in wanted], dim=1)

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


def shares(R: Float[Tensor, "entries w"], rows: Float[Tensor, "k entries"]) -> Float[Tensor, "k w"]:
    """Signed share explained of every writer by every row; 0 where one of them is 0."""
    dot = rows @ R
    size = rows.square().sum(1, keepdim=True) * R.square().sum(0, keepdim=True)
    return torch.where(size > 1e-200, dot * dot.abs() / size.clamp_min(1e-300), torch.zeros_like(dot))


def best_matches(
    library: Library, moments: Moments, inputs: Inputs, responses: list[Float[Tensor, "_ _ _"]]
) -> list[Match]:
    """The best match of every (solver, form) at one site, by the responses of the prompts it is chosen on."""
    J = torch.cat([response.flatten(0, 1) for response in responses])
    return [match for name in library.names if (match := _best(library, name, moments, inputs, J)) is not None]


def _best(
    library: Library, name: tuple[str, str], moments: Moments, inputs: Inputs, J: Float[Tensor, "entries W"]
) -> Match | None:
    """A grid over writers, bandwidths and steps left; then the bandwidth between grid points; then the best reader."""
    solver, form = name
    first = align(moments, inputs, library.states[name])
    if not bool(first.usable.any()):
        return None
    R = J @ first.writers
    table = torch.stack([shares(R, library.rows[name, v]) for v in library.bandwidths])
    writer = int(table.amax((0, 1)).argmax())
    v, row = _refined(library, name, R[:, writer], table[:, :, writer])
    candidate = library._candidate(solver, form, v)
    final = align(moments, inputs, library.states_of(candidate, ALL_STEPS))
    both = _joined(final, first)
    scores = shares(J @ both.writers, row[None])[0]
    near = scores >= (1 - TIE) * scores.max() - 1e-9
    chosen = int(torch.where(near, both.explained, -torch.ones_like(both.explained)).argmax())
    steps_left, share = _steps_left(library, candidate, J @ both.writers[:, chosen])
    u, a, explained, scale = both.pick(chosen)
    own, count = len(ALL_STEPS), len(READ_STEPS)
    other, step = divmod(chosen - own, count)
    read_v = v if chosen < own else READ_BANDWIDTHS[other] * library.task.v
    return Match(
        candidate=candidate,
        steps_left=steps_left,
        read_step=ALL_STEPS[chosen] if chosen < own else READ_STEPS[step],
        read_v=read_v,
        reader=u,
        writer=a,
        explained_state=explained,
        scale=scale,
        share=share,
    )


def _joined(first: Alignment, second: Alignment) -> Alignment:
    """Both sets of readers and writers in one."""
    pair = {
        name: torch.cat([getattr(first, name), getattr(second, name)], dim=-1)
        for name in ("readers", "writers", "explained", "scale", "usable")
    }
    return Alignment(**pair)


def _steps_left(library: Library, candidate: Candidate, R: Float[Tensor, "entries"]) -> tuple[int, float]:
    found = shares(R[:, None], library.rows_of(candidate, library.choose, MOST_STEPS))[:, 0]
    return int(found.argmax()), float(found.max())


def _refined(
    library: Library, name: tuple[str, str], R: Float[Tensor, "entries"], table: Float[Tensor, "v k"]
) -> tuple[float, Float[Tensor, "entries"]]:
    """The bandwidth between grid points, and its row: golden-section searches of log v at the likeliest steps left.

    Steps and bandwidth trade off, so that the share has a peak for every number of steps: each of the SEARCHED best is
    looked at, and the highest peak once more.
    """
    grid = [math.log(v) for v in library.bandwidths]
    likely = table.amax(0).argsort(descending=True)[:SEARCHED].tolist()
    most = max(likely)
    kept: dict[float, Tensor] = {}

    def score(log_v: float, k: int) -> float:
        if log_v not in kept:
            candidate = library._candidate(*name, math.exp(log_v))
            kept[log_v] = library.rows_of(candidate, library.choose, most)
        return float(shares(R[:, None], kept[log_v][k : k + 1])[0, 0])

    peaks = []
    for k in likely:
        start = int(table[:, k].argmax())
        bounds = grid[max(start - 1, 0)], grid[min(start + 1, len(grid) - 1)]
        log_v = _golden(lambda log_v, k=k: score(log_v, k), *bounds, rounds=7)
        peaks.append((score(log_v, k), log_v, k, (bounds[1] - bounds[0]) * GOLDEN**6))
    _, log_v, k, width = max(peaks)
    log_v = _golden(lambda each: score(each, k), log_v - width, log_v + width, rounds=10)
    return math.exp(log_v), kept[log_v][k]


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
