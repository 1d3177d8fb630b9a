"""Runs of the paper by name, each published when it is trained: `layerstep sweep sphere --publish`.

NAME is trained as listed, NAME:PRESET on that preset's schedule. Needs no package that training does not need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from layerstep.engines.choice import visible_gpus
from layerstep.errors import require, require_choice
from layerstep.files import read_json
from layerstep.folders.layout import EVALUATION
from layerstep.reproduction.publish import publish_run
from layerstep.reproduction.runs import RUNS
from layerstep.reproduction.settings import DISTRIBUTIONS
from layerstep.training import PRESETS, Outcome, Run, sweep
from layerstep.training.planning import grouped

SCHEDULES = ("paper", "fast")


class Place(NamedTuple):
    """Where a run is published, as JSON can hold it: a sweep knows `then` by its arguments.

    shared: runs of other shapes that are trained beside it on the GPU.
    """

    name: str
    folder: str
    shared: tuple[str, ...]

    def publish(self, outcome: Outcome) -> str:
        weights = self.name in DISTRIBUTIONS
        return str(publish_run(outcome.folder, self.name, Path(self.folder), weights=weights, shared=self.shared))

    def holds(self, run: Run) -> bool:
        file = Path(self.folder, EVALUATION)
        return file.exists() and read_json(file).get("identity") == run.identity


def listed_run(words: str) -> Run:
    """NAME, or NAME:PRESET: the task, model and seed of the run on the schedule of a preset."""
    name, colon, preset = words.partition(":")
    require_choice("name", name, tuple(RUNS))
    run = RUNS[name].run
    if not colon:
        return run
    require_choice("preset", preset, SCHEDULES)
    return PRESETS[preset].override(**run.task.to_dict(), **run.model.to_dict(), seed=run.seed)


def train_and_publish(
    names: Sequence[str], out: Path, *, on: Any = None, results: Path | None = None, **options: Any
) -> list[Outcome]:
    """Train the named runs of the list and publish each when it is done; `.result` is where. Models of the three input
    distributions keep their weights. The same call goes on."""
    plain = [words.partition(":")[0] for words in names]
    require(len(set(plain)) == len(plain) > 0, "names", list(names), "at least one, each once")
    runs = {words: listed_run(words) for words in names}
    # Several units on one GPU take longer than each would alone.
    groups = grouped(out, [(run, name) for name, run in runs.items()], slots=1, stack=options.get("stack"))
    beside = on is None and visible_gpus() > 0
    name_of = {run.identity: name for name, run in zip(plain, runs.values(), strict=True)}
    places = {}
    for run in runs.values():
        others = [name_of[other.identity] for group in groups if run not in group.runs for other in group.runs]
        name = name_of[run.identity]
        folder = RUNS[name].folder if results is None else results.absolute() / name
        places[run.identity] = Place(name, str(folder), tuple(others) if beside else ())
    then = partial(_publish, places=places)
    found = sweep(runs, out, on, then=then, **options)
    for outcome in found:  # published once, and taken away since
        if outcome.state == "done" and not places[outcome.run.identity].holds(outcome.run):
            then(outcome)
    return found


def _publish(outcome: Outcome, places: Mapping[str, Place]) -> str:
    return places[outcome.run.identity].publish(outcome)
