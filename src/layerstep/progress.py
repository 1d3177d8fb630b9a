"""Progress on stderr: a bar where rich and a terminal are; else, where lines are wanted, one every few seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

#: show(done, words): how much of the total is done, None where nobody can know it, and what is being done.
Show = Callable[..., None]
EVERY = 10.0  # seconds between plain lines


@contextlib.contextmanager
def showing(
    total: float | None = 1.0, words: str = "", *, start: float = 0, lines: bool = False, wanted: bool = True
) -> Iterator[Show]:
    """Yield show(done, words). `total` is 1 for a fraction, a number of steps, or None for work of unknown length."""
    if not wanted or not sys.stderr.isatty():
        yield _lines(total or 1, start) if wanted and lines else lambda done=None, words="": None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:  # a GPU box has what training needs
        yield _lines(total or 1, start)
        return
    counts = [MofNCompleteColumn()] if total and total > 1 else []
    columns = [BarColumn(), *counts, TimeRemainingColumn(), TextColumn("{task.description}")]
    with Progress(*columns, console=Console(stderr=True), transient=total is None or total <= 1) as bar:
        task = bar.add_task(words, total=total, completed=start)  # type: ignore[arg-type]

        def show(done: float | None = None, words: str | None = None) -> None:
            bar.update(task, completed=done, description=words)

        yield show


def _lines(total: float, start: float) -> Show:
    began = time.monotonic()
    last = [began]

    def show(done: float | None = None, words: str = "") -> None:
        now = time.monotonic()
        if done is None or (now - last[0] < EVERY and done < total):
            return
        last[0] = now
        left = (now - began) / max(total / 1e6, done - start) * (total - done)
        share = f"{done:>9,}/{total:,}" if total > 1 else f"{done:>9.0%}"
        print(f"{share}  {words}  {_clock(left)} left", file=sys.stderr, flush=True)

    return show


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
