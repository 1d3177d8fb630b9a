"""Several trainings on one device, round-robin, chunk by chunk; on a GPU each has a stream of its own.

Models of different shapes cannot share launches, but small ones leave most of a GPU idle for others to use.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch

from layerstep.errors import LayerstepError

#: What `layerstep.training.loop.training` makes.
Training = Generator[None, None, Any]


def run_round_robin(
    trainings: Sequence[Training],
    on_end: Callable[[int, LayerstepError | None], None],
    *,
    may_go: Callable[[int], bool] = lambda index: True,
    time_is_up: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Advance every training to its end, or until time is up: then they are closed, and their indices returned.

    `on_end` is told the index of each that ended, and the error that ended it, if any: one that has diverged may say
    so only when it is closed. A training waits while it may not go; one of them must be free to go at any time.
    """
    streams = [torch.cuda.Stream() if torch.cuda.is_available() else None for _ in trainings]
    going = dict(enumerate(trainings))
    while going and not time_is_up():
        for index in [index for index in going if may_go(index)]:
            error = None
            try:
                with torch.cuda.stream(streams[index]):  # None: where we are
                    next(going[index])
                continue
            except StopIteration:
                pass
            except LayerstepError as found:  # one that diverges must not take the others with it
                error = found
            del going[index]
            on_end(index, error)
    late = []
    for index, training in going.items():
        try:
            with torch.cuda.stream(streams[index]):
                training.close()
        except LayerstepError as error:  # the others still have checkpoints to write
            on_end(index, error)
        else:
            late.append(index)
    return late
