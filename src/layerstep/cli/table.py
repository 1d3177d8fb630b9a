"""Tables of numbers on stdout."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def print_table(table: Table) -> None:
    """Print at the width that the cells need, whatever the terminal's: 0.001… is no number."""
    needed = Console(width=10_000).measure(table).maximum
    Console(width=max(needed, Console().width)).print(table)
