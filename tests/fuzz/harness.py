"""What both fuzzers share: a limit on time and memory, an outcome, and a count."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY = 4 * 2**30  # bytes more than the process has


class Hang(BaseException):
    """A call that took longer than its limit."""


@dataclass(frozen=True)
class Outcome:
    """passed: it got past every check and did its work. wrong: what must not happen, None where nothing is wrong."""

    passed: bool
    wrong: str | None = None
    error: BaseException | None = None

    @property
    def place(self) -> str:
        """The last lines of our own code that an exception went through."""
        frames = traceback.extract_tb(self.error.__traceback__) if self.error else []
        ours = [
            f"{frame.filename.split('/layerstep/')[-1]}:{frame.lineno}"
            for frame in frames
            if "/layerstep/" in frame.filename
        ]
        return " < ".join(ours[:-4:-1])


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """A TimeoutError after that time; where nothing hears it, as in a thread that is waited for, the process ends."""

    def over(*_: Any) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    if (stdout := sys.__stdout__) is not None:  # it shows where
        faulthandler.dump_traceback_later(6 * seconds, exit=True, file=stdout)
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def memory_limit() -> Iterator[None]:
    """Allocations fail where a fuzzed size would take the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@dataclass
class Count:
    calls: int = 0
    passed: int = 0
    wrong: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        share = self.passed / max(1, self.calls)
        return f"{self.calls:,} calls, {share:.0%} past every check, {self.wrong} wrong, {self.seconds:.0f} s"


def fuzz(
    calls: Callable[[int, Path], Iterator[tuple[str, Outcome]]],
    count: int,
    seed: int,
    seconds: float,
    say: Callable[[str], None],
) -> Count:
    """Run `count` calls; every wrong one is said once per place, with the line that shows it."""
    done, start, seen = Count(), time.monotonic(), Counter()
    with tempfile.TemporaryDirectory() as home, memory_limit():
        for (line, outcome), _ in zip(calls(seed, Path(home)), range(count), strict=False):
            if time.monotonic() - start > seconds:
                break
            done.calls += 1
            done.passed += outcome.passed
            if outcome.wrong is not None:
                done.wrong += 1
                seen[outcome.place or outcome.wrong] += 1
                if seen[outcome.place or outcome.wrong] == 1:
                    say(f"{outcome.wrong[:300]}\n    at {outcome.place}\n    {line[:1500]}")
    done.seconds = time.monotonic() - start
    for place, times in seen.most_common():
        say(f"{times} x {place}")
    return done


def main(calls: Callable[[int, Path], Iterator[tuple[str, Outcome]]]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    options = parser.parse_args()
    done = fuzz(calls, options.count, options.seed, options.seconds, say=lambda line: print(line, flush=True))
    print(done)
    few = done.calls >= 1000 and done.passed < done.calls / 2  # of a hundred calls the share varies
    sys.exit(done.wrong > 0 or few)
