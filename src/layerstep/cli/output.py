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


@dataclass(frozen=True)
class Output:
    """`data` is what --json prints; `parts`, lines and tables, are what people read."""

    data: Any
    parts: Sequence[str | Table]

    def show(self, as_json: bool) -> None:
        if as_json:
            print(json.dumps(finite(self.data), allow_nan=False))
            return
        for part in self.parts:
            _print_table(part) if isinstance(part, Table) else print(part)


def finite(value: Any) -> Any:
    """`value` with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, (list, tuple)) else value


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> Table:
    """The first column to the left, numbers to the right, none of them cut."""
    made = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def _print_table(made: Table) -> None:
    """Print at the width that cells need that may not wrap, whatever the terminal's: 0.001... is not a number."""
    needed = Console(width=10_000).measure(made).minimum
    Console(width=max(needed, Console().width)).print(made)
