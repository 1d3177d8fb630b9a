"""The rows and states of every candidate on given prompts: what all sites are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.families import bandwidth_of
from layerstep.measurement.interventions.candidates import ALL, Candidate
from layerstep.measurement.interventions.passes import Batch

#: Steps t at which a candidate's state is looked for. Any that correlates with the state will do: t is not identified.
READ_STEPS = tuple(range(1, 29))
#: The most steps left that are looked for.
MOST_STEPS = 48
#: Sizes of steps, of the solver's own on average, that a search for one number for all prompts begins with.
SIZES = (1.0, 0.3, 0.45, 0.67, 1.4)


class Library:
    """The rows of every candidate on given prompts, made once for all sites."""

    def __init__(self, task: Any, mask: str, solvers: Sequence[str], fit: list[Batch], choose: list[Batch]) -> None:
        self.task, self.mask, self.fit, self.choose = task, mask, fit, choose
        self.names = [(solver, form) for solver in solvers for form in ALL[solver].forms]
        self.rows: dict[Candidate, Tensor] = {}
        for name in self.names:
            if ALL[name[0]].changing:
                continue  # its rows depend on the site
            own = self.candidates(*name)
            some = own[1::2] if len(own) > 1 else own
            fitted = [replace(each, eta=size * self.typical(each)) for each in some for size in SIZES]
            self.rows |= {each: self.rows_of(each, choose, MOST_STEPS) for each in (*own, *fitted)}

    def candidates(self, solver: str, form: str, start: int = 0) -> list[Candidate]:
        """A solver with its own steps, at every v that a search begins with."""
        known = ALL[solver]
        unit = 1.0 if known.changing else bandwidth_of(self.task)
        given = {"solver": solver, "form": form, "mask": self.mask, "start": start}
        return [Candidate(v=shape * unit, **given) for shape in known.shapes]

    def grid(self, name: tuple[str, str], fitted: bool) -> list[Candidate]:
        """The candidates that a search begins with: the solver's own steps, or one number for all prompts."""
        return [each for each in self.rows if (each.solver, each.form) == name and (each.eta is not None) == fitted]

    def typical(self, candidate: Candidate) -> float:
        """The size of a candidate's steps, on average."""
        return float(torch.cat([candidate.iteration(batch.prefix, self.task).eta for batch in self.choose]).mean())

    def states_of(self, candidate: Candidate, steps: Sequence[int]) -> Float[Tensor, "tokens t"]:
        """The candidate's states after these steps, at all examples the readers are fitted on."""
        parts = []
        for batch in self.fit:
            kept = candidate.iteration(batch.prefix, self.task).states(candidate.form, max(steps))
            parts.append(kept[list(steps)].flatten(1))
        return torch.cat(parts, dim=1).mT

    def predictions_of(self, candidate: Candidate, steps: Sequence[int]) -> Float[Tensor, "queries t"]:
        """What it predicts after these steps, the same in both forms."""
        parts = []
        for batch in self.fit:
            parts.append(candidate.iteration(batch.prefix, self.task).predictions(max(steps))[list(steps)].mT)
        return torch.cat(parts)

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

    def row_of(self, candidate: Candidate, steps: int) -> Float[Tensor, "entries"]:
        iterations = [candidate.iteration(batch.prefix, self.task) for batch in self.choose]
        return torch.cat([iteration.row(candidate.form, steps).flatten() for iteration in iterations])
