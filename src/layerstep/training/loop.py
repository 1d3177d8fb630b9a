"""train(run, out): from a value to a directory of weights, log and checkpoints. Stopped anywhere, it can go on."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerstep.errors import (
    FileError,
    LayerstepError,
    as_device,
    as_float,
    as_path,
    quoted,
    require,
    require_callable,
    require_choice,
    require_count,
    require_flag,
)
from layerstep.files import provenance, write_json, write_text
from layerstep.folders.layout import CHECKPOINTS, FAILED, LOG, SNAPSHOTS, facts_of
from layerstep.progress import showing
from layerstep.training.checkpoint import load_checkpoint, remove_checkpoints, save_checkpoint
from layerstep.training.config import Run
from layerstep.training.directory import begun_in, claim, failures, finished_models, places, wait_for
from layerstep.training.engine import STREAM_SLICES, Engine
from layerstep.training.evaluation import evaluate_run
from layerstep.training.interruption import run_to_end
from layerstep.training.schedule import active_points, learning_rate
from layerstep.training.stack import require_fits, require_stackable

WAIT = 150.0  # seconds; network disks keep the locks of a lost machine for 90
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
    prompts: int = 2048,
    wait: float = WAIT,
) -> Any:
    """Train `run` and write config.json, model.safetensors, evaluation.json, log.jsonl to the directory `out`.

    The result is a GPT. A list of runs of one shape is trained as a stack, each model in a directory of its own
    inside `out`; the result is then a list of GPT. Where one diverges, the others go on to their end and are saved
    before that is raised; failed.json keeps the words, and the same call raises them again.

    The same call again goes on from the last checkpoint, to the very bits an uninterrupted run has on the same
    machine, and finds a finished run done. resume=True insists on something to go on from, resume=False on nothing.
    Ctrl-C, SIGTERM and SIGUSR2 write a checkpoint first; a second one does not wait for the chunk of steps to end.
    While another process has the directory this one waits, `wait` seconds at most: a disk may keep the locks of a
    lost machine for a minute or two. Checkpoints are removed when the model is saved.

    evaluation.json is the model's error beside exact kernel ridge regression on `prompts` prompts (0: none).

    `snapshots` are the fractions of training at which the weights are kept too. A tracker is a function: `on_log` is
    called with every record of the log. `fused` asks for the hand-written kernels or refuses them (None: where they
    fit); `stream_slices` of them fill each other's gaps (see Engine).
    """
    options = {"device": device, "resume": resume, "checkpoint_seconds": checkpoint_seconds, "snapshots": snapshots}
    options |= {"on_log": on_log, "progress": progress, "fused": fused, "stream_slices": stream_slices}
    options |= {"prompts": prompts, "wait": wait}
    result, arrived = run_to_end(training(run, out, **options))
    for number in arrived:
        signal.raise_signal(number)
    return result


def require_snapshots(snapshots: object) -> None:
    """Raise InputError unless these are fractions of a training."""
    fractions = isinstance(snapshots, Iterable) and all(0 < as_float(f) < 1 for f in snapshots)
    require(fractions, "snapshots", quoted(snapshots), "a list of fractions between 0 and 1")


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
    prompts: int = 2048,
    wait: float = 0.0,
    names: Sequence[str] | None = None,
) -> Generator[None, None, Any]:
    """`train`, stopping after every chunk of steps so that several can advance together; closed early it saves.

    names: directories of a stack's models inside `out`; a stack that was begun keeps those it has.
    """
    alone = isinstance(run, Run)
    require(alone or _are_runs(run), "run", quoted(run), "a Run or a list of them", "Such as ls.PRESETS['tiny'].")
    runs = [run] if isinstance(run, Run) else list(run)
    require(
        as_float(checkpoint_seconds) >= 0, "checkpoint_seconds", quoted(checkpoint_seconds), "a number of at least 0"
    )
    require_snapshots(snapshots)
    require_choice("resume", resume, ("auto", True, False))
    require_callable("on_log", print if on_log is None else on_log, "a function of a record of the log")
    require_count(0, prompts=prompts)
    require_flag(progress=progress, **({} if fused is None else {"fused": fused}))
    require(as_float(wait) >= 0, "wait", quoted(wait), "a number of seconds")
    where, folder = as_device(device), as_path("out", out)
    require_stackable(runs)
    about = begun_in(folder, runs, resume)
    models = finished_models(folder, runs, about)
    if models is None:
        require_fits(runs, where)
        with contextlib.ExitStack() as stack:
            yield from wait_for(stack, folder, wait)
            about = begun_in(folder, runs, resume)  # asked again: another may have been faster
            models = finished_models(folder, runs, about)
            if models is None:
                inside = [run.name for run in runs] if names is None else list(names)
                about = claim(folder, runs, where, about, ["."] if alone else inside)
                folders = places(folder, about, runs)
                with torch.cuda.device(where) if where.type == "cuda" else contextlib.nullcontext():
                    engine = Engine(runs, where, fused, stream_slices)
                    checkpoint = load_checkpoint(folder / CHECKPOINTS, runs, engine.state)
                    if checkpoint is not None:
                        engine.restore(checkpoint[1], checkpoint[0])
                    loop = _Loop(engine, folder, folders, checkpoint_seconds, snapshots, on_log)
                    yield from loop.run(progress)
                models = [None if s in loop.diverged else engine.gpt(s) for s in range(len(runs))]
    for run, place, model in zip(runs, places(folder, about, runs), models, strict=True):
        if model is not None and prompts:
            evaluate_run(model, run, place, B=prompts, facts=facts_of(folder, about))
    if any(model is not None for model in models):
        remove_checkpoints(folder / CHECKPOINTS)
    if lost := failures(folder, runs):
        whole = " The other models are whole." if len(lost) < len(runs) else ""
        raise Diverged(" ".join(lost.values()) + whole)
    return models[0] if alone else models


def _are_runs(runs: object) -> bool:
    return isinstance(runs, Sequence) and all(isinstance(each, Run) for each in runs)


class _Loop:
    """Advance, log, save. The losses are read a few chunks late, so the device never waits for the host."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        folders: Sequence[Path],
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
            self._write_failures()

    def _write_failures(self) -> None:
        write_json(self.folder / FAILED, {self.engine.runs[i].identity: words for i, words in self.diverged.items()})

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
            self._write_failures()
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
