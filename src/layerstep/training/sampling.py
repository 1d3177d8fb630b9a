"""Training prompts drawn on the device, many steps per call; (seed, chunk) decides them, whatever came before."""

from __future__ import annotations

import hashlib

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.tasks import KernelTask, sample
from layerstep.tasks.prompts import normals
from layerstep.training.config import Run
from layerstep.training.schedule import active_dims

CHUNK = 64  # steps drawn in one call; a constant, because it decides which prompts a step sees
FIRST_STEP = 2**62  # of `sample`, in training: evaluation and probes draw from others


def draw_chunk(
    run: Run, chunk: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "C B M d"], Float[Tensor, "C B M"]]:
    """x and noisy y of the steps CHUNK·chunk .. CHUNK·(chunk+1)-1 of `run`.

    A task of the user's that does not say how it is made of normals is sampled on the CPU.
    """
    task, many = run.task, CHUNK * run.batch
    if isinstance(task, KernelTask):
        z = _standard_normals(run.seed, chunk, (many, *task.normals_shape), dtype, device)
        x, y = task.draw(z, _seen(run, chunk, z))
    else:
        prompts = sample(task, many, run.seed, FIRST_STEP + chunk, dtype=dtype)
        x, y = prompts.x, prompts.y
    x, y = (t.to(device).unflatten(0, (CHUNK, run.batch)) for t in (x, y))
    return x, y


def draw(task: KernelTask, z: Float[Tensor, "B R C"]) -> tuple[Float[Tensor, "B M d"], Float[Tensor, "B M"]]:
    """Prompts from standard normals of the task's shape."""
    return task.draw(z)


def _seen(run: Run, chunk: int, like: Tensor) -> Float[Tensor, "B 1 d"] | None:
    """1 for the coordinates that each prompt of a chunk has by the curriculum; None where it has all of them."""
    dims = [active_dims(run, step) for step in range(CHUNK * chunk, CHUNK * (chunk + 1))]
    if min(dims) == run.task.d:
        return None
    seen = torch.arange(run.task.d) < torch.tensor(dims).unsqueeze(-1)
    return seen.to(like).repeat_interleave(run.batch, dim=0).unsqueeze(1)


def _standard_normals(
    seed: int, chunk: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Counter-based on every device: CUDA draws a stream of its own, all others draw the CPU's, on the CPU.

    Stream 4 is used by nothing else, so that evaluation prompts never appear in training.
    """
    if device.type != "cuda":
        return normals(seed, chunk, 4, shape).to(dtype)
    # CUDA's Philox generator keys on all 64 bits of the seed (the CPU's Mersenne Twister keeps only 32).
    key = int.from_bytes(hashlib.sha256(f"{seed},{chunk}".encode()).digest()[:8], "little", signed=True)
    generator = torch.Generator(device).manual_seed(key)
    return torch.randn(shape, generator=generator, dtype=dtype, device=device)
