"""The combined result: three sentences, the solver if one may be named, the measured operator, and all evidence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from layerstep.measurement.combined.decision import Answer, decide
from layerstep.measurement.combined.drawing import draw, plot
from layerstep.measurement.combined.readings import Readings
from layerstep.measurement.combined.sentences import three_sentences
from layerstep.measurement.identification.decision import NOTHING
from layerstep.measurement.identification.report import headline
from layerstep.measurement.identification.result import Verdict
from layerstep.measurement.interventions.operator import Operator
from layerstep.measurement.interventions.result import CausalResult
from layerstep.reprs import folded

#: What can be asked of a model.
PARTS = ("behaviour", "readings", "interventions")


@dataclass(frozen=True, eq=False, kw_only=True)
class Identification:
    """What a model's layers do, as far as it can be tested. `print` gives three sentences and the evidence.

    solver: the answer, or None; carried_by says which kind of evidence it rests on. operator: by site, the measured
    response of what is read one layer on. behaviour: the verdict on predictions, `read_by` says whose. readings: the
    layers read three ways. interventions: what was found by writing into the layers. untested: by part, why not.
    """

    label: str
    about: str
    task: Any
    read_by: str
    own: Verdict | None = field(repr=False)
    behaviour: Verdict | None = field(repr=False)
    readings: Readings | None = field(repr=False)
    interventions: CausalResult | None = field(repr=False)
    untested: Mapping[str, str]
    parts: tuple[str, ...]
    seed: int
    seconds: Mapping[str, float]

    @cached_property
    def answer(self) -> Answer:
        """The rule of docs/identify.md."""
        read = [self.behaviour] if self.behaviour is not None and self.behaviour is not self.own else []
        if self.readings is not None:
            read += [verdict for name, verdict in self.readings.verdicts.items() if name != "lens"]
        whose = self.read_by if self.own is self.behaviour else "its own head"
        causal, alternatives = None, ()
        if self.interventions is not None and self.interventions.claims:
            claim = max(self.interventions.claims, key=lambda each: len(each.steps_left))
            causal, alternatives = claim.solver, getattr(claim, "alternatives", ())
        written = self.interventions is not None and any(layer.match for layer in self.interventions.layers)
        predicted = [each for each in (self.own, self.behaviour) if each is not None and each.status != NOTHING]
        return decide(
            None if self.own is None else self.own.solver,
            [verdict.solver for verdict in read],
            causal,
            whose=whose,
            alternatives=alternatives,
            tested=written or bool(predicted),
        )

    @property
    def solver(self) -> str | None:
        return self.answer.solver

    @property
    def carried_by(self) -> str:
        return self.answer.carried_by

    @property
    def status(self) -> str:
        """runs, predicts, conflict, readable, none, or not tested."""
        return self.answer.status

    @property
    def operator(self) -> dict[str, Operator]:
        """By site, how what is read one layer on answers to a unit written at an example; empty where that failed."""
        return {} if self.interventions is None else self.interventions.operator

    @cached_property
    def sentences(self) -> tuple[str, str, str]:
        """The answer, what it rests on, what it does not say."""
        return three_sentences(self)

    def __repr__(self) -> str:
        said = f"solver={self.solver!r}, status={self.status!r}"
        return f"Identification({self.label}: {said}" + (f", by {self.carried_by})" if self.carried_by else ")")

    def __str__(self) -> str:
        return "\n".join([*self.sentences, "", *self._evidence()])

    def _evidence(self) -> list[str]:
        """A line per part."""
        lines = [f"  {self.label}: {self.about}; {self.task.inputs} inputs, d = {self.task.d}, N = {self.task.N}"]
        if self.behaviour is not None:
            lines.append(f"  {self.read_by}: {_line(self.behaviour)}")
        if self.readings is not None:
            others = {"output": "map to its output", "lens": "its own head"}
            lines += [f"  {others[n]}: {_line(v)}" for n, v in self.readings.verdicts.items() if n in others]
        if self.interventions is not None:
            lines += [f"  {line}" for line in self.interventions.lines() if not line.startswith(" ")]
            lines += [f"  measured at {site}: {operator}" for site, operator in self._shown_operators()]
        untested = {part: why for part, why in self.untested.items() if getattr(self, part) is None}
        lines += [f"  {part}: cannot be tested, because {why}" for part, why in untested.items()]
        shown = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in self.seconds.items())
        return [*lines, f"  seed {self.seed}; {shown}"]

    def _shown_operators(self) -> list[tuple[str, Operator]]:
        found = list(self.operator.items())
        every = max(1, -(-len(found) // 4))
        return found[::every]

    def report(self) -> str:
        """Everything in words: the sentences, every reading and site, every table."""
        blocks = [str(self)]
        if self.behaviour is not None:
            blocks.append(self.behaviour.report())
        if self.readings is not None:
            blocks.append("\n".join([self.readings.meaning(), *self.readings.lines()]))
            blocks += [
                v.report() for name, v in self.readings.verdicts.items() if v is not self.behaviour and name != "labels"
            ]
        if self.interventions is not None:
            blocks.append(str(self.interventions))
            blocks.append("\n".join(f"  {site}: {operator}" for site, operator in self.operator.items()))
        return "\n\n".join(block for block in blocks if block)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            "label": self.label,
            "about": self.about,
            "task": self.task.to_dict(),
            "solver": self.solver,
            "status": self.status,
            "carried_by": self.carried_by,
            "readable": self.answer.readable,
            "sentences": list(self.sentences),
            "read_by": self.read_by,
            "behaviour": None if self.behaviour is None else self.behaviour.to_dict(),
            "readings": None if self.readings is None else self.readings.to_dict(),
            "interventions": None if self.interventions is None else self.interventions.to_dict(),
            "operator": {site: operator.to_dict() for site, operator in self.operator.items()},
            "untested": dict(self.untested),
            "parts": list(self.parts),
            "seed": self.seed,
            "seconds": dict(self.seconds),
        }

    def figure(self, file: str | os.PathLike | None = None):
        """Readings, classes, responses and the measured kernel (matplotlib); saved when a file is named."""
        return draw(self, file)

    def plot(self, *, ax: Any = None) -> Any:
        """How far every layer is from exact KRR by each reading, or what solvers leave of the responses; the axes.

        ax: where to draw; left out, in a new figure of pyplot. `figure` has everything.
        """
        return plot(self, ax)

    def _repr_html_(self) -> str:
        return folded(self.sentences, "\n".join(self._evidence()))


def _line(verdict: Verdict) -> str:
    overall = verdict.overall
    said = headline(overall)
    return said + (f"; U = {overall.U:.2f}, V = {overall.V:.3f}" if overall.fits else f", {overall.reason}")
