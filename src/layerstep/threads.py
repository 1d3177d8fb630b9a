"""Threads for batches of small matrices: one thread per matrix, never several in one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
CPU = torch.device("cpu")


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
            yield executor


@contextmanager
def one_per_worker(
    work: Callable[[Item], Result], items: Iterable[Item], device: torch.device = CPU
) -> Iterator[Iterator[Result]]:
    """work(item) for every item, in order, each by one worker of a pool; what waits is cancelled when left early."""
    with pool(device) as workers, closing(workers.map(work, items)) as results:  # type: ignore[type-var]
        yield results
