"""What the directories below one hold: which runs, how far, with what end. Read without torch, in one pass."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerstep.folders.layout import CHECKPOINTS, CONFIG, EVALUATION, FAILED, LOG, RUNS, SNAPSHOTS, last_records

SWEEP, JOBS, STACKS = "sweep.json", "jobs.json", "stacks"
QUIET = 120.0  # seconds without a word in the log after which a training counts as stopped
DEPTH = 4


@dataclass
class Entry:
    """A run in its directory. `unit` is where it is trained, with others where they are stacked."""

    identity: str
    run: dict[str, Any]
    folder: Path
    unit: Path | None = None
    state: str = "waiting"
    step: int = 0
    left: float | None = None
    seconds: float | None = None
    loss: float | None = None
    ratio: float | None = None
    name: str = ""
    beside: list[str] = field(default_factory=list)

    @property
    def steps(self) -> int:
        return int(self.run.get("steps", 0))

    def to_dict(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in ("name", "state", "step", "steps", "left", "seconds", "loss")}
        return shown | {"ratio": self.ratio, "folder": str(self.folder), "identity": self.identity, "run": self.run}


@dataclass(frozen=True)
class Begun:
    """A directory in which runs are trained, alone or as a stack: its runs.json."""

    folder: Path
    identities: list[str]
    runs: list[dict[str, Any]]
    inside: list[str]
    attempts: int

    @classmethod
    def read(cls, folder: Path) -> Begun | None:
        about = _dictionary(folder / RUNS)
        identities, runs = about.get("identities"), about.get("runs")
        if not isinstance(identities, list) or not isinstance(runs, list) or len(runs) != len(identities):
            return None
        inside = about.get("folders")
        if not isinstance(inside, list) or len(inside) != len(runs):
            return None
        return cls(folder, identities, runs, [str(name) for name in inside], 1 + len(about.get("resumed", [])))

    def places(self) -> list[Path]:
        return [Path(os.path.normpath(self.folder / name)) for name in self.inside]


def begun_below(root: Path, depth: int = DEPTH) -> Iterator[Begun]:
    """Every directory below `root` that holds a runs.json, in the order of their names."""
    pending = [(root, depth)]
    while pending:
        folder, rest = pending.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        inner = []
        for entry in entries:
            if entry.name == RUNS and (begun := Begun.read(folder)) is not None:
                yield begun
            hidden = entry.name.startswith(".") or entry.name in (CHECKPOINTS, SNAPSHOTS)
            with contextlib.suppress(OSError):  # another's, or gone since
                if rest and not hidden and entry.is_dir():
                    inner.append((Path(entry.path), rest - 1))
        pending += inner[::-1]


def unit_of(place: Path) -> Path:
    """Where the run in `place` was trained: there, in the directory around it, or as a stack of a sweep."""
    for home in (place, place.parent):
        if (home / RUNS).is_file():
            return home
    stacks = begun_below(place.parent / STACKS, depth=1)
    return next((each.folder for each in stacks if place.resolve() in [p.resolve() for p in each.places()]), place)


def is_saved(place: Path, identity: str, run: Mapping[str, Any]) -> bool:
    """Whether the model of this run, trained to its end, is in `place`."""
    about = _dictionary(place / CONFIG).get("about")
    if not isinstance(about, dict) or about.get("step") != run.get("steps"):
        return False
    return about.get("run") == run or about.get("identity") == identity


def failure_of(unit: Path, identity: str) -> str | None:
    """The words of a run that diverged."""
    words = _dictionary(unit / FAILED).get(identity)
    return None if words is None else str(words)


def checkpoint_step(unit: Path) -> int:
    """The newest step that a kill cannot take away any more."""
    try:
        names = [name for name in os.listdir(unit / CHECKPOINTS) if name.startswith("step-") and name.endswith(".json")]
    except OSError:
        return 0
    return max((int(name[5:-5]) for name in names if name[5:-5].isdecimal()), default=0)


def find_runs(root: Path) -> list[Entry]:
    """Every run below `root`, those that a sweep has not begun included."""
    found: dict[tuple[str, Path], Entry] = {}
    errors: dict[str, str] = {}
    for begun in begun_below(root):
        for entry in _entries(begun):
            found[entry.identity, entry.folder] = entry
    known = {entry.identity for entry in found.values()}
    units = {entry.unit for entry in found.values() if entry.unit is not None}
    for home in {root, *(unit.parent for unit in units), *(unit.parents[1] for unit in units)}:
        for key, job in _dictionary(home / JOBS).items():
            if isinstance(job, dict) and job.get("error") and job.get("over"):
                errors[os.path.normpath(home / key)] = str(job["error"])
        for identity, values in wanted_runs(home).items():
            if identity not in known:
                place = home / str(values.get("name"))
                found[identity, place] = Entry(identity, values.get("run", {}), place)
    for entry in found.values():
        words = errors.get(str(entry.unit or entry.folder))
        if words and entry.state in ("waiting", "stopped"):
            entry.state = f"failed: {words}"
        entry.name = os.path.relpath(entry.folder, root)
    return list(found.values())


def _entries(begun: Begun) -> list[Entry]:
    """The runs of one directory, with what their files say."""
    failed = _dictionary(begun.folder / FAILED)
    made, records = [], None
    for index, (identity, run, place) in enumerate(zip(begun.identities, begun.runs, begun.places(), strict=True)):
        entry = Entry(
            identity, run, place, begun.folder, beside=[each for each in begun.inside if len(begun.inside) > 1]
        )
        made.append(entry)
        evaluation = _dictionary(place / EVALUATION)
        with contextlib.suppress(KeyError, TypeError, ValueError):
            entry.ratio = float(evaluation["evaluation"]["ratio"])
            entry.seconds = float(evaluation["seconds"])
        if is_saved(place, identity, run):
            entry.state, entry.step = "done", entry.steps
            if entry.ratio is not None:
                continue
        records = last_records(begun.folder) if records is None else records
        if records:
            last = records[-1]
            entry.step, entry.seconds = last["step"], last["seconds"]
            with contextlib.suppress(KeyError, TypeError, IndexError):
                entry.loss = last["loss"][index]
        if identity in failed:
            entry.state = f"failed: {failed[identity]}"
        elif entry.state != "done":
            entry.state = "training" if is_writing(begun.folder) else "stopped"
            if entry.state == "training" and records:
                entry.left = _seconds_left(records, entry.steps)
    return made


def is_writing(folder: Path) -> bool:
    """Whether the log grew a moment ago, or the run was begun then."""
    for name in (LOG, RUNS):
        with contextlib.suppress(OSError):
            return time.time() - (folder / name).stat().st_mtime < QUIET
    return False


def _seconds_left(records: Sequence[Mapping[str, Any]], steps: int) -> float | None:
    """By the speed of the last records: before a restart it may have been another machine's."""
    first, last = records[0], records[-1]
    if last["step"] <= first["step"]:
        return None
    speed = (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])
    return max(0.0, speed * (steps - last["step"]))


def differing(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The numbers in which runs differ, by name, in the order of a run's fields."""
    flats = [flat(run) for run in runs]
    names = list(dict.fromkeys(name for each in flats for name in each))
    return [name for name in names if len({json.dumps(each.get(name), sort_keys=True) for each in flats}) > 1]


def flat(run: Mapping[str, Any]) -> dict[str, Any]:
    """Every number of a run's dictionary by its name."""
    values = dict(run)
    parts = [values.pop(part, {}) for part in ("task", "model")]
    for part in parts:
        values |= part if isinstance(part, Mapping) else {}
    fingerprints = values.pop("fingerprints", {})
    return values | {f"{name} values": digits for name, digits in dict(fingerprints or {}).items()}


def _dictionary(file: Path) -> dict[str, Any]:
    """The JSON object in `file`, empty where there is none that can be read."""
    try:
        text = file.read_bytes()
    except OSError:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def wanted_runs(out: Path) -> dict[str, dict[str, Any]]:
    """The runs that sweeps into `out` were asked for: {"name", "run"} by identity."""
    found = _dictionary(out / SWEEP).get("runs")
    return {key: value for key, value in found.items() if isinstance(value, dict)} if isinstance(found, dict) else {}
