"""S models of one shape in one buffer [S, P]: a parameter is a view, and a pass over all of them is one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import InputError, require
from layerstep.memory import require_memory
from layerstep.training.config import Run
from layerstep.training.gpt import BLOCK_BYTES, GPT, parameters
from layerstep.training.sampling import CHUNK

ALIGN = 1024  # the length of a row is rounded up to this, so that every model starts on an aligned address


class Slot(NamedTuple):
    """Where a parameter lies in a row."""

    start: int
    stop: int
    shape: tuple[int, ...]


class Layout:
    """The places of a GPT's parameters in a row of P numbers, in the order of `named_parameters`."""

    def __init__(self, gpt: GPT) -> None:
        self.slots: dict[str, Slot] = {}
        start = 0
        for name, parameter in gpt.named_parameters():
            self.slots[name] = Slot(start, start + parameter.numel(), tuple(parameter.shape))
            start += parameter.numel()
        self.P = -(-start // ALIGN) * ALIGN

    def view(self, buffer: Float[Tensor, "S P"], name: str) -> Float[Tensor, "S *shape"]:
        """One parameter of all models."""
        start, stop, shape = self.slots[name]
        return buffer[:, start:stop].unflatten(1, shape)

    def layers(self, buffer: Float[Tensor, "S P"], name: str) -> Float[Tensor, "S L *shape"]:
        """One parameter of every block of all models: `blocks.l.name`, l = 0..L-1, at equal distances."""
        start, stop, shape = self.slots[f"blocks.0.{name}"]
        size = self.slots["norm.weight"].start - self.slots["blocks.0.norm1.weight"].start
        L = 1 + max(int(slot.split(".")[1]) for slot in self.slots if slot.startswith("blocks."))
        stride = size // L
        flat = buffer.as_strided(
            (buffer.shape[0], L, stop - start),
            (buffer.stride(0), stride, 1),
            buffer.storage_offset() + start,
        )
        return flat.unflatten(2, shape)

    def load(self, buffer: Float[Tensor, "S P"], index: int, gpt: GPT) -> None:
        for name, parameter in gpt.named_parameters():
            self.view(buffer, name)[index].copy_(parameter.detach())

    @torch.no_grad()
    def store(self, buffer: Float[Tensor, "S P"], index: int, gpt: GPT) -> GPT:
        for name, parameter in gpt.named_parameters():
            parameter.copy_(self.view(buffer, name)[index])
        return gpt


MAY_DIFFER = "inputs, kernel, noise, seed, and the numbers of the optimizer and of the schedules"


def shared(run: Run) -> dict[str, Any]:
    """What runs of a stack have in common."""
    return {
        "model": run.model,
        "d": run.task.d,
        "N": run.task.N,
        "steps": run.steps,
        "batch": run.batch,
        "optimizer": run.optimizer,
        "precision": run.precision,
    }


def require_stackable(runs: Sequence[Run]) -> None:
    """Runs that train as a stack share what decides shapes and lengths."""
    require(len(runs) > 0, "runs", "none", "one run or more")

    for i, run in enumerate(runs):
        for name, value in shared(run).items():
            first = shared(runs[0])[name]
            if value != first:
                raise InputError(
                    f"stacked runs 0 and {i} differ in {name} ({first} and {value}). "
                    f"They may differ in {MAY_DIFFER}; train the others on their own."
                )
        if run in runs[:i]:
            raise InputError(f"stacked runs {runs.index(run)} and {i} are the same run. Change a seed.")


def needed_bytes(runs: Sequence[Run]) -> int:
    """The least that these runs hold at once."""
    run, S = runs[0], len(runs)
    size, points = (8 if run.dtype == torch.float64 else 4), run.task.N + 1
    weights = 4 * S * parameters(run.model, run.task.d, run.task.N) * size  # and gradient, and two moments
    depth = run.model.layers * run.model.loops
    kept = 14 * depth * run.batch * 2 * points * run.model.width * (size // 2)  # for the backward pass
    prompts = CHUNK * run.batch * points * (S * (run.task.d + 1) + 2 * points) * size
    return weights + kept + prompts + BLOCK_BYTES * run.model.layers


def require_fits(runs: Sequence[Run], device: torch.device) -> None:
    """Raise InputError where the least that these runs hold at once is more than the memory there is."""
    run, S = runs[0], len(runs)
    there = f"That is for {S} of it, batch {run.batch}, N = {run.task.N}."
    remedy = f"{there} Take fewer layers, a smaller width or batch, or shorter prompts."
    require_memory("model", run.model, needed_bytes(runs), remedy, device)
