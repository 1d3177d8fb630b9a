"""Memory: what there is, and a sentence in place of a machine that runs out of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from layerstep.errors import InputError, as_float, in_words

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def total_memory(device: Any = "cpu") -> float:
    """Bytes that a program on this device can have at most; infinite where that is not known."""
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[1])
    there = [float("inf")]
    with contextlib.suppress(AttributeError, OSError, ValueError):  # not on Windows
        there.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    for limit in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max" is none
            there.append(float(Path(limit).read_text()))
    return min(there)


def require_memory(argument: str, value: object, needed: int, remedy: str, device: Any = "cpu") -> None:
    """Raise InputError where `needed` bytes, a lower bound, are more than there are."""
    if needed > 2**28 and needed > (there := total_memory(device)):  # less fits anywhere
        GiB = as_float(needed) / 2**30
        raise InputError(
            f"{argument} = {in_words(value)}: needs {GiB:,.3g} GiB of memory or more, "
            f"and there are {there / 2**30:,.3g}. {remedy}"
        )
