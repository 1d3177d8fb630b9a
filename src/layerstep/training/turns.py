"""Several trainings on one device at once: in turn, chunk by chunk, on a GPU each on a stream of its own.

Models of different shapes cannot share launches, but small ones leave most of a GPU idle for others to use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch

from layerstep.errors import LayerstepError


def take_turns(trainings: Sequence[Iterator[None]], on_end: Callable[[int, LayerstepError | None], None]) -> None:
    """Advance every training to its end; `on_end` is told the index of each, and the error that ended it, if any."""
    cuda = torch.cuda.is_available()
    streams = [torch.cuda.Stream() if cuda else None for _ in trainings]
    going = dict(enumerate(trainings))
    while going:
        for index, training in list(going.items()):
            error = None
            try:
                with torch.cuda.stream(streams[index]) if cuda else contextlib.nullcontext():
                    next(training)
                continue
            except StopIteration:
                pass
            except LayerstepError as found:  # one that diverges must not take the others with it
                error = found
            del going[index]
            on_end(index, error)
