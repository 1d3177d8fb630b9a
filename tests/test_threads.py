"""Work on several threads: in order, only so far ahead, and nothing is begun that nobody waits for."""

import time

import pytest
import torch

from layerstep.threads import AHEAD, CPU, one_per_worker, pool


def test_results_come_in_the_order_of_the_items():
    with one_per_worker(lambda item: item**2, range(3 * AHEAD)) as results:
        assert list(results) == [item**2 for item in range(3 * AHEAD)]


def test_so_many_items_that_a_list_of_them_would_fill_the_memory_are_begun_at_once():
    begun = []
    with one_per_worker(begun.append, iter(range(10**7))) as results:
        next(results)
    assert len(begun) <= 2 * AHEAD


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_what_has_not_begun_when_something_fails_is_not_begun(stop):
    begun = []

    def work(item):
        begun.append(item)
        time.sleep(0.02)

    with pytest.raises(stop), pool(CPU) as workers:
        results = workers.map(work, range(200))
        next(results)
        raise stop
    assert len(begun) < 100


def test_the_number_of_threads_is_as_before():
    count = torch.get_num_threads()
    with pool(CPU):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == count
