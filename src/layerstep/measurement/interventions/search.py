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
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.interventions.alignment import Inputs, Moments
from layerstep.measurement.interventions.candidates import ALL, Candidate
from layerstep.measurement.interventions.channels import Channels, in_channels
from layerstep.measurement.interventions.fitting import fit, fit_changing, fit_with_size
from layerstep.measurement.interventions.library import READ_STEPS, Library
from layerstep.measurement.interventions.passes import Batch

#: As few channels are used as leave, with the best candidate, at most so many times what all of them leave.
ENOUGH = 2.0
#: The solver's own steps are kept where they leave at most so many times what steps of a fitted size leave.
SIMPLER = 2.0
#: Where the nearest solver leaves more, its size of steps is not asked about. Sizes nearer than this, in logarithms,
#: are one; at most so many are tried on all layers.
NEAR, ALIKE, SIZES = 0.05, 0.02, 6
#: What is left less is rounding.
FLOOR = 1e-9


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


#: By the name of a solver in one form, two matches: with its own steps, and with steps of one size on all prompts.
Pairs = dict[str, tuple[Match, Match]]


def best_matches(library: Library, channels: Channels, depth: tuple[float, float]) -> Pairs:
    """The best matches of every solver in every form at one site, by the responses of the prompts it is chosen on.

    depth: how many layers lie before the site, and how many behind it.
    """
    tables = {candidate: channels.shares(rows) for candidate, rows in library.rows.items()}
    for name in library.names:
        if ALL[name[0]].changing:  # not on the grid
            candidate, steps = fit_changing(library, channels, name, depth, fitted=True)
            tables[candidate] = channels.shares(library.row_of(candidate, steps)[None])
    left = 1 - torch.stack([table.amax(0) for table in tables.values()]).amax(0)
    count = int((left <= ENOUGH * left[-1] + FLOOR).nonzero()[0]) + 1
    channels = channels.first(count)

    def best(name: tuple[str, str], fitted: bool) -> Match:
        if ALL[name[0]].changing:
            return _match(library, channels, *fit_changing(library, channels, name, depth, fitted))
        grid = library.grid(name, fitted)
        table = torch.stack([tables[each][:, count - 1] for each in grid])
        return _match(library, channels, *fit(library, grid, channels, table))

    return {
        f"{solver}, {form}": (best((solver, form), False), best((solver, form), True)) for solver, form in library.names
    }


def _match(library: Library, channels: Channels, candidate: Candidate, steps_left: int) -> Match:
    row = library.row_of(candidate, steps_left)
    return Match(
        candidate=candidate,
        steps_left=steps_left,
        channels=channels,
        weights=channels.weights(row),
        share=float(channels.shares(row[None])[0, -1]),
    )


def settle(library: Library, sites: list[Pairs]) -> list[Pairs]:
    """The same, what is chosen of each pair first. A solver that comes near somewhere gets one size of steps for all
    layers; its own, where that leaves nearly as little.

    Steps left and their size trade off: where a network follows its solver roughly, eight shorter steps may come nearer
    than six at one site. They do not at the others.
    """
    found = [{name: _simplest(*pair) for name, pair in pairs.items()} for pairs in sites]
    nearest = [max(pairs, key=lambda name, pairs=pairs: _best(pairs[name])) if pairs else "" for pairs in sites]
    for name in dict.fromkeys(nearest):
        where = [pairs[name] for at, pairs in zip(nearest, sites, strict=True) if at == name and pairs]
        where = [pair for pair in where if 1 - _best(pair) < NEAR]
        if not where:
            continue
        totals: dict[float | None, float] = {None: sum(_left(own) for own, _ in where) - len(where) * math.log(SIMPLER)}
        for eta in _sizes(where):
            totals[eta] = sum(_left(_with_size(library, fitted, eta)) for _, fitted in where)  # type: ignore[index]
        eta = min(totals, key=totals.__getitem__)
        for at, pairs in enumerate(sites):
            if pairs:
                own, fitted = pairs[name]
                found[at][name] = (own, fitted) if eta is None else (_with_size(library, fitted, eta), own)
    return found


def _best(pair: tuple[Match, Match]) -> float:
    return max(match.share for match in pair)


def _left(match: Match) -> float:
    """log of what it leaves."""
    return math.log(max(1 - match.share, FLOOR))


def _simplest(own: Match, fitted: Match) -> tuple[Match, Match]:
    return (own, fitted) if 1 - own.share <= SIMPLER * (1 - fitted.share) + FLOOR else (fitted, own)


def _sizes(where: list[tuple[Match, Match]]) -> list[float]:
    """Sizes found at these sites, of those with fewest steps left first: they depend on it most."""
    found: list[float] = []
    for _, match in sorted(where, key=lambda pair: pair[1].steps_left):
        eta = match.candidate.eta
        assert eta is not None
        last = match.candidate.form == "functional" and match.steps_left == 1  # says nothing of it
        if not last and all(abs(math.log(eta / other)) > ALIKE for other in found):
            found.append(eta)
    return found[:SIZES]


def _with_size(library: Library, match: Match, eta: float) -> Match:
    candidate, steps = fit_with_size(library, match.channels, match.candidate, match.steps_left, eta)
    return _match(library, match.channels, candidate, steps)


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


def sums_of(library: Library, match: Match, batches: list[Batch], responses: list[Float[Tensor, "_ _ _"]]) -> Sums:
    """Per prompt sums of a chosen match on other prompts."""
    parts = []
    for batch, response in zip(batches, responses, strict=True):
        iteration = match.candidate.iteration(batch.prefix, library.task)
        p = iteration.row(match.candidate.form, match.steps_left)
        R = response @ match.writer
        parts.append(torch.stack([(R * p).sum(1), R.square().sum(1), p.square().sum(1)]))
    Rp, RR, pp = torch.cat(parts, dim=1)
    return Sums(Rp=Rp, RR=RR, pp=pp)
