"""The bar on stderr while a verb works; nothing at all where stderr is no terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import Progress


def progress_bar() -> Progress:
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)
