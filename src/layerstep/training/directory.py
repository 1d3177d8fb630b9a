"""Whose directory it is: the runs that were begun in it, the models that are finished, one process at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from layerstep.errors import FileError, InputError, LayerstepError
from layerstep.files import InUseError, locked, provenance, read_json, write_json
from layerstep.folders.layout import CONFIG, FAILED, LOCK, RUNS
from layerstep.training.config import Run
from layerstep.training.gpt import GPT


@dataclass(frozen=True)
class Trained:
    """What config.json says of a model that `train` wrote: its run, after which step, and all there is."""

    run: Run
    step: int
    about: dict[str, Any]

    @staticmethod
    def read(folder: Path) -> Trained:
        file = folder / CONFIG
        try:
            about = read_json(file)["about"]
            run = Run.from_dict(about["run"])
            return Trained(run, int(about.get("step", run.steps)), about)
        except FileError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            reason = str(error) if isinstance(error, InputError) else "it has no about.run"
            raise FileError(f"{file} does not say which run this is: {reason}. Write it again.") from error


def begun_in(folder: Path, runs: list[Run], resume: bool | str) -> dict[str, Any]:
    """What is known of these runs in `folder`, nothing where they were not begun; an InputError where it is somebody
    else's, or not what `resume` says. Nothing is written."""
    about = folder / RUNS
    if about.exists():
        known = read_json(about)
        if not isinstance(known, dict) or known.get("identities") != [run.identity for run in runs]:
            raise InputError(f"out = {folder}: holds another run ({RUNS} there). Choose another directory.")
        if resume is False:
            raise InputError(f"out = {folder}: this run was started there. Pass resume, or choose another directory.")
        return known
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out = {folder}: is a file. Choose a directory.")
    if folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise InputError(f"out = {folder}: is not empty and holds no run. Choose another directory.")
    if resume is True:
        raise InputError(f"out = {folder}: there is nothing to resume. Leave out resume, or choose another directory.")
    return {}


def places(folder: Path, about: Mapping[str, Any], runs: Sequence[Run]) -> list[Path]:
    """Where each run's model is: what runs.json says, or as it was before that said it."""
    inside = about.get("folders")
    if isinstance(inside, list) and len(inside) == len(runs):
        return [folder / str(name) for name in inside]
    alone = len(runs) == 1 and not (folder / runs[0].name).exists()
    return [folder] if alone else [folder / run.name for run in runs]


def finished_models(folder: Path, runs: list[Run], about: Mapping[str, Any]) -> list[GPT | None] | None:
    """The models of runs that came to their end, None for those that diverged; None where one is missing or damaged."""
    if not about:
        return None
    lost, models = failures(folder, runs), []
    try:
        for run, place in zip(runs, places(folder, about, runs), strict=True):
            if run.identity in lost:
                models.append(None)
                continue
            there = Trained.read(place)
            if there.step != run.steps or there.run.identity != run.identity:
                return None
            models.append(GPT.from_pretrained(place, dtype=run.dtype))
    except LayerstepError:
        return None
    return models


def failures(folder: Path, runs: Sequence[Run]) -> dict[str, str]:
    """The words of those that diverged, by identity."""
    found = read_json(folder / FAILED) if (folder / FAILED).exists() else {}
    known = found if isinstance(found, dict) else {}
    return {run.identity: str(known[run.identity]) for run in runs if run.identity in known}


def wait_for(stack: contextlib.ExitStack, folder: Path, seconds: float) -> Iterator[None]:
    """Enter the lock of `folder`; while another has it wait, and yield, so that signals are heard."""
    until = time.monotonic() + seconds
    taken = f"{folder} is in use by another process. Wait for it, or choose another directory."
    while True:
        try:
            stack.enter_context(locked(folder / LOCK, taken))
            return
        except InUseError:
            if time.monotonic() >= until:
                raise
        yield
        time.sleep(0.2)


def claim(
    folder: Path, runs: list[Run], device: torch.device, about: dict[str, Any], inside: Sequence[str]
) -> dict[str, Any]:
    """Make `folder` the place of these runs; where they were begun, add this machine to those they went on upon."""
    here = provenance(str(device))
    if about:
        about = about | {"resumed": [*about.get("resumed", []), here]}
    else:
        about = {"identities": [run.identity for run in runs], "runs": [run.to_dict() for run in runs]}
        about |= {"folders": list(inside), "provenance": here}
    write_json(folder / RUNS, about)
    return about
