"""The instrument's verdict on every trained model, and on controls whose solver is known."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from layerstep.construction import construct
from layerstep.errors import LayerstepError
from layerstep.measurement import Instrument, Rule, Verdict, identify, layers_won, match
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.identification.library import default_contexts
from layerstep.measurement.identification.report import headline
from layerstep.reproduction.numbers.measurements import load_predictions, model_identity, references
from layerstep.reproduction.numbers.model import Models
from layerstep.reproduction.numbers.store import Json, Store, to_json
from layerstep.reproduction.settings import EVALUATION_SEED, SETTINGS, SPHERE, evaluation_prompts
from layerstep.solvers import NadarayaWatson, RidgePath, Solver, solve
from layerstep.tasks import Trajectory
from layerstep.threads import one_per_worker

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


Verdicts = dict[str, ModelVerdict]


class Subject(NamedTuple):
    """What gets a verdict: its setting, what its verdict depends on, and how to make its trajectory."""

    setting: str
    identity: Json
    trajectory: Callable[[], Trajectory]
    facts: Json


def _constructed() -> Trajectory:
    """A constructed transformer that runs the paper's iteration; every tenth block is taken for a layer."""
    task = SPHERE
    network = construct(task.d, task.N, task.v, task.lam, scheme="exact", eta=1.0, L=120)
    stages = range(10, 121, 10)
    path = network.path(evaluation_prompts("sphere"), stages=stages, contexts=default_contexts(task.N))
    return Trajectory(path.values, np.arange(1.0, 13), "constructed", path.contexts)


def _solved(solver: Solver, steps: list[float]) -> Callable[[], Trajectory]:
    def trajectory() -> Trajectory:
        found = solve(solver, evaluation_prompts("sphere"), SPHERE, steps)
        return Trajectory(found.values, np.arange(1.0, 1 + len(found.values)), solver.label)

    return trajectory


#: Controls on the sphere: what they are, the right class, and how to make their trajectory.
CONTROLS: dict[str, tuple[str, str, Callable[[], Trajectory]]] = {
    "constructed transformer": ("runs preconditioned Richardson, 10 blocks per layer", "richardson", _constructed),
    "ridge path": (
        "solves exactly with a shrinking ridge: no iteration",
        "ridge",
        _solved(RidgePath(), [0.6 * i for i in range(1, 13)]),
    ),
    "kernel average": (
        "averages labels, sharper with depth: solves nothing",
        "nadaraya-watson",
        _solved(NadarayaWatson(), [0.25 * i for i in range(1, 13)]),
    ),
}


def calibrated_rule() -> Rule:
    return Rule(**read_record()["rule"])


def model_verdicts(
    store: Store, models: Models, progress: Callable[[str], None] = lambda name: None
) -> tuple[Verdicts, dict[str, str]]:
    """Verdicts on these models (by name, with their numbers) and on the controls; reasons where one failed."""
    subjects: dict[str, Subject] = {
        name: Subject(
            model.setting,
            model_identity(name),
            functools.partial(_model_layers, name),
            {"what": model.training, "trained_steps": model.trained_steps, "won": model.won},
        )
        for name, model in _distinct(models).items()
    }
    subjects |= {
        name: Subject("sphere", {"control": name}, make, {"what": what, "truth": truth})
        for name, (what, truth, make) in CONTROLS.items()
    }
    results: dict[str, ModelVerdict | LayerstepError] = {}
    for setting in sorted({subject.setting for subject in subjects.values()}):
        alike = {name: subject for name, subject in subjects.items() if subject.setting == setting}
        results |= _verdicts_in(setting, alike, store, progress)
    found, failed = {}, {}
    for name in subjects:
        result = results[name]
        if isinstance(result, LayerstepError):
            failed[f"verdict on {name}"] = str(result)
        else:
            found[name] = result
    return found, failed


def _distinct(models: Models) -> Models:
    """The models but for those whose predictions another one before them has too: one model in two directories."""
    first: dict[str, str] = {}
    for name in models:
        first.setdefault(model_identity(name)["predictions"], name)
    return {name: models[name] for name in first.values()}


def _verdicts_in(
    setting: str, subjects: dict[str, Subject], store: Store, progress: Callable[[str], None]
) -> dict[str, ModelVerdict | LayerstepError]:
    """Verdicts on subjects of one setting, one per core, by one instrument, made if a verdict is missing."""
    rule = to_json(calibrated_rule())
    files = {name: f"verdict-{name.replace(' ', '-')}" for name in subjects}
    made_from = {name: {**subject.identity, "seed": VERDICT_SEED, "rule": rule} for name, subject in subjects.items()}
    there = {name: store.find(files[name], ModelVerdict, made_from[name], __name__) for name in subjects}
    results: dict[str, ModelVerdict | LayerstepError] = {name: found for name, found in there.items() if found}
    missing = [name for name in subjects if name not in results]
    if not missing:
        return results
    progress(f"verdicts on {', '.join(missing)}")
    instrument = _instrument(setting)

    def one(name: str) -> ModelVerdict | LayerstepError:
        compute = functools.partial(_verdict, name, subjects[name], instrument)
        try:
            return store.get(files[name], ModelVerdict, made_from[name], __name__, compute)
        except LayerstepError as error:
            return error

    with one_per_worker(one, missing) as made:
        return results | dict(zip(missing, made, strict=True))


def _verdict(name: str, subject: Subject, instrument: Instrument) -> ModelVerdict:
    task, prompts = SETTINGS[subject.setting], evaluation_prompts(subject.setting)
    path = subject.trajectory()
    verdict = identify(path, prompts, task, instrument=instrument, seed=VERDICT_SEED)
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
        text=str(verdict),
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


def _instrument(setting: str) -> Instrument:
    task = SETTINGS[setting]
    return Instrument.prepare(evaluation_prompts(setting), task, default_contexts(task.N))


def _model_layers(name: str) -> Trajectory:
    path = load_predictions(name).layers
    return Trajectory(path.values[1:], path.stages[1:], name)


def _won(path: Trajectory, setting: str) -> int:
    """Layers where Richardson has the largest SimE of the paper's four solvers."""
    columns = [n - 1 for n in path.contexts.tolist()]
    target = evaluation_prompts(setting).target[:, columns]
    solvers = {
        name: Trajectory(p.values[..., columns], p.stages, p.label, path.contexts)
        for name, p in references(setting).items()
    }
    return layers_won({name: match(path, p, target) for name, p in solvers.items()})["richardson"]
