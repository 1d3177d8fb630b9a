"""The verdict: the answer, per range and per layer, with the evidence, in words, as JSON and as one figure."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.identification.crossfit import Evidence
from layerstep.measurement.identification.decision import AMBIGUOUS, NOTHING, RESEMBLES, Judgement, Rule, of_chosen
from layerstep.measurement.identification.filters import FilterFit, Slopes
from layerstep.measurement.identification.label_interventions import RERUN, LabelTests
from layerstep.measurement.similarity import directions
from layerstep.stats import interval, resamples
from layerstep.tasks import Task, Trajectory


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


@dataclass(frozen=True, kw_only=True)
class SubVerdict:
    """Within an identified class: does the path use row sums? difference = score without - score with, 5 %..95 %."""

    row_sums: bool | None
    difference: float
    interval: tuple[float, float]

    @property
    def answer(self) -> str:
        return {True: "row sums", False: "no row sums", None: "undecided"}[self.row_sums]


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdict:
    """Which solver a path follows. `solver` is a class of the library, or None: nothing may be claimed."""

    overall: Judgement
    layers: tuple[Judgement, ...]
    label: str
    task: Task
    sequences: int
    rule: Rule
    calibration: dict[str, Any]
    seed: int
    ranges: tuple[Judgement, ...] = ()  # sliding windows
    table: LayerTable | None = None
    preconditioner: SubVerdict | None = None
    slopes: Slopes | None = None
    filter: FilterFit | None = None
    label_tests: LabelTests | None = None  # None: the model was not re-run
    remarks: tuple[str, ...] = ()
    contexts: tuple[int, ...] = ()
    library_hash: str = ""

    @staticmethod
    def nothing(words: str, path: Trajectory, task: Task, rule: Rule, seed: int) -> Verdict:
        """The verdict on a path that cannot be judged, and why."""

        def judgement(stages: list[float]) -> Judgement:
            return Judgement(answer=NOTHING, solver=None, layers=tuple(stages), usable=(), reason=words)

        return Verdict(
            overall=judgement(path.stages.tolist()),
            layers=tuple(judgement([stage]) for stage in path.stages.tolist()),
            label=path.label,
            task=task,
            sequences=path.B,
            rule=rule,
            calibration=read_record(),
            seed=seed,
        )

    @property
    def solver(self) -> str | None:
        return self.overall.solver

    @property
    def answer(self) -> str:
        """identified, ambiguous, resembles, none, or nothing to identify."""
        return self.overall.answer

    @property
    def cannot_say(self) -> tuple[str, ...]:
        """Claims these data do not decide, and what would."""
        return tuple(_cannot_say(self))

    def __str__(self) -> str:
        from layerstep.measurement.identification.report import describe

        return describe(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        parts["task"] = self.task.to_dict()
        return {"solver": self.solver, "answer": self.answer, "cannot_say": list(self.cannot_say)} | {
            name: _plain(part) for name, part in parts.items()
        }

    def figure(self, file: str | None = None):
        """The evidence in one figure (matplotlib); saved when a file is named."""
        from layerstep.measurement.identification.figure import draw

        require(self.table is not None, "verdict", f"'{self.answer}'", "one with evidence to draw", str(self))
        return draw(self, file)


def layer_table(evidence: Evidence, judgement: Judgement) -> LayerTable | None:
    """All families on all layers, at the candidates the overall judgement chose."""
    if not judgement.fits:
        return None
    library, fits = evidence.library, judgement.fits
    target = library.target
    away, errors = (directions(evidence.values - centre, target) for centre in (library.krr, target))
    cosine, sime = [], []
    for fit in fits:
        table = library.table[library.candidates[fit.candidates[0]].rows].double()
        for out, layers, steps in ((cosine, away, table), (sime, errors, table + (library.krr - target))):
            out.append(torch.einsum("lbc,tbc->lt", layers, directions(steps, target)).amax(1) / target.shape[0])
    return LayerTable(
        families=tuple(fit.family for fit in fits),
        layers=evidence.layers,
        distance=evidence.distance.mean(1) / len(library.contexts),
        explainable=judgement.explainable if judgement.explainable is not None else torch.zeros(0),
        label_share=evidence.label_share,
        U=torch.stack([fit.U_layer for fit in fits]),
        V=torch.stack([fit.V_layer for fit in fits]),
        step=torch.stack([fit.step for fit in fits]),
        at_cap=torch.stack([fit.at_cap.double() for fit in fits]),
        cosine=torch.stack(cosine),
        sime=torch.stack(sime),
    )


def sub_verdict(evidence: Evidence, judgement: Judgement, rule: Rule, seed: int) -> SubVerdict | None:
    """Row sums or none, for Richardson and CG: allowed only when the class is identified, and both were compared."""
    pairs = {"richardson": ("richardson", "richardson-plain"), "cg": ("cg-row-sum", "cg")}
    chosen = {fit.family: fit.candidates for fit in judgement.fits}
    pair = pairs.get(judgement.solver or "", ())
    if not pair or not all(name in chosen for name in pair):
        return None
    usable = torch.isin(evidence.layers, torch.tensor(judgement.usable, dtype=torch.float64))
    assert judgement.explainable is not None
    E = judgement.explainable[usable]
    left, _ = of_chosen(evidence, torch.tensor([chosen[name] for name in pair]))
    with_sums, without = left[:, usable]
    draws = resamples(evidence.distance.shape[1], rule.resamples, seed)
    gaps = ((draws @ (without - with_sums).T) / (draws @ evidence.distance[usable].T) / E).mean(1)
    low, high = interval(gaps, 0.9).tolist()
    decided = low > 0 or high < 0
    return SubVerdict(row_sums=low > 0 if decided else None, difference=float(gaps.mean()), interval=(low, high))


def _cannot_say(verdict: Verdict):
    overall, calibration = verdict.overall, verdict.calibration
    if verdict.label_tests is None:
        yield f"whether the layers are linear in the labels: give identify(rerun=...) {RERUN}"
    if overall.answer == AMBIGUOUS:
        rivals = " or ".join([str(overall.nearest), *overall.tied])
        yield f"{rivals}: more sequences, or layers farther from KRR, would tell"
    if overall.answer == RESEMBLES:
        yield f"that the layers run {overall.nearest}: they resemble it, and so do wrong answers on the panel"
    if overall.solver in ("richardson", "cg") and (
        verdict.preconditioner is None or verdict.preconditioner.row_sums is None
    ):
        yield "whether row sums are used: uniform, gaussian or clustered inputs would tell better than the sphere"
    judged = set(overall.layers)
    beyond = sorted(judged - set(overall.usable))
    if beyond:
        yield "anything about layers " + ", ".join(f"{layer:g}" for layer in beyond)
    if overall.solver is not None and overall.U > 0.2:
        yield f"what the other {overall.U:.0%} of the distance is: no pattern in it, but it is not {overall.solver}"
    if overall.fits:
        best = overall.fits[0]
        if best.v[0] != best.v[1] or best.lam[0] != best.lam[1]:
            yield f"the bandwidth and ridge: the halves fit v = {best.v[0]:.3g}, {best.v[1]:.3g}"
    setting = calibration.get("setting", {})
    differs = [
        f"{name} = {value:g} (calibrated at {setting[name]:g})"
        for name, value in {
            "N": verdict.task.N,
            "v": verdict.task.v,
            "sigma": verdict.task.sigma,
            "d": verdict.task.d,
        }.items()
        if name in setting and not math.isclose(setting[name], value)
    ]
    if verdict.task.kernel != "gaussian":
        differs.append(f"kernel {verdict.task.kernel} (calibrated with gaussian)")
    if verdict.sequences < setting.get("sequences", 0):
        differs.append(f"{verdict.sequences} sequences (calibrated with {setting['sequences']}{_with_fewer(verdict)})")
    if differs:
        yield "the error rate of this verdict: " + ", ".join(differs)


def _with_fewer(verdict: Verdict) -> str:
    """The rates measured with the largest number of sequences that is not above this verdict's."""
    measured = {int(few): counts for few, counts in verdict.calibration.get("fewer", {}).items()}
    below = [few for few in measured if few <= verdict.sequences]
    if not below:
        return ""
    inside, false = (measured[max(below)][part] for part in ("inside", "false"))
    return (
        f"; with {max(below)} on the panel, right {inside['right']} of {inside['of']}, "
        f"false claims {false['claims']} of {false['of']}"
    )


def _plain(value: Any) -> Any:
    """JSON values of tensors and dataclasses, internal fields left out; a number that is not finite is null."""
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if not f.metadata.get("internal")}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value
