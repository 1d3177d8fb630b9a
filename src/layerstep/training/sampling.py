"""Training prompts drawn on the device, many steps per call; (seed, chunk) decides them, whatever came before."""

from __future__ import annotations

import hashlib

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.tasks import Task
from layerstep.tasks.prompts import normals
from layerstep.training.config import Run

CHUNK = 64  # steps drawn in one call; a constant, because it decides which prompts a step sees


def draw_chunk(
    run: Run, chunk: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "C B M d"], Float[Tensor, "C B M"]]:
    """x and noisy y of the steps CHUNK·chunk .. CHUNK·(chunk+1)-1 of `run`: y = L g, L Lᵀ = K + sigma² I."""
    points, d = run.task.N + 1, run.task.d
    z = _standard_normals(run.seed, chunk, (CHUNK * run.batch, points, d + 1), dtype, device)
    x, y = (t.to(device).unflatten(0, (CHUNK, run.batch)) for t in draw(run.task, z))
    return x, y


def draw(task: Task, z: Float[Tensor, "B M d1"]) -> tuple[Float[Tensor, "B M d"], Float[Tensor, "B M"]]:
    """Prompts from standard normals: the first d columns become x, the last one y."""
    x = task.draw_inputs(z[..., :-1])
    K = task.gram(x, x)
    K.diagonal(dim1=-2, dim2=-1).add_(task.lam)
    # A Run refuses a sigma too small for this to be safe: nothing to check here, so the host does not wait.
    L = torch.linalg.cholesky_ex(K, check_errors=False).L
    return x, (L @ z[..., -1:]).squeeze(-1)


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
