"""train(run, out): from a value to a directory of weights, log and checkpoints. Stopped anywhere, it can go on."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerstep.errors import (
    FileError,
    InputError,
    LayerstepError,
    as_device,
    as_float,
    as_path,
    quoted,
    require,
    require_callable,
    require_choice,
)
from layerstep.files import locked, provenance, read_json, write_json, write_text
from layerstep.progress import showing
from layerstep.training.checkpoint import load_checkpoint, save_checkpoint
from layerstep.training.config import Run
from layerstep.training.engine import STREAM_SLICES, Engine
from layerstep.training.gpt import GPT
from layerstep.training.pretrained import CONFIG
from layerstep.training.schedule import active_points, learning_rate
from layerstep.training.stack import require_fits, require_stackable

RUNS, LOG, CHECKPOINTS, SNAPSHOTS, LOCK = "runs.json", "log.jsonl", "checkpoints", "snapshots", ".lock"
Record = dict[str, Any]


class Diverged(LayerstepError, ArithmeticError):
    """The loss is no longer a number."""


def train(
    run: Run | Sequence[Run],
    out: str | os.PathLike,
    *,
    device: str | torch.device | None = None,
    resume: bool | str = "auto",
    checkpoint_seconds: float = 60.0,
    snapshots: Sequence[float] = (0.12, 0.3, 0.6),
    on_log: Callable[[Record], None] | None = None,
    progress: bool = False,
    fused: bool | None = None,
    stream_slices: int = STREAM_SLICES,
) -> Any:
    """Train `run` and write config.json, model.safetensors, log.jsonl and checkpoints to the directory `out`.

    The result is a GPT. A list of runs of one shape is trained as a stack, each model in a directory of its own
    inside `out`; the result is then a list of GPT. Where one diverges, the others go on to their end and are saved
    before that is raised.

    The same call again goes on from the last checkpoint, to the very bits an uninterrupted run has on the same
    machine, and finds a finished run done. resume=True insists on something to go on from, resume=False on nothing.
    Ctrl-C and SIGTERM write a checkpoint first; a second one does not wait for the chunk of steps to end.

    `snapshots` are the fractions of training at which the weights are kept too. A tracker is a function: `on_log` is
    called with every record of the log. `fused` asks for the hand-written kernels or refuses them (None: where they
    fit); `stream_slices` of them fill each other's gaps (see Engine).
    """
    options = {"device": device, "resume": resume, "checkpoint_seconds": checkpoint_seconds, "snapshots": snapshots}
    options |= {"on_log": on_log, "progress": progress, "fused": fused, "stream_slices": stream_slices}
    steps, result = training(run, out, **options), None
    with _signals_wait() as arrived:
        try:
            while not arrived:
                next(steps)
        except StopIteration as end:
            result = end.value
        steps.close()
    for number in arrived:
        signal.raise_signal(number)
    return result


def training(
    run: Run | Sequence[Run],
    out: str | os.PathLike,
    *,
    device: str | torch.device | None = None,
    resume: bool | str = "auto",
    checkpoint_seconds: float = 60.0,
    snapshots: Sequence[float] = (0.12, 0.3, 0.6),
    on_log: Callable[[Record], None] | None = None,
    progress: bool = False,
    fused: bool | None = None,
    stream_slices: int = STREAM_SLICES,
) -> Generator[None, None, Any]:
    """`train`, stopping after every chunk of steps so that several can advance together; closed early it saves."""
    alone = isinstance(run, Run)
    require(alone or _are_runs(run), "run", quoted(run), "a Run or a list of them", "Such as ls.PRESETS['tiny'].")
    runs = [run] if isinstance(run, Run) else list(run)
    require_stackable(runs)
    require(
        as_float(checkpoint_seconds) >= 0, "checkpoint_seconds", quoted(checkpoint_seconds), "a number of at least 0"
    )
    fractions = isinstance(snapshots, Iterable) and all(0 < as_float(f) < 1 for f in snapshots)
    require(fractions, "snapshots", quoted(snapshots), "a list of fractions between 0 and 1")
    require_choice("resume", resume, ("auto", True, False))
    require_callable("on_log", print if on_log is None else on_log, "a function of a record of the log")
    where, folder = as_device(device), as_path("out", out)
    folders = [folder] if alone else [folder / each.name for each in runs]
    found = _found(folder, runs, resume)
    models = _finished(runs, folders) if found else None
    if models is None:
        require_fits(runs, where)
        with locked(folder / LOCK, f"{folder} is in use by another process. Wait for it, or choose another directory."):
            _claim(folder, runs, where, _found(folder, runs, resume))  # asked again: another may have been faster
            with torch.cuda.device(where) if where.type == "cuda" else contextlib.nullcontext():
                engine = Engine(runs, where, fused, stream_slices)
                checkpoint = load_checkpoint(folder / CHECKPOINTS, runs, engine.state)
                if checkpoint is not None:
                    engine.restore(checkpoint[1], checkpoint[0])
                yield from _Loop(engine, folder, folders, checkpoint_seconds, snapshots, on_log).run(progress)
        models = [engine.gpt(s) for s in range(len(runs))]
    return models[0] if alone else models


def _are_runs(runs: object) -> bool:
    return isinstance(runs, Sequence) and all(isinstance(each, Run) for each in runs)


def _found(folder: Path, runs: list[Run], resume: bool | str) -> bool:
    """Whether these runs were begun in `folder`; an InputError where it is somebody else's, or not what `resume` says.

    Nothing is written.
    """
    about = folder / RUNS
    if about.exists():
        known = read_json(about)
        if not isinstance(known, dict) or known.get("identities") != [run.identity for run in runs]:
            raise InputError(f"out = {folder}: holds another run ({RUNS} there). Choose another directory.")
        if resume is False:
            raise InputError(f"out = {folder}: this run was started there. Pass resume, or choose another directory.")
        return True
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out = {folder}: is a file. Choose a directory.")
    if folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise InputError(f"out = {folder}: is not empty and holds no run. Choose another directory.")
    if resume is True:
        raise InputError(f"out = {folder}: there is nothing to resume. Leave out resume, or choose another directory.")
    return False


def _finished(runs: list[Run], folders: list[Path]) -> list[GPT] | None:
    """The models of runs that came to their end; None where one is missing or damaged."""
    try:
        for run, folder in zip(runs, folders, strict=True):
            about = read_json(folder / CONFIG)["about"]
            if about["step"] != run.steps or Run.from_dict(about["run"]).identity != run.identity:
                return None
        return [GPT.from_pretrained(folder, dtype=run.dtype) for run, folder in zip(runs, folders, strict=True)]
    except (LayerstepError, TypeError, KeyError):
        return None


def _claim(folder: Path, runs: list[Run], device: torch.device, begun: bool) -> None:
    """Make `folder` the place of these runs; where they were begun, add this machine to those they went on upon."""
    here = provenance(str(device))
    about = {"identities": [run.identity for run in runs], "runs": [run.to_dict() for run in runs], "provenance": here}
    if begun:
        about = read_json(folder / RUNS)
        about["resumed"] = [*about.get("resumed", []), here]
    write_json(folder / RUNS, about)


@contextlib.contextmanager
def _signals_wait() -> Iterator[list[int]]:
    """Yield a list: the first Ctrl-C or SIGTERM is put there and interrupts nothing, the second acts as ever.

    Only the main thread may handle signals, and a program that handles or ignores them in its own way keeps that.
    """
    arrived: list[int] = []
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if threading.current_thread() is not threading.main_thread():
        usual = {}
    ours = [number for number, handler in usual.items() if signal.getsignal(number) is handler]

    def restore() -> None:
        for number in ours:
            signal.signal(number, usual[number])

    def first(number: int, _: Any) -> None:
        restore()
        arrived.append(number)

    for number in ours:
        signal.signal(number, first)
    try:
        yield arrived
    finally:
        restore()


class _Loop:
    """Advance, log, save. The losses are read a few chunks late, so the device never waits for the host."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        folders: list[Path],
        checkpoint_seconds: float,
        snapshots: Sequence[float],
        on_log: Callable[[Record], None] | None,
    ) -> None:
        self.engine, self.folder, self.folders, self.on_log = engine, folder, folders, on_log
        self.checkpoint_seconds = checkpoint_seconds
        self.total = engine.runs[0].steps
        self.snapshots = sorted({max(1, round(f * self.total)) for f in snapshots})
        self.pending: deque[tuple[int, int, Tensor, Any]] = deque()
        lost = (~torch.isfinite(engine.weights).all(1)).nonzero().flatten().tolist()  # before this run was resumed
        self.diverged = {i: f"the weights of run {i} are not numbers: it has diverged." for i in lost}
        self.seconds = self._trim_log()
        self.began = time.monotonic() - self.seconds
        self.words = ""

    def run(self, progress: bool) -> Iterator[None]:
        saved = time.monotonic()
        with showing(self.total, start=self.engine.step, lines=True, wanted=progress) as show:
            while self.engine.step < self.total:
                stop = min([s for s in self.snapshots if s > self.engine.step] + [self.total])
                before = self.engine.step
                losses = self.engine.advance(stop - before)
                self._later(before, losses)
                while len(self.pending) > 2:
                    self._record()
                if self.engine.step < self.total:
                    show(self.engine.step, self.words)
                if self.engine.step in self.snapshots:
                    self._flush()
                    self._save_models(SNAPSHOTS, f"step-{self.engine.step:09}")
                if self.engine.step < self.total and time.monotonic() - saved >= self.checkpoint_seconds:
                    self._checkpoint()
                    saved = time.monotonic()
                try:
                    yield
                except GeneratorExit:
                    self._checkpoint()
                    raise
            self._flush()
            show(self.engine.step, self.words)
            self._checkpoint()
            self._save_models()
        if self.diverged:
            raise Diverged(" ".join(self.diverged.values()) + " The other models are whole.")

    def _later(self, before: int, losses: Tensor) -> None:
        """Start copying losses to the host, and remember to read them."""
        if losses.device.type != "cuda":
            self.pending.append((before, self.engine.step, losses, None))
            return
        host = torch.empty(losses.shape, dtype=losses.dtype, pin_memory=True)
        host.copy_(losses, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self.pending.append((before, self.engine.step, host, arrived))

    def _record(self) -> None:
        """Write the oldest pending losses to the log: means over the steps they belong to."""
        before, step, losses, arrived = self.pending.popleft()
        if arrived is not None:
            arrived.synchronize()
        loss, last = losses.double().mean(0).unbind(-1)
        runs = self.engine.runs
        record = {
            "step": step,
            "loss": loss.tolist(),
            "last": last.tolist(),
            "lr": [learning_rate(run, step - 1) for run in runs],
            "points": [active_points(run, step - 1) for run in runs],
            "seconds": round(time.monotonic() - self.began, 3),
        }
        for i, value in enumerate(record["loss"]):
            if not math.isfinite(value):
                words = f"the loss of run {i} is {value} between steps {before} and {step}. "
                words += f"Lower lr (now {runs[i].lr:g}) or lengthen warmup; earlier checkpoints are unharmed."
                self.diverged.setdefault(i, words)
                record["loss"][i] = record["last"][i] = None
        if len(self.diverged) == len(runs):
            raise Diverged(self.diverged[0])
        self._write(record)
        self.words = "loss " + " ".join("nan" if v is None else f"{v:.4f}" for v in record["loss"])
        self.words += f"  lr {record['lr'][0]:.2e}"
        if self.on_log:
            self.on_log(record)

    def _flush(self) -> None:
        while self.pending:
            self._record()

    def _checkpoint(self) -> None:
        self._flush()
        save_checkpoint(self.folder / CHECKPOINTS, self.engine.runs, self.engine.step, self.engine.state)

    def _save_models(self, *inside: str) -> None:
        for s, (run, folder) in enumerate(zip(self.engine.runs, self.folders, strict=True)):
            if s in self.diverged:
                continue
            about = {"run": run.to_dict(), "step": self.engine.step, "provenance": provenance(str(self.engine.device))}
            self.engine.gpt(s).save_pretrained(folder.joinpath(*inside), about=about)

    def _trim_log(self) -> float:
        """Drop log records that a resumed run will write again; return the seconds spent so far."""
        path = self.folder / LOG
        if not path.exists():
            return 0.0
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise FileError(f"cannot read {path}: {error.strerror}. Move it away, then resume.") from error
        kept = []
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, KeyError):  # no record: a line that a kill cut short
                record = json.loads(line)
                if record["step"] <= self.engine.step and record["seconds"] >= 0:
                    kept.append(record)
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
        return kept[-1]["seconds"] if kept else 0.0

    def _write(self, record: Record) -> None:
        path = self.folder / LOG
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise FileError(f"cannot write {path}: {error.strerror}. Free some space, then resume.") from error
