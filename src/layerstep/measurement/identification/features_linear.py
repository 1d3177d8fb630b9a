"""Residual features of linear tasks: numbers of (X, y) that predict what a wrong answer leaves, whatever the right one.

Each a number per (sequence, context length), most of them linear in y:
- the components of ridge regression in bands of the spectrum of K, relative to its largest eigenvalue and to its mean
  diagonal; gradient descent's first steps, with all examples, the recent, and the last;
- softmax averages of three sharpnesses; ridge regression on either half; a Gaussian and an exponential kernel's KRR;
- one pass over the examples from either end; the query times the signs of Xᵀy, and times its squares with these signs;
- all of these also times log n, and the first bands and the averages times (mean y² - its expectation);
Beside them stand the task's own `features`, for each coordinate that of the query times that of Xᵀy and times that of
the solution: they see an answer that descends in another metric, which no function of the spectrum does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.features import bands_of, half_solutions, krr_of_part, unit_size
from layerstep.solvers.system import Batch, System
from layerstep.tasks import Prompts
from layerstep.tasks.kernels import distance

TOP = (0.0, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, math.inf)  # edges in shares of the largest eigenvalue
DIAGONAL = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0, math.inf)  # in units of mean K(x, x)
SHARPNESS = (0.3, 1.0, 3.0)  # of softmax averages, in units of the standard deviation of x · z
PASSES = (0.3, 1.0)  # step sizes of one pass over the examples, in units of 1 / |x_i|²
ROUGH_RIDGES = (0.01, 0.2)  # of a kernel's KRR, in units of K(x, x)


def linear_features(prompts: Prompts, task: Any, contexts: Sequence[int]) -> Float[Tensor, "F B C"]:
    """Every feature at every context length, scaled to mean square 1."""
    prompts = prompts.to(torch.float64, "cpu")
    batch = Batch.of(prompts, task)
    away = distance(prompts.x, prompts.x)
    unit = float(away.square().mean().sqrt())
    grams = [torch.exp(-(away / unit).square() / 2), torch.exp(-away / unit)]
    middle = math.log(contexts[len(contexts) // 2])
    columns = [torch.stack(list(_features(batch.system(n), grams, math.log(n) - middle))) for n in contexts]
    return unit_size(torch.stack(columns, dim=-1))


def _features(system: System, grams: Sequence[Tensor], log_n: float) -> Iterator[Float[Tensor, "B"]]:
    values = system.plain.values
    top = values[:, -1:].clamp_min(torch.finfo(values.dtype).tiny)
    unit = float(system.batch.gram.diagonal(dim1=-2, dim2=-1).mean())
    relative = list(bands_of(system.ridged, TOP, values / top))
    bands = [*relative, *bands_of(system.ridged, DIAGONAL, values / unit)]
    ky = system.k * system.y / float(top.mean())
    recent = torch.arange(1, system.n + 1).to(system.y) / system.n
    steps = [ky.sum(-1), (ky * recent).sum(-1), (ky * recent**4).sum(-1), ky[:, -1]]
    spread = float(system.batch.gram.square().mean().sqrt())
    averages = [(torch.softmax(b * system.k / spread, dim=1) * system.y).sum(-1) for b in SHARPNESS]
    rough = [krr_of_part(system, slice(None), gram, lam) for gram, lam in zip(grams, ROUGH_RIDGES, strict=True)]
    passes = [_one_pass(system, eta, backward) for eta in PASSES for backward in (False, True)]
    query = system.batch.x[:, system.n]
    slope = torch.einsum("bnd,bn->bd", system.batch.x[:, : system.n], system.y)
    bent = [(query * slope.sign()).sum(-1), (query * slope * slope.abs()).sum(-1)]
    for feature in (*bands, *steps, *averages, *half_solutions(system), *rough, *passes, *bent):
        yield feature
        yield feature * log_n
    power = system.y.square().mean(-1)
    for feature in (*relative, *averages):
        yield feature * (power - power.mean())


def _one_pass(system: System, eta: float, backward: bool) -> Float[Tensor, "B"]:
    """The prediction after one pass θ += eta x_i (y_i - x_i·θ) / |x_i|² over the examples, from either end."""
    K, k, y = (part.flip(-1) if backward else part for part in (system.K, system.k, system.y))
    K = K.flip(-2) if backward else K
    own = K.diagonal(dim1=-2, dim2=-1)
    lower = K.tril(-1) + torch.diag_embed(torch.where(own > 0, own, 1) / eta)
    w = torch.linalg.solve_triangular(lower, y.unsqueeze(-1), upper=False).squeeze(-1)
    return (k * w).sum(-1)
