"""A unit of a sweep: runs trained as one stack on one device, by whichever process an engine gives it to.

Called any number of times it ends in the same bits: it looks what is done, waits for another at work, goes on from
the last checkpoint. What it is told is JSON and, where the user has functions of his own, those by cloudpickle.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import layerstep
from layerstep.errors import FileError, InputError, LayerstepError, as_device, in_words
from layerstep.files import InUseError, as_json, locked, source_digest, write_text
from layerstep.folders.survey import SWEEP, failure_of, is_saved
from layerstep.reprs import brief
from layerstep.training.config import Run
from layerstep.training.functions import functions_of, name_of, packed, register, unpacked
from layerstep.training.interruption import run_to_end
from layerstep.training.loop import Diverged, training

AFTER = "then.json"
NOT_SHARED = 60.0  # seconds that a network disk may take to show a file
CODE = ("tasks", "training")


@dataclass(frozen=True)
class Outcome:
    """A run of a sweep: where it is, and done, waiting, training, or failed: and why. result: of `then`."""

    run: Run
    folder: Path
    state: str
    result: Any = None

    __repr__ = brief

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """What evaluation.json says: the errors beside exact kernel ridge regression."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return json.loads((self.folder / "evaluation.json").read_text())["evaluation"]
        return None


Then = Callable[[Outcome], Any]


def order(
    out: Path,
    unit: Path,
    runs: Sequence[Run],
    names: Sequence[str],
    *,
    sweep: str,
    then: Then | None,
    threads: int,
    **options: Any,
) -> str:
    """What a worker is told, as JSON."""
    functions = functions_of(runs)
    if then is not None:
        functions["then"] = then
    told = {"out": str(out.absolute()), "unit": os.path.relpath(unit, out), "runs": [run.to_dict() for run in runs]}
    told |= {"names": list(names), "sweep": sweep, "threads": threads, "options": options, "code": code_here()}
    return json.dumps(told | {"functions": packed(functions)})


def code_here() -> dict[str, str]:
    return {"layerstep": layerstep.__version__, "source": source_digest(CODE)}


def train_unit(text: str) -> dict[str, Any]:
    """Do what `order` says. The states of its runs by identity, or "refused", "busy" or "error" with words."""
    _end_with_the_parent()
    result = _train(text)
    _end_with_the_parent()
    return result


def _end_with_the_parent() -> None:
    """A worker of a ProcessPoolExecutor whose process was killed would wait for it for ever."""
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None or os.name != "posix":
        return
    try:
        os.kill(parent.pid, 0)  # asks; its pipe may be open still in a worker beside this one
    except OSError:
        os._exit(1)


def _train(text: str) -> dict[str, Any]:
    told = json.loads(text)
    out = Path(told["out"])
    try:
        if told["code"] != code_here():
            here = f"{code_here()['layerstep']}, source {code_here()['source']}, in {Path(layerstep.__file__).parent}"
            return _refused(f"{platform.node()} has another layerstep ({here}). Install the same one everywhere.")
        if not _shares(out, told["sweep"]):
            words = (
                f"{out} is not the sweep's directory on {platform.node()}: put it on a disk that all machines share."
            )
            return _refused(words)
        torch.set_num_threads(told["threads"])
        functions = unpacked(told["functions"])
        register(functions)
        runs = [Run.from_dict(values) for values in told["runs"]]
        unit, names, options = Path(os.path.normpath(out / told["unit"])), told["names"], told["options"]
        with device_of_its_own(out, options.pop("device", None)) as device:
            trained = training(runs if names else runs[0], unit, device=device, names=names or None, **options)
            with contextlib.suppress(Diverged):  # failed.json has the words
                _, arrived = run_to_end(trained, others=True)
                _obey(arrived)
            places = [Path(os.path.normpath(unit / name)) for name in names] or [unit]
            outcomes = [outcome_of(run, place, unit) for run, place in zip(runs, places, strict=True)]
            if "then" in functions:
                outcomes = [afterwards(functions["then"], outcome) for outcome in outcomes]
    except InUseError as error:
        return {"busy": str(error)}
    except InputError as error:
        return _refused(str(error))
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return {
            "error": f"{type(error).__name__ + ': ' if not isinstance(error, LayerstepError) else ''}{in_words(error)}"
        }
    return {"states": {outcome.run.identity: [outcome.state, outcome.result] for outcome in outcomes}}


def _refused(words: str) -> dict[str, Any]:
    """What no second try would mend."""
    return {"refused": words}


def _obey(signals: Sequence[int]) -> None:
    """The engine's own handler has its turn now that a checkpoint is written; where it lets go on, this ends."""
    for number in signals:
        signal.raise_signal(number)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def outcome_of(run: Run, place: Path, unit: Path) -> Outcome:
    """What the directory says of a run that was trained."""
    if is_saved(place, run.identity, run.to_dict()):
        return Outcome(run, place, "done")
    words = failure_of(unit, run.identity)
    return Outcome(run, place, f"failed: {words}" if words else "waiting")


def afterwards(then: Then, outcome: Outcome) -> Outcome:
    """The outcome with the result of `then`, called once: then.json keeps it. What it raises fails the outcome."""
    if outcome.state != "done":
        return outcome
    if (kept := kept_result(then, outcome.run.identity, outcome.folder)) is not None:
        return Outcome(outcome.run, outcome.folder, "done", kept[0])
    try:
        result = json.loads(as_json(then(outcome)))
        about = {"function": name_of(then), "identity": outcome.run.identity, "result": result}
        write_text(outcome.folder / AFTER, as_json(about))
    except Exception as error:  # the user's
        if not isinstance(error, LayerstepError):
            traceback.print_exc(file=sys.stderr)
        return Outcome(outcome.run, outcome.folder, f"failed: then: {type(error).__name__}: {in_words(error)}")
    return Outcome(outcome.run, outcome.folder, "done", result)


def kept_result(then: Then, identity: str, place: Path) -> tuple[Any] | None:
    """What `then` returned, where it was called."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads((place / AFTER).read_text())
        if kept["function"] == name_of(then) and kept["identity"] == identity:
            return (kept["result"],)
    return None


def _shares(out: Path, sweep: str) -> bool:
    until = time.monotonic() + NOT_SHARED
    while True:
        with contextlib.suppress(OSError, ValueError):
            if json.loads((out / SWEEP).read_text()).get("id") == sweep:
                return True
        if time.monotonic() > until or not out.is_dir():
            return False
        time.sleep(1)


@contextlib.contextmanager
def device_of_its_own(out: Path, device: str | None) -> Iterator[torch.device]:
    """The device asked for, or a GPU that no other unit on this machine has, if there is one."""
    with contextlib.ExitStack() as stack:
        if device is None and torch.cuda.is_available():
            device = f"cuda:{os.getpid() % torch.cuda.device_count()}"
            for index in range(torch.cuda.device_count()):
                uuid = getattr(torch.cuda.get_device_properties(index), "uuid", index)
                with contextlib.suppress(FileError):
                    stack.enter_context(locked(out / ".gpus" / f"{platform.node()}-{uuid}", "taken"))
                    device = f"cuda:{index}"
                    break
        where = as_device(device)
        if where.type == "cuda":
            stack.enter_context(torch.cuda.device(where))
        yield where
