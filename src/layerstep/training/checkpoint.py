"""Checkpoints: the state as safetensors, then a JSON file with its checksum. Without the JSON it does not count.

Both are written aside and renamed, so a kill at any moment leaves the checkpoints before it whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from layerstep.errors import FileError, InputError
from layerstep.files import read_json, read_tensors, write_json, write_tensors
from layerstep.training.config import Run

FORMAT = 1
KEPT = 2
ABANDONED = 600.0  # seconds


def checksum(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}. Delete its .json to use the one before.") from error


def save_checkpoint(folder: Path, runs: Sequence[Run], step: int, state: dict[str, Tensor]) -> Path:
    """Write the state after `step` steps; keep the last two."""
    path = folder / f"step-{step:09}.safetensors"
    write_tensors(path, state)
    write_json(
        path.with_suffix(".json"),
        {"format": FORMAT, "step": step, "runs": [run.identity for run in runs], "sha256": checksum(path)},
    )
    kept = {note.stem for note in sorted(folder.glob("step-*.json"))[-KEPT:]}
    for old in folder.glob("step-*"):
        if old.stem not in kept:
            old.unlink(missing_ok=True)
    for half in folder.glob(".step-*.part"):  # a kill left it behind; a young one may be another's, without locks
        with contextlib.suppress(FileNotFoundError):
            if time.time() - half.stat().st_mtime > ABANDONED:
                half.unlink()
    return path


def remove_checkpoints(folder: Path) -> None:
    """Remove them all, notes first: a kill in between leaves none that counts, or older ones that do."""
    for old in [*sorted(folder.glob("step-*.json")), *folder.glob("step-*"), *folder.glob(".step-*.part")]:
        old.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def load_checkpoint(
    folder: Path, runs: Sequence[Run], like: Mapping[str, Tensor] | None = None
) -> tuple[int, dict[str, Tensor]] | None:
    """The newest checkpoint, (step, state), or None where there is none. A damaged one is an error in words.

    `like`: tensors whose names, shapes and types the state must have.
    """
    found = sorted(folder.glob("step-*.json"))
    if not found:
        return None
    note = found[-1]
    mend = f"Delete {note} to resume from the checkpoint before it."
    try:
        about = read_json(note)
    except FileError as error:
        raise FileError(f"{error} Or: {mend[0].lower()}{mend[1:]}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        written = about.get("format") if isinstance(about, dict) else None
        raise FileError(f"{note} has format {written}, this version reads {FORMAT}. {mend}")
    if about.get("runs") != [run.identity for run in runs]:
        raise InputError(f"{note} belongs to another run. Give the same runs in the same order, or another directory.")
    path, step = note.with_suffix(".safetensors"), about.get("step")
    if not isinstance(step, int) or step < 0 or note.stem != f"step-{step:09}" or step > runs[0].steps:
        raise FileError(f"{note} says step {step!r}, which is not its own. {mend}")
    if checksum(path) != about.get("sha256"):
        raise FileError(f"{path} does not have the checksum it was written with. {mend}")
    state = read_tensors(path)[0]
    for name, tensor in (like or state).items():
        found = state.get(name)
        if found is None or found.shape != tensor.shape or found.dtype != tensor.dtype:
            there = "nothing" if found is None else f"{list(found.shape)}, {found.dtype}"
            raise FileError(f"{path} has {there} as {name}, not {list(tensor.shape)}, {tensor.dtype}. {mend}")
    return step, state
