"""ls.sweep: many runs, here or on an engine. All state is in the directory, so the same call again goes on."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from layerstep.engines import Engine, Work, choose_engine, drive
from layerstep.engines.choice import require_engine, visible_gpus
from layerstep.errors import (
    InputError,
    as_device,
    as_path,
    require_callable,
    require_count,
    require_flag,
    require_kind,
    require_positive,
)
from layerstep.files import InUseError, locked, read_json, write_json
from layerstep.folders.layout import last_records
from layerstep.folders.survey import JOBS, SWEEP, Begun, checkpoint_step, is_writing, wanted_runs
from layerstep.progress import showing
from layerstep.training.config import Run
from layerstep.training.local import train_units
from layerstep.training.loop import require_snapshots
from layerstep.training.planning import Plan, free_names, grouped, names_of, plan, require_names, require_runs
from layerstep.training.unit import Outcome, Then, kept_result, order, train_unit

CHECKPOINT_SECONDS = 300.0  # all that share a disk write together
FORMAT = 1


def sweep(
    runs: Sequence[Run] | Mapping[str, Run],
    out: str | os.PathLike,
    on: Any = None,
    *,
    then: Then | None = None,
    wait: bool = True,
    stack: int | None = None,
    gpus: int | None = None,
    threads: int | None = None,
    device: str | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    snapshots: Sequence[float] = (0.12, 0.3, 0.6),
    prompts: int = 2048,
    progress: bool = False,
    index: int | None = None,
    minutes: float | None = None,
    **options: Any,
) -> list[Outcome]:
    """Train `runs`, each to a directory in `out` that is named by what differs, or as in {name: run}. One outcome per
    run, in their order: `.run .folder .state`, where the state is done, waiting, training, or failed: and why.

    on: None for this process and its device; "slurm" (by submitit) or "ray"; or anything with submit(function,
    argument), such as a ProcessPoolExecutor or `client.get_executor()` of Dask. `out` must then be on a disk that all
    machines share. What else is given goes to the engine: timeout_min=240, slurm_partition="gpu", memory=...

    The same call again goes on: what is done is found, what was begun goes on from its checkpoint, jobs of Slurm that
    still wait or run are not submitted twice. A run that diverges is failed and costs no other; a worker that dies is
    replaced, until three times in a row nothing was gained. wait=False hands the work over and returns.

    A unit of work is a stack of runs of one shape on one GPU: `stack` of them (None: up to four, as many as leaves no
    GPU idle; one by one without a GPU), with `gpus` GPUs (None: one, where there are any) and `threads` threads of the
    CPU (None: one, and here as many as torch has; on a CPU the number of threads decides the last bits).
    `then(outcome)` is called where a run is trained, once it is done; `.result` is what it returned, JSON.
    index=K trains the K-th unit alone, for array jobs of your own; minutes=M stops here after that time, with a
    checkpoint of each. The rest is as in `ls.train`.
    """
    names, folder = require_names(runs), as_path("out", out)
    runs = require_runs(list(runs.values()) if isinstance(runs, Mapping) else runs)
    _check(then, stack, gpus, threads, index, minutes, device, on)
    require_flag(wait=wait, progress=progress)
    require_engine(on, options)
    require_snapshots(snapshots)
    training = {"checkpoint_seconds": checkpoint_seconds, "snapshots": list(snapshots), "prompts": prompts}
    training |= {"device": device}
    names = names or names_of(runs)
    with _driver(folder, alone=index is None):
        names, sweep_id = _remember(folder, runs, names)
        if on is None:
            told = {"then": then, "stack": stack, "threads": threads, "progress": progress, "index": index}
            return _here(runs, folder, names, minutes=minutes, **told, **training)
        engine = choose_engine(on, folder, gpus=gpus, threads=threads, options=options)
        try:
            return _on_engine(engine, runs, folder, names, sweep_id, then, stack, wait, progress, training)
        finally:
            engine.close(wait)


def _check(then: Any, stack: Any, gpus: Any, threads: Any, index: Any, minutes: Any, device: Any, on: Any) -> None:
    require_callable("then", then or print, "a function of an outcome")
    for name, value in {"stack": stack, "threads": threads}.items():
        if value is not None:
            require_count(1, 4096, **{name: value})
    for name, value in {"gpus": gpus, "index": index}.items():
        if value is not None:
            require_count(0, **{name: value})
    if minutes is not None:
        require_positive(minutes=minutes)
    for name, value in {"index": index, "minutes": minutes}.items():
        if value is not None and on is not None:
            raise InputError(f"{name} is for trainings in this process. Leave out on, or {name}.")
    if device is not None and on is None:
        as_device(device)


@contextlib.contextmanager
def _driver(out: Path, alone: bool) -> Iterator[None]:
    """One call at a time decides what is trained in `out`; units of array jobs go without."""
    if not alone:
        yield
        return
    taken = (
        f"{out} is in use by another call of sweep, which goes on. Wait for it, or see how far it is: "
        f"layerstep runs {out}"
    )
    with locked(out / ".sweep.lock", taken):
        yield


def _remember(out: Path, runs: Sequence[Run], names: Sequence[str]) -> tuple[list[str], str]:
    """Write down what is wanted; the directories' names, and what workers know this directory by."""
    until = time.monotonic() + 60
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(
                    locked(out / ".sweep.json.lock", f"{out / SWEEP} is being written by another process.")
                )
                break
            except InUseError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        known = read_json(out / SWEEP) if (out / SWEEP).exists() else {}
        require_kind(str(out / SWEEP), known, dict)
        names = free_names(out, runs, names)
        wanted = wanted_runs(out)
        new = {r.identity: {"name": n, "run": r.to_dict()} for r, n in zip(runs, names, strict=True)}
        if new.keys() - wanted.keys() or "id" not in known:
            known = {"format": FORMAT, "id": known.get("id") or secrets.token_hex(8), "runs": wanted | new}
            write_json(out / SWEEP, known)
    return names, known["id"]


def _here(
    runs: Sequence[Run],
    out: Path,
    names: Sequence[str],
    *,
    minutes: float | None,
    then: Then | None,
    stack: int | None = None,
    threads: int | None = None,
    progress: bool = False,
    index: int | None = None,
    **training: Any,
) -> list[Outcome]:
    """The sweep in this process."""
    on_gpu = as_device(training.get("device")).type == "cuda"
    stack = stack or (None if on_gpu else 1)
    mine, own_names = list(runs), list(names)
    if index is not None:
        units = grouped(out, list(zip(runs, names, strict=True)), slots=None, stack=stack or 1)
        require_count(0, len(units) - 1, index=index)
        mine = units[index].runs
        own_names = [dict(zip((run.identity for run in runs), names, strict=True))[run.identity] for run in mine]
    found = plan(out, mine, own_names, slots=1, stack=stack, redo=_without_result(then))
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with _table(found, mine, progress) as look:
            states = train_units(found.units, then, look, minutes, **training)
    finally:
        torch.set_num_threads(before)
    return _outcomes(mine, own_names, out, found, states, then)


def _on_engine(
    engine: Engine,
    runs: list[Run],
    out: Path,
    names: list[str],
    sweep_id: str,
    then: Then | None,
    stack: int | None,
    wait: bool,
    progress: bool,
    training: Mapping[str, Any],
) -> list[Outcome]:
    gpus = min(visible_gpus(), engine.slots or 1) if engine.gpus is None else engine.gpus
    slots = engine.slots if engine.gpus is not None else gpus
    found = plan(out, runs, names, slots=slots, stack=stack or (None if gpus else 1), redo=_without_result(then))
    units = {os.path.relpath(unit.folder, out): unit for unit in found.units}
    told = {"sweep": sweep_id, "then": then, "threads": engine.threads, **training}
    works = [Work(key, order(out, unit.folder, unit.runs, unit.names, **told)) for key, unit in units.items()]
    states: dict[str, tuple[str, Any]] = {}

    def on_end(work: Work, result: dict[str, Any] | None) -> None:
        if result is not None and "states" in result:
            states.update({identity: (state, value) for identity, (state, value) in result["states"].items()})
            return
        words = result["refused"] if result is not None else f"{work.words} ({work.deaths} times)"
        states.update({run.identity: (f"failed: {words}", None) for run in units[work.key].runs})

    def how_far(work: Work) -> tuple[int, float]:
        begun = Begun.read(units[work.key].folder)
        return (begun.attempts if begun else 0, float(checkpoint_step(units[work.key].folder)))

    with _table(found, runs, progress and wait) as look:
        drive(engine, train_unit, works, out / JOBS, on_end=on_end, progress=how_far, look=look, wait=wait)
    return _outcomes(runs, names, out, found, states, then)


def _without_result(then: Then | None):
    """Whether a run that is done still waits for `then`."""
    return lambda run, place: then is not None and kept_result(then, run.identity, place) is None


@contextlib.contextmanager
def _table(found: Plan, runs: Sequence[Run], wanted: bool) -> Iterator[Any]:
    """Yield what looks at every unit's log and shows how far all are."""
    total = sum(run.steps for run in runs)
    done = sum(run.steps for run in runs if run.identity in found.done)
    with showing(total, start=done, lines=True, wanted=wanted) as show:
        last = [0.0]

        def look() -> None:
            if not wanted or time.monotonic() - last[0] < 1.0:
                return
            last[0] = time.monotonic()
            steps, counts = done, Counter(done=len(found.done), failed=len(found.failed))
            for unit in found.units:
                records = last_records(unit.folder)
                step = records[-1]["step"] if records else 0
                mine = [run for run in unit.runs if run.identity not in found.done]
                steps += step * len(mine)
                over = step >= unit.runs[0].steps
                counts["done" if over else "training" if is_writing(unit.folder) else "waiting"] += len(mine)
            if steps > done:
                show(min(steps, total), ", ".join(f"{n} {state}" for state, n in counts.items() if n))

        yield look


def _outcomes(
    runs: Sequence[Run],
    names: Sequence[str],
    out: Path,
    found: Plan,
    states: Mapping[str, tuple[str, Any]],
    then: Then | None,
) -> list[Outcome]:
    places = {run.identity: place for unit in found.units for run, place in zip(unit.runs, unit.places, strict=True)}
    homes = {run.identity: unit.folder for unit in found.units for run in unit.runs}
    outcomes = []
    for run, name in zip(runs, names, strict=True):
        identity = run.identity
        outcome = Outcome(run, places.get(identity, out / name), "waiting")
        if identity in states:
            state, result = states[identity]
            outcome = replace(outcome, state=state, result=result)
        elif identity in found.done:
            place = found.done[identity]
            kept = kept_result(then, identity, place) if then else None
            outcome = Outcome(run, place, "done", kept[0] if kept else None)
        elif identity in found.failed:
            place, words = found.failed[identity]
            outcome = Outcome(run, place, f"failed: {words}")
        elif is_writing(homes[identity]):
            outcome = replace(outcome, state="training")
        outcomes.append(outcome)
    return outcomes
