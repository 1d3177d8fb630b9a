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
BARREN = 5  # rounds of deaths in which no unit had begun
#: How far a unit has come, by two numbers: how often it was begun, and a number that grows while it gets ahead.
Progress = tuple[int, float]
_left: dict[tuple[str, str], Any] = {}  # futures of this process that nobody waited for


@dataclass
class Work:
    """A unit: a name, and what is sent to the function that does it."""

    key: str
    argument: str
    tries: int = 0
    seen: Progress = (0, 0.0)
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
            batch = [waiting.popleft() for _ in range(int(min(len(waiting), engine.at_once - len(flying))))]
            if batch:
                for work in batch:
                    work.seen = progress(work)
                futures = engine.submit(function, [work.argument for work in batch])
                flying |= {work.key: (work, future) for work, future in zip(batch, futures, strict=True)}
                ledger.began({work.key: engine.job_of(future) for work, future in zip(batch, futures, strict=True)})
            if not wait and not waiting:
                break
            ended = [pair for pair in flying.values() if pair[1].done()]
            deaths = begun = 0
            for work, future in ended:
                del flying[work.key]
                result, words = _result(future)
                if words is not None:
                    before, work.seen = work.seen, progress(work)
                    came, deaths = work.seen != before, deaths + 1
                    begun += came or result is not None
                    if work.seen[1] > before[1]:
                        work.tries = 0
                    elif came or result is not None or barren >= BARREN:
                        work.tries += 1
                    work.words = words
                    ledger.died(work.key, words, work.tries)
                    if work.tries < TRIES:
                        waiting.append(work)
                        continue
                    result = None
                elif result is not None and "busy" in result:
                    waiting.append(work)
                    continue
                elif result is not None and "refused" in result:
                    ledger.died(work.key, result["refused"], work.tries)
                else:
                    ledger.ended(work.key)
                on_end(work, result)
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


def _result(future: Any) -> tuple[dict[str, Any] | None, str | None]:
    """What the function returned, and the words of a death: of the worker, or in the result."""
    try:
        result = future.result()
    except (Exception, asyncio.CancelledError, concurrent.futures.CancelledError) as error:
        lines = [line for line in str(error).splitlines() if line.strip(" -")]
        last = f": {lines[-1].strip()}" if lines else ""
        return None, shorten(f"the worker died ({type(error).__name__}{last})", 400)
    if not isinstance(result, dict):
        return None, f"the worker returned {in_words(result)}"
    return result, result.get("error")


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

    def died(self, key: str, words: str, tries: int) -> None:
        self.known[key] = {"error": words, "tries": tries}
        self.changed = True
        self.save()

    def ended(self, key: str) -> None:
        if self.known.pop(key, None) is not None:
            self.changed = True

    def save(self) -> None:
        if self.changed:
            write_json(self.path, self.known)
            self.changed = False
