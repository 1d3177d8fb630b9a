"""The loop that hands units to an engine, hands them over again when a worker dies, and remembers jobs on disk."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerstep.engines.pool import Engine, Function
from layerstep.errors import FileError, in_words, shorten
from layerstep.files import read_json, write_json

TRIES = 3
LAST = TRIES - 1 - 1e-6  # thirds may not add up to a whole
TOGETHER = (concurrent.futures.BrokenExecutor, concurrent.futures.CancelledError)  # who died is not known
BARREN = 5  # rounds of deaths in which no unit had begun
#: How far a unit has come, by two numbers: how often it was begun, and a number that grows while it gets ahead.
Progress = tuple[float, float]
_left: dict[tuple[str, str], Any] = {}  # futures of this process that nobody waited for


@dataclass
class Work:
    """A unit: a name, and what is sent to the function that does it. tries: without progress since the last gain."""

    key: str
    argument: str
    tries: float = 0.0
    deaths: int = 0
    seen: Progress = (0.0, 0.0)
    words: str = field(default="", repr=False)


def drive(
    engine: Engine,
    function: Function,
    works: Iterable[Work],
    jobs: Path,
    *,
    on_end: Callable[[Work, dict[str, Any] | None], None],
    progress: Callable[[Work], Progress] = lambda work: (work.tries + 1, 0.0),
    look: Callable[[], None] = lambda: None,
    stopped: Callable[[], object] = lambda: False,
    wait: bool = True,
) -> None:
    """Do all the works. on_end is told the result of each, None where three tries without progress have failed.

    A result with "busy" is handed over again: another process is at it. One with "error" counts as a death. What
    engines with jobs of their own are doing is kept in the file `jobs`; a later call attaches to it.
    """
    ledger, waiting, flying, barren = _Ledger(jobs, engine.name), deque(works), {}, 0
    for work in list(waiting):
        future = _left.pop((str(jobs), work.key), None)
        job = ledger.job(work.key)
        if future is None and job is not None:
            future = engine.attach(job)
        if future is not None:
            flying[work.key] = (work, future)
            waiting.remove(work)
    pause, looked = 0.02, 0.0
    try:
        while (waiting or flying) and not stopped():
            batch = _next(engine, waiting, [work for work, _ in flying.values()])
            if batch:
                for work in batch:
                    work.seen = progress(work)
                futures = engine.submit(function, [work.argument for work in batch])
                flying |= {work.key: (work, future) for work, future in zip(batch, futures, strict=True)}
                ledger.began({work.key: engine.job_of(future) for work, future in zip(batch, futures, strict=True)})
            if not wait and not waiting:
                break
            ended = [pair for pair in flying.values() if pair[1].done()]
            for work, _ in ended:
                del flying[work.key]
            deaths, begun = _deal(ended, waiting, ledger, progress, barren >= BARREN, on_end)
            if ended:
                engine.recover()
                barren = barren + 1 if deaths and not begun and deaths == len(ended) else 0
            pause = 0.02 if ended else min(1.0, 1.5 * pause)
            if time.monotonic() - looked >= engine.every:
                looked = time.monotonic()
                engine.refresh()
                look()
            if flying and not ended:
                time.sleep(pause)
    finally:
        if wait:
            _cancel([future for _, future in flying.values()], engine)
        else:
            _left.update({(str(jobs), key): future for key, (_, future) in flying.items()})
        ledger.save()


def _next(engine: Engine, waiting: deque[Work], flying: list[Work]) -> list[Work]:
    """Those to hand over now. Where one death ends all that fly, those that died too often fly last, each alone."""
    free = int(max(0, min(len(waiting), engine.at_once - len(flying))))
    if not engine.dies_as_one:
        return [waiting.popleft() for _ in range(free)]
    others = [work for work in waiting if work.tries < LAST]
    batch = others[:free]
    if any(work.tries >= LAST for work in flying):
        batch = []
    elif not others and not flying:
        batch = list(waiting)[:1]
    for work in batch:
        waiting.remove(work)
    return batch


def _deal(
    ended: list[tuple[Work, Any]],
    waiting: deque[Work],
    ledger: _Ledger,
    progress: Callable[[Work], Progress],
    barren: bool,
    on_end: Callable[[Work, dict[str, Any] | None], None],
) -> tuple[int, int]:
    """What comes after the end of these: another try, or none. How many died, and how many of those had begun."""
    died: list[tuple[Work, bool, bool, bool]] = []
    for work, future in ended:
        result, words, together = _result(future)
        if words is not None:
            before, work.seen, work.words = work.seen, progress(work), words
            if work.seen[1] > before[1]:
                work.tries = 0.0
            died.append((work, work.seen != before or result is not None, work.seen[1] > before[1], together))
        elif result is not None and "busy" in result:
            waiting.append(work)
        else:
            if result is not None and "refused" in result:
                ledger.died(work.key, result["refused"], work.deaths, over=True)
            else:
                ledger.ended(work.key)
            on_end(work, result)
    beside = sum(1 for _, begun, _, together in died if together and begun)  # one of them died, and nobody knows which
    for work, begun, gained, together in died:
        if begun or barren:
            work.deaths += 1
            work.tries += 0.0 if gained else 1 / beside if together and begun else 1.0
        ledger.died(work.key, work.words, work.deaths, over=work.tries >= LAST + 1)
        if work.tries < LAST + 1:
            waiting.append(work)
        else:
            on_end(work, None)
    return len(died), sum(1 for _, begun, _, _ in died if begun)


def _result(future: Any) -> tuple[dict[str, Any] | None, str | None, bool]:
    """What the function returned, the words of a death, of the worker or in the result; whether others died with it."""
    try:
        result = future.result()
    except (Exception, asyncio.CancelledError, concurrent.futures.CancelledError) as error:
        lines = [line for line in str(error).splitlines() if line.strip(" -")]
        last = f": {lines[-1].strip()}" if lines else ""
        words = shorten(f"the worker died ({type(error).__name__}{last})", 400)
        return None, words, isinstance(error, TOGETHER)
    if not isinstance(result, dict):
        return None, f"the worker returned {in_words(result)}", False
    return result, result.get("error"), False


def _cancel(futures: list[Any], engine: Engine) -> None:
    """What did not begin is not begun any more; jobs of an engine that keeps them go on."""
    for future in futures:
        if not engine.keeps_jobs and hasattr(future, "cancel"):
            with contextlib.suppress(Exception):
                future.cancel()


class _Ledger:
    """jobs.json: of every unit its job, if the engine keeps jobs, and the words of its last death."""

    def __init__(self, path: Path, engine: str) -> None:
        self.path, self.engine = path, engine
        self.known: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(FileError):
            found = read_json(path)
            if isinstance(found, dict):
                self.known = {key: value for key, value in found.items() if isinstance(value, dict)}
        self.changed = False

    def job(self, key: str) -> str | None:
        about = self.known.get(key, {})
        return about.get("job") if about.get("engine") == self.engine else None

    def began(self, jobs: dict[str, str | None]) -> None:
        kept = {key: {"engine": self.engine, "job": job} for key, job in jobs.items() if job is not None}
        for key, about in kept.items():
            self.known[key] = self.known.get(key, {}) | about
        if kept:
            self.changed = True
            self.save()

    def died(self, key: str, words: str, tries: int, over: bool) -> None:
        self.known[key] = {"error": words, "tries": tries, "over": over}
        self.changed = True
        self.save()

    def ended(self, key: str) -> None:
        if self.known.pop(key, None) is not None:
            self.changed = True

    def save(self) -> None:
        if self.changed:
            write_json(self.path, self.known)
            self.changed = False
