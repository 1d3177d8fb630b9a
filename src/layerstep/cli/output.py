"""What a verb returns, and the one place that prints it: for people, or as one line of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from layerstep.errors import LayerstepError


@dataclass(frozen=True)
class Output:
    """`data` is what --json prints; `parts`, lines and tables, are what people read. `failed`: raised after that."""

    data: Any
    parts: Sequence[str | Table]
    failed: str = ""

    def show(self, as_json: bool) -> None:
        if as_json:
            print(json.dumps(finite(self.data), allow_nan=False))
        for part in () if as_json else self.parts:
            _print_table(part) if isinstance(part, Table) else print(part)
        if self.failed:
            raise LayerstepError(self.failed)


def finite(value: Any) -> Any:
    """`value` with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, (list, tuple)) else value


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, *, words: bool = False
) -> Table:
    """The first column to the left, numbers to the right (words to the left), none of them cut. Where the terminal
    ends, the last column of words goes on in the next line."""
    made, rows = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0)), [list(row) for row in rows]
    for i, column in enumerate(columns):
        wraps = words and 0 < i == len(columns) - 1
        least = None if wraps else max([len(column), *(len(row[i]) for row in rows)])
        made.add_column(column, justify="right" if i and not words else "left", no_wrap=not wraps, min_width=least)
    for row in rows:
        made.add_row(*row)
    return made


def _print_table(made: Table) -> None:
    """Print at the width that cells need that may not wrap, whatever the terminal's: 0.001... is not a number."""
    measured = Console(width=10_000).measure(made)
    needed = measured.maximum if all(column.no_wrap for column in made.columns) else measured.minimum
    Console(width=max(needed, Console().width)).print(made)
