"""The verdict: what may be claimed over all layers, per range and per layer, and the numbers it rests on."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.identification.crossfit import Residuals
from layerstep.measurement.identification.decision import NOTHING, RangeResult, Rule
from layerstep.measurement.identification.descriptions import Description, Schedule, as_json
from layerstep.measurement.identification.domains import domain_of
from layerstep.measurement.identification.figure import draw, draw_ranking
from layerstep.measurement.identification.report import cannot_say, headline, lines, summary
from layerstep.measurement.similarity import directions
from layerstep.reprs import brief, cut, folded
from layerstep.tasks import Trajectory

D = TypeVar("D", bound=Description)


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerTable:
    """Every family on every layer, at the bandwidth and ridge fitted over all layers: [A, L] each.

    U, V: what it leaves and what of that is structured. step: the chosen t; at_cap: it is the last of the grid.
    cosine: excess-error cosine max_t mean_b cos(M_l - KRR, A_t - KRR). sime: the paper's, on the same contexts.
    distance [L]: mean squared distance to KRR. explainable [L]: E_l. label_share [L]: variance predicted from labels.
    """

    families: tuple[str, ...]
    layers: Float[Tensor, "L"]
    distance: Float[Tensor, "L"]
    explainable: Float[Tensor, "L"]
    label_share: Float[Tensor, "L"]
    U: Float[Tensor, "A L"]
    V: Float[Tensor, "A L"]
    step: Float[Tensor, "A L"]
    at_cap: Float[Tensor, "A L"]
    cosine: Float[Tensor, "A L"]
    sime: Float[Tensor, "A L"]

    __repr__ = brief

    @staticmethod
    def of(residuals: Residuals, overall: RangeResult) -> LayerTable | None:
        """At the candidates that the result over all layers chose."""
        if not overall.fits:
            return None
        library, fits = residuals.library, overall.fits
        target = library.prompts.y[:, list(library.contexts)] * library.weight
        away, errors = (directions(residuals.values - centre, target) for centre in (library.krr, target))
        cosine, sime = [], []
        for fit in fits:
            table = library.predictions(residuals.candidates[fit.candidates[0]]).double()
            for out, layers, steps in ((cosine, away, table), (sime, errors, table + (library.krr - target))):
                out.append(torch.einsum("lbc,tbc->lt", layers, directions(steps, target)).amax(1) / target.shape[0])
        return LayerTable(
            families=tuple(fit.family for fit in fits),
            layers=residuals.layers,
            distance=residuals.distance.mean(1) / len(library.contexts),
            explainable=overall.explainable if overall.explainable is not None else torch.zeros(0),
            label_share=residuals.label_share,
            U=torch.stack([fit.U_layer for fit in fits]),
            V=torch.stack([fit.V_layer for fit in fits]),
            step=torch.stack([fit.step for fit in fits]),
            at_cap=torch.stack([fit.at_cap.double() for fit in fits]),
            cosine=torch.stack(cosine),
            sime=torch.stack(sime),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdict:
    """Which solver a trajectory follows. `solver` is a class of the library, or None: nothing may be claimed."""

    overall: RangeResult
    layers: tuple[RangeResult, ...]
    label: str
    task: Any
    sequences: int
    rule: Rule
    calibration: dict[str, Any]
    seed: int
    ranges: tuple[RangeResult, ...] = ()  # sliding windows
    table: LayerTable | None = None
    descriptions: tuple[Description, ...] = ()
    order: tuple[str, ...] = ()  # where the layers are not in the order of a solver's steps; also among the remarks
    remarks: tuple[str, ...] = ()
    contexts: tuple[int, ...] = ()
    library_hash: str = ""

    @staticmethod
    def nothing(words: str, path: Trajectory, task: Any, rule: Rule, seed: int) -> Verdict:
        """The verdict on a trajectory that cannot be tested, and why."""

        def result(stages: list[float]) -> RangeResult:
            return RangeResult(status=NOTHING, solver=None, layers=tuple(stages), usable=(), reason=words)

        return Verdict(
            overall=result(path.stages.tolist()),
            layers=tuple(result([stage]) for stage in path.stages.tolist()),
            label=path.label,
            task=task,
            sequences=path.B,
            rule=rule,
            calibration=read_record(domain_of(task).name),
            seed=seed,
        )

    @property
    def solver(self) -> str | None:
        return self.overall.solver

    @property
    def schedule(self) -> str | None:
        """How the steps grow with the layer: linear, quadratic or geometric; None where undecided or not asked."""
        found = self.description(Schedule)
        return None if found is None else found.form

    @property
    def status(self) -> str:
        """identified, ambiguous, resembles, none, or nothing to identify."""
        return self.overall.status

    @property
    def cannot_say(self) -> tuple[str, ...]:
        """Claims these data do not decide, and what would."""
        return tuple(cannot_say(self))

    def description(self, kind: type[D]) -> D | None:
        """The description of one kind, such as Slopes or LabelInterventions; None when there is none."""
        return next((each for each in self.descriptions if isinstance(each, kind)), None)

    def __repr__(self) -> str:
        overall = self.overall
        numbers = f", U={overall.U:.3f}, V={overall.V:.4f}, margin={overall.margin:.3f}" if overall.fits else ""
        size = f"{len(overall.layers)} layers, {self.sequences} prompts"
        return cut(f"Verdict({self.label!r}: {headline(overall)}{numbers}; {size})")

    def __str__(self) -> str:
        return "\n".join(summary(self))

    def report(self) -> str:
        """Everything in words: every table, and what these data cannot say."""
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        return folded(summary(self)[:3], self.report())

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        values = {f.name: as_json(getattr(self, f.name)) for f in fields(self)}
        values["task"] = self.task.to_dict() if hasattr(self.task, "to_dict") else repr(self.task)
        values["descriptions"] = {each.name: each.to_dict() for each in self.descriptions}
        return {"solver": self.solver, "status": self.status, "cannot_say": list(self.cannot_say)} | values

    def figure(self, file: str | os.PathLike | None = None):
        """The numbers in one figure (matplotlib); saved when a file is named."""
        self._require_numbers()
        return draw(self, file)

    def plot(self, *, ax: Any = None) -> Any:
        """What each class leaves of the explainable distance; the matplotlib axes are returned.

        ax: where to draw; left out, in a new figure of pyplot. `figure` has everything.
        """
        from layerstep import plotting

        self._require_numbers()
        ax = plotting.new_axes(6.5, 3.6) if ax is None else ax
        with plotting.look():
            draw_ranking(self, ax)
        return ax

    def _require_numbers(self) -> None:
        require(self.table is not None, "verdict", f"'{self.status}'", "one with numbers to draw", str(self))
