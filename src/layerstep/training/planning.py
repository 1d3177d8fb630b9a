"""Which runs of a sweep are done, which were begun and where, and how the others are put together."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerstep.errors import LONGEST_NAME, InputError, quoted, require, require_kind
from layerstep.files import digest
from layerstep.folders.survey import STACKS, Begun, begun_below, differing, failure_of, flat, is_saved, wanted_runs
from layerstep.training.config import Run
from layerstep.training.stack import needed_bytes, shared

STACKED = 4  # more save little: launches are then a tenth of a step
STACK_BYTES = 16 * 2**30  # a stack that needs more fills a GPU without being one


@dataclass(frozen=True)
class Unit:
    """Runs that are trained as one stack in `folder`; names: of their directories from there, none for a run alone."""

    folder: Path
    runs: list[Run]
    names: list[str]

    @property
    def places(self) -> list[Path]:
        return [Path(os.path.normpath(self.folder / name)) for name in self.names] or [self.folder]


def require_runs(runs: Any) -> list[Run]:
    require_kind("runs", runs, (list, tuple), "Such as [run.override(seed=seed) for seed in range(5)].")
    require(len(runs) > 0, "runs", "none", "one run or more")
    seen: dict[str, int] = {}
    for index, run in enumerate(runs):
        require_kind(f"runs[{index}]", run, Run, "Such as ls.PRESETS['tiny'].")
        first = seen.setdefault(run.identity, index)
        if first != index:
            raise InputError(f"runs {first} and {index} are the same run. Give each once.")
    return list(runs)


def require_names(runs: Any) -> list[str]:
    """The names that directories are given, none where they are to be found."""
    names = list(runs) if isinstance(runs, Mapping) else []
    for name in names:
        plain = isinstance(name, str) and re.fullmatch(r"[\w+,=-][\w.+,=:-]*", name) and len(name) <= LONGEST_NAME - 32
        require(bool(plain), "name of a run", quoted(name), "letters, digits and . + , = : - _, as in sphere-2")
    return names


def names_of(runs: Sequence[Run]) -> list[str]:
    """A directory's name for each run: the numbers in which they differ, seed=0,width=64."""
    dicts = [run.to_dict() for run in runs]
    fields = [name for name in differing(dicts) if not name.endswith(" values")]
    names = []
    for run, values in zip(runs, dicts, strict=True):
        flattened = flat(values)
        words = ",".join(f"{name}={_short(flattened.get(name))}" for name in fields)
        names.append(words if words and len(words) <= LONGEST_NAME - 32 else run.name)
    return [f"{name}-{run.identity}" if names.count(name) > 1 else name for name, run in zip(names, runs, strict=True)]


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, float) and float(text) != value:
        text = repr(value)
    return re.sub(r"[^\w.+-]", "-", text)


def free_names(out: Path, runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """The same names; one that another run has in `out` gets the identity behind it."""
    known = {values.get("name"): identity for identity, values in wanted_runs(out).items()}
    own = {identity: str(values["name"]) for identity, values in wanted_runs(out).items() if "name" in values}
    found = []
    for run, name in zip(runs, names, strict=True):
        taken = known.get(name, run.identity) != run.identity or (name not in known and (out / name).exists())
        found.append(own.get(run.identity) or (f"{name}-{run.identity}" if taken or name == STACKS else name))
    return found


@dataclass
class Plan:
    """Where runs are that are done, or diverged and why, by identity; and the units of all there is to do."""

    done: dict[str, Path]
    failed: dict[str, tuple[Path, str]]
    units: list[Unit]


def plan(
    out: Path,
    runs: Sequence[Run],
    names: Sequence[str],
    *,
    slots: int | None,
    stack: int | None,
    redo: Callable[[Run, Path], bool] = lambda run, place: False,
) -> Plan:
    """Runs found in whatever stack they were begun; what was not begun is put together anew.

    slots: how many units run at one time, for stacks no larger than that leaves work for; stack: so many instead.
    redo: whether there is something to do for a run that is done.
    """
    wanted = {run.identity: run for run in runs}
    done: dict[str, Path] = {}
    begun: dict[str, tuple[Begun, Path]] = {}
    for each in begun_below(out, depth=2):
        for identity, place, values in zip(each.identities, each.places(), each.runs, strict=True):
            if identity not in wanted or identity in done:
                continue
            if is_saved(place, identity, values):
                done[identity] = place
                begun[identity] = (each, place)
            begun.setdefault(identity, (each, place))
    failed: dict[str, tuple[Path, str]] = {}
    units: dict[Path, Unit] = {}
    for identity, (each, place) in begun.items():
        if identity not in done and (words := failure_of(each.folder, identity)) is not None:
            failed[identity] = (place, words)
        elif identity not in done or redo(wanted[identity], place):
            members = zip(each.identities, each.runs, strict=True)
            whole = [wanted.get(name) or Run.from_dict(values) for name, values in members]
            units[each.folder] = Unit(each.folder, whole, [] if each.inside == ["."] else each.inside)
    rest = [(run, name) for run, name in zip(runs, names, strict=True) if run.identity not in begun]
    return Plan(done, failed, [*units.values(), *grouped(out, rest, slots=slots, stack=stack)])


def grouped(out: Path, runs: Sequence[tuple[Run, str]], *, slots: int | None, stack: int | None) -> list[Unit]:
    """In their order, those of one shape and length together."""
    shapes: dict[tuple, list[tuple[Run, str]]] = {}
    for run, name in runs:
        shapes.setdefault(_shape(run), []).append((run, name))
    sizes = {}
    for shape, same in shapes.items():
        fair = math.ceil(len(same) / slots) if slots else STACKED
        fits = max(1, int(STACK_BYTES / needed_bytes([same[0][0]])))
        sizes[shape] = stack or max(1, min(STACKED, fair, fits))
    groups: list[list[tuple[Run, str]]] = []
    open_group: dict[tuple, list[tuple[Run, str]]] = {}
    for run, name in runs:
        shape = _shape(run)
        group = open_group.get(shape)
        if group is None or len(group) == sizes[shape]:
            group = open_group[shape] = []
            groups.append(group)
        group.append((run, name))
    return [_unit(out, group) for group in groups]


def _shape(run: Run) -> tuple:
    return tuple(shared(run).values())


def _unit(out: Path, group: Sequence[tuple[Run, str]]) -> Unit:
    """A run alone is trained in its own directory; a stack keeps what its runs share beside them."""
    runs = [run for run, _ in group]
    if len(group) == 1:
        return Unit(out / group[0][1], runs, [])
    folder = out / STACKS / digest([run.identity for run in runs])
    return Unit(folder, runs, [os.path.join("..", "..", name) for _, name in group])
