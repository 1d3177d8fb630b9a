"""python -m layerstep.paper.campaign sphere heads-2 width-64 --minutes 25: train runs of the paper and publish them.

Models of one shape are trained side by side. A group that does not fit into the minutes left is not begun; one that
was interrupted goes on from its last checkpoint. Needs a GPU to be of use, and no package that training does not need.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath

from layerstep.errors import require, require_choice, require_positive
from layerstep.paper.publish import publish
from layerstep.paper.runs import LAWS, RUNS, PaperRun, together
from layerstep.training import PRESETS, Model, Run, train

SIDE_BY_SIDE = 4  # more save little: launches are then a tenth of a step
PUBLISHING = 0.4  # minutes a model, measured on one H200: probes, errors, predictions


SCHEDULES = ("paper", "fast")


def scheduled(run: PaperRun, preset: str | None) -> Run:
    """The run as listed, or its task, model and seed on the schedule of a preset."""
    if preset is None:
        return run.run
    return PRESETS[preset].override(**run.run.task.to_dict(), **run.run.model.to_dict(), seed=run.run.seed)


def groups(names: Sequence[str], preset: str | None = None) -> list[list[str]]:
    """Names in their order, those of one shape and length together, at most SIDE_BY_SIDE of them."""
    found: dict[tuple[Model, int], list[list[str]]] = {}
    order: list[list[str]] = []
    for name in names:
        run = scheduled(RUNS[name], preset)
        same = found.setdefault((run.model, run.steps), [])
        if not same or len(same[-1]) == SIDE_BY_SIDE:
            same.append([])
            order.append(same[-1])
        same[-1].append(name)
    return order


def minutes_of(group: Sequence[str], preset: str | None = None) -> float:
    """Estimated minutes on one H200 to train a group side by side and publish it."""
    runs = [RUNS[name] for name in group]
    return together(runs) * scheduled(runs[0], preset).steps / 60_000 + PUBLISHING * len(runs)


def campaign(
    names: Sequence[str],
    *,
    preset: str | None = None,
    minutes: float | None = None,
    home: FilePath = FilePath("runs"),
    results: FilePath | None = None,
    say: Callable[[str], None] = print,
) -> list[FilePath]:
    """Train and publish the named runs, in order; the folders written. Models of the three laws keep their weights."""
    for name in names:
        require_choice("name", name, tuple(RUNS))
    if preset is not None:
        require_choice("preset", preset, SCHEDULES)
    require(len(names) > 0 and len(set(names)) == len(names), "names", list(names), "at least one, each once")
    if minutes is not None:
        require_positive(minutes=minutes)
    start, written = time.monotonic(), []
    for group in groups(names, preset):
        needed, spent = minutes_of(group, preset), (time.monotonic() - start) / 60
        if minutes is not None and spent + needed > minutes:
            say(f"{', '.join(group)}: about {needed:.0f} minutes, {minutes - spent:.0f} are left: not begun")
            continue
        say(f"{', '.join(group)}: about {needed:.0f} minutes on one H200")
        runs = [scheduled(RUNS[name], preset) for name in group]
        folder = home / "-".join(run.identity for run in runs)
        train(runs, folder, resume=(folder / "runs.json").exists(), progress=True)
        for name, run in zip(group, runs, strict=True):
            place = results / name if results else None
            written.append(publish(folder / run.name, name, place, weights=name in LAWS))
            say(f"{name}: {written[-1]}")
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"runs: {', '.join(RUNS)}")
    parser.add_argument("--preset", choices=SCHEDULES, help="schedule of all of them (as listed, unless given)")
    parser.add_argument("--minutes", type=float, help="begin nothing that would take longer than this in all")
    parser.add_argument("--home", type=FilePath, default=FilePath("runs"), help="where training keeps its files")
    parser.add_argument("--results", type=FilePath, help="where results go (results/models of this clone)")
    options = vars(parser.parse_args())
    campaign(options.pop("names"), **options)


if __name__ == "__main__":
    main()
