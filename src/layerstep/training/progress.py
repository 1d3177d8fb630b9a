"""Progress on stderr: a bar where rich and a terminal are, else a line every few seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Show = Callable[[int, str], None]
EVERY = 10.0  # seconds between plain lines


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextlib.contextmanager
def showing(total: int, start: int, wanted: bool) -> Iterator[Show]:
    """Yield show(step, words)."""
    if not wanted:
        yield lambda step, words: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        Console = None
    if Console is None or not sys.stderr.isatty():
        yield _lines(total, start)
        return
    columns = [BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}")]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, completed=start)
        yield lambda step, words: bar.update(task, completed=step, description=words)


def _lines(total: int, start: int) -> Show:
    began = time.monotonic()
    last = [began]

    def show(step: int, words: str) -> None:
        now = time.monotonic()
        if now - last[0] < EVERY and step < total:
            return
        last[0] = now
        left = (now - began) / max(1, step - start) * (total - step)
        print(f"{step:>9,}/{total:,}  {words}  {clock(left)} left", file=sys.stderr, flush=True)

    return show
