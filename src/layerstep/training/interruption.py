"""Signals that wait: Ctrl-C, SIGTERM and SIGUSR2, a scheduler's warning, let training write a checkpoint first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator, Iterator
from typing import Any

#: What Python does with a signal when nobody has said otherwise. Windows has no SIGUSR2.
USUAL = {"SIGINT": signal.default_int_handler, "SIGTERM": signal.SIG_DFL, "SIGUSR2": signal.SIG_DFL}


def run_to_end(steps: Generator[None, None, Any], *, others: bool = False) -> tuple[Any, list[int]]:
    """Advance `steps` to its end, or until a signal arrives: then it is closed, which saves. The result, the signals.

    The caller raises the signals again, when all is in order. `others`: wait with signals that somebody else handles.
    """
    result = None
    with signals_wait(others) as arrived:
        try:
            while not arrived:
                next(steps)
        except StopIteration as end:
            result = end.value
        steps.close()
    return result, arrived


@contextlib.contextmanager
def signals_wait(others: bool = False) -> Iterator[list[int]]:
    """Yield a list: the first signal is put there and interrupts nothing, the second acts as ever.

    Only the main thread may handle signals. A program that ignores them, or unless `others` handles them in its own
    way, keeps that.
    """
    arrived: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        numbers = {getattr(signal, name): handler for name, handler in USUAL.items() if hasattr(signal, name)}
        there = {number: signal.getsignal(number) for number in numbers}
        foreign = {number for number, handler in there.items() if handler is not numbers[number]}
        before = {
            number: handler
            for number, handler in there.items()
            if number not in foreign or (others and handler not in (signal.SIG_IGN, None))
        }

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def first(number: int, _: Any) -> None:
        restore()
        arrived.append(number)

    for number in before:
        signal.signal(number, first)
    try:
        yield arrived
    finally:
        restore()
