"""The instrument's verdict on every trained model, and on controls whose solver is known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layerstep.construction import construct
from layerstep.engines import compute_pieces
from layerstep.errors import LayerstepError
from layerstep.files import source_digest
from layerstep.measurement import Instrument, Rule
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.identification.domains import default_contexts
from layerstep.reproduction.numbers.measurements import layers_after_blocks
from layerstep.reproduction.numbers.model import ModelNumbers, Models
from layerstep.reproduction.numbers.store import Store, from_json, to_json
from layerstep.reproduction.numbers.verdict import VERDICT_SEED, ModelVerdict, Subject, verdict_on
from layerstep.reproduction.predictions import model_identity
from layerstep.reproduction.runs import models_folder, models_in
from layerstep.reproduction.settings import SETTINGS, SPHERE, evaluation_prompts
from layerstep.solvers import NadarayaWatson, RidgePath, Solver, solve
from layerstep.tasks import Trajectory
from layerstep.threads import one_per_worker

Verdicts = dict[str, ModelVerdict]


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
    store: Store,
    models: Models,
    progress: Callable[[str], None] = lambda name: None,
    only: str | None = None,
) -> tuple[Verdicts, dict[str, str]]:
    """Verdicts on these models (by name, with their numbers) and on the controls; reasons where one failed.

    only: a setting; those of the others are left out.
    """
    subjects: dict[str, Subject] = {
        name: Subject(
            model.setting,
            model_identity(name),
            functools.partial(layers_after_blocks, name),
            {"what": model.training, "trained_steps": model.trained_steps, "won": model.won},
        )
        for name, model in _distinct(models).items()
    }
    subjects |= {
        name: Subject("sphere", {"control": name}, make, {"what": what, "truth": truth}, __name__)
        for name, (what, truth, make) in CONTROLS.items()
    }
    if only is not None:
        subjects = {name: subject for name, subject in subjects.items() if subject.setting == only}
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
    there = {
        name: store.find(files[name], ModelVerdict, made_from[name], subject.code) for name, subject in subjects.items()
    }
    results: dict[str, ModelVerdict | LayerstepError] = {name: found for name, found in there.items() if found}
    missing = [name for name in subjects if name not in results]
    if not missing:
        return results
    progress(f"verdicts on {', '.join(missing)}")
    instrument = _instrument(setting)

    def one(name: str) -> ModelVerdict | LayerstepError:
        compute = functools.partial(verdict_on, name, subjects[name], instrument)
        try:
            return store.get(files[name], ModelVerdict, made_from[name], subjects[name].code, compute)
        except LayerstepError as error:
            return error

    with one_per_worker(one, missing) as made:
        return results | dict(zip(missing, made, strict=True))


def _instrument(setting: str) -> Instrument:
    task = SETTINGS[setting]
    return Instrument.prepare(evaluation_prompts(setting), task, default_contexts(task.N))


# On an engine: a unit per setting, for one library. Verdicts come by the store's files --------------------------------

CODE = ("tasks", "solvers", "construction", "measurement", "reproduction")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The models of one setting, with the directories that another process needs."""

    setting: str
    models: str
    store: str
    shipped: str | None
    numbers: dict[str, ModelNumbers]


def make_verdicts(
    store: Store, models: Models, on: Any, options: dict[str, Any], progress: Callable[[str], None]
) -> None:
    """Put the verdicts that the store has not into it."""
    settings = sorted({"sphere", *(model.setting for model in models.values())})
    units = [
        Unit(
            setting=setting,
            models=str(models_folder().absolute()),
            store=str(store.folder.absolute()),
            shipped=None if store.shipped is None else str(store.shipped.absolute()),
            numbers={name: model for name, model in models.items() if model.setting == setting},
        )
        for setting in settings
    ]
    arguments = {unit.setting: to_json(unit) for unit in units}
    told = {"code": source_digest(CODE), "on": on, "options": options, "say": progress}
    compute_pieces(verdicts_of_setting, arguments, store.folder / "units", **told)


def verdicts_of_setting(argument: dict[str, Any]) -> list[str]:
    """Make them, each kept as it is done; their names."""
    unit: Unit = from_json(Unit, argument)
    store = Store(Path(unit.store), None if unit.shipped is None else Path(unit.shipped))
    with models_in(Path(unit.models)):
        found, _ = model_verdicts(store, unit.numbers, only=unit.setting)
    return sorted(found)
