"""layerstep runs: the runs below a directory, how far each is, and what differs between them."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layerstep.cli.output import Output, table
from layerstep.errors import FileError, as_path
from layerstep.folders.survey import Entry, differing, find_runs, flat

REASONS = 10  # failures told in words
COLUMNS = 8  # differing numbers that a table has a column for


def run(directory: Path, /, *, csv: bool = False) -> Output:
    """List the runs below a directory: state, progress, what differs between them, errors, time left.

    Args:
        directory: where `layerstep train` or `layerstep sweep` write, or a directory of such directories.
        csv: print comma-separated values with every number that differs.
    """
    return listed(directory, as_csv=csv)


def listed(directory: Path, as_csv: bool = False) -> Output:
    root = as_path("directory", directory)
    if not root.is_dir():
        raise FileError(f"{root} is not a directory. Give the one that runs were written to.")
    entries = sorted(find_runs(root), key=lambda entry: _natural(entry.name))
    if not entries:
        raise FileError(f"{root} holds no run. Give a directory that layerstep train or layerstep sweep wrote.")
    fields = differing([entry.run for entry in entries])
    data = {"runs": [entry.to_dict() for entry in entries], "differing": fields}
    return Output(data, [_csv(entries, fields)] if as_csv else _parts(entries, fields))


def _natural(name: str) -> list[Any]:
    """seed=2 before seed=10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _csv(entries: Sequence[Entry], fields: Sequence[str]) -> str:
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(["name", "state", "step", "steps", "loss", "ratio", "seconds", "left", *fields])
    for each in entries:
        values = flat(each.run)
        shown = [each.name, each.state, each.step, each.steps, each.loss, each.ratio, each.seconds, each.left]
        writer.writerow([*shown, *(values.get(name) for name in fields)])
    return made.getvalue().rstrip("\n")


def _parts(entries: Sequence[Entry], fields: Sequence[str]) -> list[Any]:
    named = [name for name in fields if all(f"{name}=" in entry.name for entry in entries)]
    shown = [name for name in fields if name.removesuffix(" values") not in named][:COLUMNS]
    rows = []
    for each in entries:
        values = flat(each.run)
        numbers = ["" if values.get(name) is None else f"{values[name]}" for name in shown]
        numbers += [each.state.partition(":")[0], f"{each.step:,} / {each.steps:,}"]
        numbers += [_number(each.loss, ".4f"), _number(each.ratio, ".3f"), _time(each.seconds), _time(each.left)]
        rows.append([each.name, *numbers])
    columns = ["run", *shown, "state", "step", "loss", "MSE / KRR", "time", "left"]
    counts = Counter(each.state.partition(":")[0] for each in entries)
    words = f"{len(entries):,} runs: " + ", ".join(f"{number:,} {state}" for state, number in counts.items())
    left = [each.left for each in entries if each.left is not None]
    words += f"; those in training need {_time(max(left))} more" if left else ""
    failed = [f"{each.name}: {each.state}" for each in entries if each.state.startswith("failed")]
    more = [f"and {len(failed) - REASONS:,} more: --csv has them all"] if len(failed) > REASONS else []
    return [table(columns, rows), *failed[:REASONS], *more, words.replace("1 runs:", "1 run:")]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
