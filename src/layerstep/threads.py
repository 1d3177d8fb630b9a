"""Threads for batches of small matrices: one thread per matrix, never several in one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
CPU = torch.device("cpu")
AHEAD = 64  # items that are handed in before the first is done: more than there are cores


@contextmanager
def one_thread() -> Iterator[int]:
    """Run the body with one thread inside every torch operation; yields the number there was.

    Decompositions of 40 x 40 matrices gain nothing from two threads, and lose a factor of eight when other
    programs use the cores and the two have to wait for each other.
    """
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield count
    finally:
        torch.set_num_threads(count)


@contextmanager
def pool(device: torch.device) -> Iterator[ThreadPoolExecutor]:
    """Workers for independent small problems: as many as torch would use on a CPU, one for an accelerator."""
    with one_thread() as count:
        workers = count if device.type == "cpu" else 1
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as executor:
            try:
                yield executor
            except BaseException:  # Ctrl-C among them: what runs is waited for, what has not begun is not
                executor.shutdown(wait=False, cancel_futures=True)
                raise


@contextmanager
def one_per_worker(
    work: Callable[[Item], Result], items: Iterable[Item], device: torch.device = CPU
) -> Iterator[Iterator[Result]]:
    """work(item) for every item, in order, each by one worker of a pool; what waits is cancelled when left early."""
    with pool(device) as workers, closing(_in_order(workers, work, items)) as results:
        yield results


def _in_order(
    workers: Executor, work: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """The results of `Executor.map`, which would hand in every item, however many, before the first result."""
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(workers.submit(work, item))
            if len(waiting) == AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
