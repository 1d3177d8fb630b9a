"""python -m layerstep.paper.campaign sphere heads-2:fast width-64:fast --minutes 25: train runs and publish them.

NAME is trained as listed, NAME:PRESET on that preset's schedule. Models of one shape and length share their launches,
all others take turns on the GPU; each is published when it is done, while the rest go on. What does not fit into the
minutes is not begun; what was interrupted goes on from its last checkpoint. Needs a GPU to be of use, and no package
that training does not need.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path as FilePath

from layerstep.errors import LayerstepError, require, require_choice, require_positive
from layerstep.paper.publish import publish
from layerstep.paper.runs import LAWS, RUNS, together
from layerstep.training import PRESETS, Model, Run
from layerstep.training.loop import training
from layerstep.training.turns import take_turns

SIDE_BY_SIDE = 4  # more save little: launches are then a tenth of a step
PUBLISHING = 0.4  # minutes a model, measured on one H200: probes, errors, predictions
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
    """In their order, those of one shape and length together, at most SIDE_BY_SIDE of them."""
    found: dict[tuple[Model, int], list[list[Wanted]]] = {}
    order: list[list[Wanted]] = []
    for each in wanted:
        same = found.setdefault((each.run.model, each.run.steps), [])
        if not same or len(same[-1]) == SIDE_BY_SIDE:
            same.append([])
            order.append(same[-1])
        same[-1].append(each)
    return order


def minutes_of(group: Sequence[Wanted]) -> float:
    """Estimated minutes on one H200 to train a group with the GPU to itself, and to publish it."""
    return together([RUNS[each.name] for each in group]) * group[0].run.steps / 60_000 + PUBLISHING * len(group)


def campaign(
    names: Sequence[str],
    *,
    minutes: float | None = None,
    home: FilePath = FilePath("runs"),
    results: FilePath | None = None,
    say: Callable[[str], None] = print,
) -> list[FilePath]:
    """Train and publish the named runs; the folders written. Models of the three laws keep their weights."""
    wanted = [Wanted.read(words) for words in names]
    each_once = len({each.name for each in wanted}) == len(wanted) > 0
    require(each_once, "names", list(names), "at least one, each once")
    if minutes is not None:
        require_positive(minutes=minutes)
    begun: list[list[Wanted]] = []
    total = 0.0
    for group in groups(wanted):
        words, needed = ", ".join(each.name for each in group), minutes_of(group)
        if minutes is not None and total + needed > minutes:
            say(f"{words}: about {needed:.0f} minutes, {minutes - total:.0f} are left: not begun")
            continue
        say(f"{words}: about {needed:.0f} minutes on one H200")
        begun.append(group)
        total += needed
    start, published, failed = time.monotonic(), [], []
    with ThreadPoolExecutor(1) as beside:

        def done(index: int, error: LayerstepError | None) -> None:
            if error is not None:
                say(f"{', '.join(each.name for each in begun[index])}: {error}")
                failed.append(error)
                return
            shared = [each.name for group in begun for each in group if group is not begun[index]]
            for each in begun[index]:
                say(f"{each.name}: trained after {(time.monotonic() - start) / 60:.1f} minutes")
                folder = _folder(home, begun[index]) / each.run.name
                place = results / each.name if results else None
                keep = each.name in LAWS
                published.append(beside.submit(publish, folder, each.name, place, weights=keep, shared=shared))

        lanes = 1 if len(begun) > 1 else 4
        take_turns([_training(home, group, lanes, show=group is begun[0]) for group in begun], done)
        folders = [_say(future, say) for future in published]
    if failed:
        raise failed[0]
    return folders


def _folder(home: FilePath, group: Sequence[Wanted]) -> FilePath:
    return home / "-".join(each.run.identity for each in group)


def _training(home: FilePath, group: Sequence[Wanted], lanes: int, show: bool) -> Iterator[None]:
    folder = _folder(home, group)
    return training(
        [each.run for each in group],
        folder,
        resume=(folder / "runs.json").exists(),
        checkpoint_seconds=CHECKPOINT_SECONDS,
        progress=show,
        lanes=lanes,
    )


def _say(future: Future[FilePath], say: Callable[[str], None]) -> FilePath:
    say(f"published: {future.result()}")
    return future.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    presets, listed = " or ".join(SCHEDULES), ", ".join(RUNS)
    parser.add_argument("names", nargs="+", metavar="NAME[:PRESET]", help=f"preset: {presets}; runs: {listed}")
    parser.add_argument("--minutes", type=float, help="begin nothing that would take longer than this in all")
    parser.add_argument("--home", type=FilePath, default=FilePath("runs"), help="where training keeps its files")
    parser.add_argument("--results", type=FilePath, help="where results go (results/models of this clone)")
    options = vars(parser.parse_args())
    campaign(options.pop("names"), **options)


if __name__ == "__main__":
    main()
