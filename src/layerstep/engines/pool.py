"""Anything with submit(function, argument) whose futures have done() and result(): pools, Dask, Parsl, submitit."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from typing import Any

from layerstep.errors import LayerstepError

Function = Callable[[str], dict[str, Any]]


class Engine:
    """An executor, and what the loop that drives it has to know.

    slots: units that run at one time, None where nobody knows. at_once: units that may be handed over at one time.
    """

    name = "executor"
    keeps_jobs = False  # when the driver dies
    every = 3.0  # seconds between looks at what the units have written
    mine = False  # whether this engine made the executor
    dies_as_one = False  # whether the death of a worker ends what all others are doing

    def __init__(self, executor: Any, *, gpus: int | None = None, threads: int | None = None) -> None:
        self.executor, self.gpus, self.threads = executor, gpus, threads or 1
        workers = getattr(executor, "_max_workers", None)
        self.slots = workers if isinstance(workers, int) else None
        self.at_once: float = float("inf")
        if isinstance(executor, ProcessPoolExecutor) and self.slots:
            self.dies_as_one, self.at_once = True, 2 * self.slots  # the second half waits, so that no worker does
        if type(executor).__module__.startswith("submitit."):  # on this machine: it has no queue, all would run
            self.slots = max(1, (os.cpu_count() or 1) // self.threads)
            self.at_once = self.slots

    def submit(self, function: Function, arguments: Sequence[str]) -> list[Any]:
        """A future for each."""
        futures = []
        for argument in arguments:
            try:
                futures.append(self.executor.submit(function, argument))
            except BrokenExecutor:  # since the last look
                self.recover()
                futures.append(self.executor.submit(function, argument))
        return futures

    def job_of(self, future: Any) -> str | None:
        """What finds the future again when the driver has died."""
        return None

    def attach(self, job: str) -> Any:
        """The future of a job that an earlier driver submitted, None where it is not known any more."""
        return None

    def refresh(self) -> None:
        """Ask the engine how its jobs are; called every few seconds."""

    def recover(self) -> None:
        """A worker's death breaks a ProcessPoolExecutor for good: go on with another of its kind."""
        if not getattr(self.executor, "_broken", False):
            return
        old = self.executor
        names = ("_max_workers", "_mp_context", "_initializer", "_initargs")
        if not isinstance(old, Executor) or not all(hasattr(old, name) for name in names):
            raise LayerstepError("the executor lost its workers. Make another one and call sweep again: it goes on.")
        old.shutdown(wait=False, cancel_futures=True)
        workers, context, initializer, arguments = (getattr(old, name) for name in names)
        self.executor = type(old)(workers, mp_context=context, initializer=initializer, initargs=arguments)  # type: ignore[call-arg]
        self.mine = True

    def close(self, wait: bool = True) -> None:
        """Let go of what this engine made itself."""
        if self.mine:
            self.executor.shutdown(wait=wait, cancel_futures=not wait)
