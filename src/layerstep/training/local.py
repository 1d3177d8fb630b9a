"""A sweep on this machine's one device, in this process: stacks that go round-robin, each followed by `then`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from layerstep.errors import InputError, LayerstepError, in_words
from layerstep.training.engine import STREAM_SLICES
from layerstep.training.interruption import signals_wait
from layerstep.training.loop import training
from layerstep.training.planning import Unit
from layerstep.training.round_robin import run_round_robin
from layerstep.training.unit import Then, afterwards, outcome_of

TOGETHER = 6  # units of other shapes at the same time on a GPU: more were not measured


def train_units(
    units: Sequence[Unit], then: Then | None, look: Callable[[], None], minutes: float | None, **options: Any
) -> dict[str, tuple[str, Any]]:
    """State and result of `then` by identity; a unit that time or a signal stopped is not among them.

    Ctrl-C, SIGTERM and SIGUSR2 write a checkpoint of each first, and are raised again then.
    """
    device = torch.device(options.get("device") or ("cuda" if torch.cuda.is_available() else "cpu"))
    together = TOGETHER if device.type == "cuda" else 1
    slices: dict[str, Any] = {"stream_slices": 1 if len(units) > 1 else STREAM_SLICES}
    until = None if minutes is None else time.monotonic() + 60 * minutes
    ended: set[int] = set()
    states: dict[str, tuple[str, Any]] = {}
    after: list[Future[None]] = []

    def on_end(index: int, error: LayerstepError | None) -> None:
        ended.add(index)
        after.append(beside.submit(finish, units[index], error))

    def finish(unit: Unit, error: LayerstepError | None) -> None:
        for run, place in zip(unit.runs, unit.places, strict=True):
            outcome = outcome_of(run, place, unit.folder)
            if outcome.state == "waiting" and error is not None:
                states[run.identity] = (f"failed: {error}", None)
                continue
            outcome = outcome if then is None else afterwards(then, outcome)
            states[run.identity] = (outcome.state, outcome.result)

    def may_go(index: int) -> bool:
        return index in [i for i in range(len(units)) if i not in ended][:together]

    def log(record: Mapping[str, Any]) -> None:
        look()

    with signals_wait(others=True) as arrived:

        def time_is_up() -> bool:
            return bool(arrived) or (until is not None and time.monotonic() >= until)

        with ThreadPoolExecutor(1) as beside:
            trainings = []
            for unit in units:
                runs = unit.runs if unit.names else unit.runs[0]
                told = {"names": unit.names or None, "on_log": log, **slices, **options}
                trainings.append(_in_words(training(runs, unit.folder, **told)))
            run_round_robin(trainings, on_end, may_go=may_go, time_is_up=time_is_up)
            for future in after:
                future.result()
    for number in arrived:
        signal.raise_signal(number)
    return states


def _in_words(trained: Generator[None, None, Any]) -> Generator[None, None, Any]:
    """Whatever ends a training ends that one alone."""
    try:
        return (yield from trained)
    except (LayerstepError, InputError):
        raise
    except Exception as error:
        raise LayerstepError(f"{type(error).__name__}: {in_words(error)}") from error
