"""Launches that overlap: a kernel is placed on the chip while the one before it drains, then waits for its results."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def begin(OVERLAP: tl.constexpr):
    """First line of every kernel: wait until the kernels before are done, then let the next one be placed."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@functools.cache
def overlaps() -> bool:
    """Whether the GPU can (from Hopper on); Triton's interpreter cannot."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9


def launch(kernel: Any, grid: Sequence[int], *args: Any, **options: Any) -> None:
    """kernel[grid](*args, **options), overlapping its neighbours where the GPU can."""
    early = {"launch_pdl": True} if overlaps() else {}
    kernel[tuple(grid)](*args, OVERLAP=overlaps(), **options, **early)
