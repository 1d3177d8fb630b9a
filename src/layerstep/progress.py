"""Progress on stderr: a bar where rich and a terminal are; else, where lines are wanted, one every few seconds.

A call in Python that nobody asked for progress tells it in one line, in a terminal or a notebook, after three seconds.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

#: show(done, words): how much of the total is done, None where nobody can know it, and what is being done.
Show = Callable[..., None]
EVERY = 10.0  # seconds between plain lines
PATIENCE = 3.0  # seconds that nobody minds


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


@contextlib.contextmanager
def unasked(what: str) -> Iterator[Show]:
    """Yield show(done, words): one line, written over, once a terminal or a notebook has waited for `PATIENCE`."""
    if not _somebody_looks():
        yield lambda done=None, words="": None
        return
    began, last, shown = time.monotonic(), 0.0, 0

    def show(done: float | None = None, words: str = "") -> None:
        nonlocal last, shown
        now = time.monotonic() - began
        if not done or now < PATIENCE or now - last < 0.5:
            return
        line = f"{done:4.0%}  {words or what}  {_clock(now / done * (1 - done))} left"
        print("\r" + line.ljust(shown), end="", file=sys.stderr, flush=True)
        last, shown = now, len(line)

    try:
        yield show
    finally:
        if shown:
            print("\r" + " " * shown + "\r", end="", file=sys.stderr, flush=True)


def _somebody_looks() -> bool:
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def _lines(total: float, start: float) -> Show:
    began = time.monotonic()
    last = [began]

    def show(done: float | None = None, words: str = "") -> None:
        now = time.monotonic()
        if done is None or (now - last[0] < EVERY and done < total):
            return
        last[0] = now
        share = f"{done:>9,}/{total:,}" if total > 1 else f"{done:>9.0%}"
        left = f"  {_clock((now - began) / (done - start) * (total - done))} left" if done > start else ""
        print(f"{share}  {words}{left}", file=sys.stderr, flush=True)

    return show


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
