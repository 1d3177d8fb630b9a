"""layerstep sweep sphere heads-2:fast width-64:fast --minutes 25: train runs and publish them.

NAME is trained as listed, NAME:PRESET on that preset's schedule. Models of one shape and length share their launches,
all others go round-robin on the GPU; each is published when it is done, while the rest go on. After the minutes given
all stop, and the same command goes on from there; where time is short the first group goes before the others. Needs a
GPU to be of use. `train_and_publish(["sphere"])` in Python needs no package that training does not need.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerstep.errors import LayerstepError, require, require_choice, require_positive
from layerstep.reproduction.costs import stacked_milliseconds
from layerstep.reproduction.publish import publish_run
from layerstep.reproduction.runs import RUNS
from layerstep.reproduction.settings import DISTRIBUTIONS
from layerstep.training import PRESETS, Model, Run
from layerstep.training.engine import STREAM_SLICES
from layerstep.training.loop import training
from layerstep.training.round_robin import Training, run_round_robin

STACKED = 4  # more save little: launches are then a tenth of a step
PUBLISHING = 0.4  # minutes per model, measured on one H200: probes, errors, predictions
SPARE = 1.0  # minutes that others may not use of what the first group seems not to need
CHECKPOINT_SECONDS = 300.0  # all wait while one writes
SCHEDULES = ("paper", "fast")


@dataclass(frozen=True)
class Wanted:
    """A run of the list, and the schedule it is to have."""

    name: str
    run: Run

    @staticmethod
    def read(words: str) -> Wanted:
        """NAME, or NAME:PRESET: the task, model and seed of the run on the schedule of a preset."""
        name, colon, preset = words.partition(":")
        require_choice("name", name, tuple(RUNS))
        run = RUNS[name].run
        if colon:
            require_choice("preset", preset, SCHEDULES)
            run = PRESETS[preset].override(**run.task.to_dict(), **run.model.to_dict(), seed=run.seed)
        return Wanted(name, run)


def groups(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    """In their order, those of one shape and length together, at most STACKED of them."""
    found: dict[tuple[Model, int], list[list[Wanted]]] = {}
    order: list[list[Wanted]] = []
    for each in wanted:
        same = found.setdefault((each.run.model, each.run.steps), [])
        if not same or len(same[-1]) == STACKED:
            same.append([])
            order.append(same[-1])
        same[-1].append(each)
    return order


def minutes_of(group: Sequence[Wanted]) -> float:
    """Estimated minutes on one H200 to train a group with the GPU to itself, and to publish it."""
    step = stacked_milliseconds([RUNS[each.name] for each in group])
    return step * group[0].run.steps / 60_000 + PUBLISHING * len(group)


def train_and_publish(
    names: Sequence[str],
    *,
    minutes: float | None = None,
    home: Path = Path("runs"),
    results: Path | None = None,
    say: Callable[[str], None] = print,
) -> list[Path]:
    """Train and publish the named runs; the folders written. Models of the three input distributions keep
    their weights."""
    wanted = [Wanted.read(words) for words in names]
    each_once = len({each.name for each in wanted}) == len(wanted) > 0
    require(each_once, "names", list(names), "at least one, each once")
    if minutes is not None:
        require_positive(minutes=minutes)
    found = groups(wanted)
    for group in found:
        say(f"{_words(group)}: about {minutes_of(group):.0f} minutes on an H200 of its own")
    clock, published, failed = Clock(found[0], minutes), [], []
    with ThreadPoolExecutor(1) as beside:

        def on_end(index: int, error: LayerstepError | None) -> None:
            group = found[index]
            if index == 0:
                clock.rest = 0
            if error is not None:
                failed.append(error)
            say(f"{_words(group)}: {error or f'trained after {clock.minutes:.1f} minutes'}")
            shared = [each.name for other in found for each in other if other is not group]
            for each in group:
                folder, place = _folder(home, group) / each.run.name, results / each.name if results else None
                if error is not None and not (folder / "config.json").exists():
                    continue  # this one diverged; those stacked with it may be whole
                keep = each.name in DISTRIBUTIONS
                published.append(beside.submit(publish_run, folder, each.name, place, weights=keep, shared=shared))

        stream_slices = 1 if len(found) > 1 else STREAM_SLICES
        trainings = [_training(home, group, stream_slices, clock.see if group is found[0] else None) for group in found]
        late = run_round_robin(
            trainings, on_end, may_go=lambda i: i == 0 or not clock.presses, time_is_up=lambda: clock.is_over
        )
        for index in late:
            say(f"{_words(found[index])}: stopped, time is up. The same command goes on.")
        folders = [_say(future, say) for future in published]
    if failed:
        raise failed[0]
    return folders


class Clock:
    """How much time has gone, and whether the first group needs all that is left but SPARE."""

    def __init__(self, first: Sequence[Wanted], minutes: float | None) -> None:
        self.start, self.limit = time.monotonic(), math.inf if minutes is None else minutes
        self.rest = self.steps = first[0].run.steps
        step = stacked_milliseconds([RUNS[each.name] for each in first])
        self.minutes_per_step = 1.05 * step / 60_000  # estimated, to be safe

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self.start) / 60

    @property
    def is_over(self) -> bool:
        return self.minutes >= self.limit

    @property
    def presses(self) -> bool:
        return self.rest > 0 and self.minutes + self.rest * self.minutes_per_step + SPARE > self.limit

    def see(self, record: dict[str, Any]) -> None:
        """Read the first group's log."""
        self.rest = self.steps - record["step"]


def _words(group: Sequence[Wanted]) -> str:
    return ", ".join(each.name for each in group)


def _folder(home: Path, group: Sequence[Wanted]) -> Path:
    return home / "-".join(each.run.identity for each in group)


def _training(
    home: Path, group: Sequence[Wanted], stream_slices: int, see: Callable[[dict[str, Any]], None] | None
) -> Training:
    folder = _folder(home, group)
    return training(
        [each.run for each in group],
        folder,
        resume=(folder / "runs.json").exists(),
        checkpoint_seconds=CHECKPOINT_SECONDS,
        on_log=see,
        progress=see is not None,
        stream_slices=stream_slices,
    )


def _say(future: Future[Path], say: Callable[[str], None]) -> Path:
    say(f"published: {future.result()}")
    return future.result()
