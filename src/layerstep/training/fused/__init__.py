"""The training step by hand: Triton kernels for CUDA, forward and backward, no autograd and no atomics.

Imported only where it is used: everything also works without Triton, on the plain path.
"""

from __future__ import annotations

import importlib.util

import torch

from layerstep.training.config import Run

ATTENTION = ("softmax", "linear", "linear-mean")  # what the kernels of attention.py have a branch for


def unsupported(run: Run, device: torch.device) -> str:
    """Why the kernels cannot train `run` on `device`; empty when they can."""
    width, tokens = run.model.width, token_count(run)
    head = width // run.model.heads
    if device.type != "cuda":
        return f"the kernels need CUDA, and the device is {device.type}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if run.model.attention not in ATTENTION:
        return f"attention = {run.model.attention!r} is not one of {', '.join(ATTENTION)}"
    if run.model.loops > 1:
        return "the kernels use every layer once, and the model has loops"
    if run.precision != "bfloat16":
        return f"the kernels compute in bfloat16, and precision is {run.precision}"
    if width & (width - 1) or not 16 <= width <= 1024:
        return f"width = {width} is not a power of two from 16 to 1024"
    if head > 256 or tokens > 256:
        return f"heads of {head} numbers on {tokens} tokens do not fit on chip (at most 256 each)"
    return ""


def token_count(run: Run) -> int:
    """Tokens of a prompt: two per point, or one per point and a dummy under an open mask."""
    points = run.task.N + 1
    return 2 * points if run.model.mask == "causal" else points + 1
