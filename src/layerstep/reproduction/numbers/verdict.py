"""The verdict on one subject: what is compared, and what is kept of it.

Nothing here knows where a trajectory comes from, so that a trained model's numbers hang on no other network's code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from layerstep.measurement import Instrument, Verdict, layers_won, match
from layerstep.measurement.identification.pipeline import identify_path
from layerstep.measurement.identification.report import headline
from layerstep.reproduction.numbers.measurements import references
from layerstep.reproduction.numbers.store import Json
from layerstep.reproduction.settings import EVALUATION_SEED, SETTINGS, evaluation_prompts
from layerstep.tasks import Trajectory

VERDICT_SEED = EVALUATION_SEED  # of the bootstrap: `layerstep identify` says the same of a model


@dataclass(frozen=True, kw_only=True)
class ModelVerdict:
    """The result on all layers. `truth`: the solver of a control. `won`: layers where Richardson has the largest SimE.
    `classes`: U of every class; `U_layer` [family, layer]. Both are empty where nothing could be compared.
    """

    name: str
    what: str
    setting: str
    depth: int
    won: int
    status: str
    solver: str | None
    headline: str
    reason: str
    nearest: str | None
    U: float | None
    V: float | None
    margin: float | None
    rival: str | None
    text: str
    classes: dict[str, float]
    families: list[str]
    layers: list[float]
    U_layer: list[list[float]]
    trained_steps: int | None = None
    truth: str | None = None

    @property
    def is_control(self) -> bool:
        return self.truth is not None


class Subject(NamedTuple):
    """What gets a verdict: its setting, what its verdict depends on, and how to make its trajectory."""

    setting: str
    identity: Json
    trajectory: Callable[[], Trajectory]
    facts: Json
    code: str = __name__  # the module that makes its trajectory


def verdict_on(name: str, subject: Subject, instrument: Instrument) -> ModelVerdict:
    task, prompts = SETTINGS[subject.setting], evaluation_prompts(subject.setting)
    path = subject.trajectory()
    verdict = identify_path(path, prompts, task, instrument=instrument, seed=VERDICT_SEED)
    won: Json = {} if "won" in subject.facts else {"won": _won(path, subject.setting)}
    overall = verdict.overall
    return ModelVerdict(
        name=name,
        setting=subject.setting,
        depth=len(path.stages),
        status=verdict.status,
        solver=verdict.solver,
        headline=headline(overall),
        reason=overall.reason,
        nearest=overall.nearest,
        U=_number(overall.U),
        V=_number(overall.V),
        margin=_number(overall.margin),
        rival=overall.rival,
        text=verdict.report(),
        **_by_class(verdict),
        **subject.facts,
        **won,
    )


def _by_class(verdict: Verdict) -> Json:
    """U of every class over the usable layers, and of every family by layer."""
    overall, table = verdict.overall, verdict.table
    if table is None:
        return {"classes": {}, "families": [], "layers": [], "U_layer": []}
    usable = torch.isin(table.layers, torch.tensor(overall.usable, dtype=table.layers.dtype))
    classes: dict[str, float] = {}
    for fit in overall.fits:  # the best first: its class's value is that of its nearest family
        classes.setdefault(fit.kind, float(fit.U_layer[usable].mean()))
    by_layer = {"layers": table.layers.tolist(), "U_layer": table.U.tolist()}
    return {"classes": classes, "families": list(table.families), **by_layer}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _won(path: Trajectory, setting: str) -> int:
    """Layers where Richardson has the largest SimE of the paper's four solvers."""
    columns = [n - 1 for n in path.contexts.tolist()]
    target = evaluation_prompts(setting).target[:, columns]
    solvers = {
        name: Trajectory(p.values[..., columns], p.stages, p.label, path.contexts)
        for name, p in references(setting).items()
    }
    return layers_won({name: match(path, p, target) for name, p in solvers.items()})["richardson"]
