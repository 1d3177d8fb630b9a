"""Residual features: generic features of (X, y) that predict what a wrong answer leaves, whatever the right one is.

76 features, each a number per (sequence, context length), most of them linear in y:
- the components of exact KRR in 7 spectral bands of D^-1/2 (K + lam I) D^-1/2, and in 5 bands at narrower and wider
  bandwidths; in 7 bands of the plain spectrum; kernel averages of four sharpnesses; KRR with a rougher kernel;
- what depends on the order of the examples: averages weighted by recency, KRR on either half, the last label;
- all but the plain bands also times log n, and the first bands and the averages times (mean y² - its expectation).
A kernel without row sums above 0, or with values below 0, has fewer: no bands of the first kind, and no averages.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require
from layerstep.measurement.identification.linear_tasks import is_linear
from layerstep.solvers.system import Batch, Spectrum, System, ridge
from layerstep.tasks import LinearRegression, Prompts
from layerstep.tasks.kernels import distance

SEVEN = (0.0, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, math.inf)  # edges in s, the spectrum of the row-sum system
FIVE = (0.0, 2e-3, 1e-2, 5e-2, 0.25, math.inf)
PLAIN = (0.0, 1e-2, 3e-2, 0.1, 0.3, 1.0, 5.0, math.inf)  # edges in the eigenvalues of K + lam I
OTHER_BANDWIDTHS = (0.75, 1.4)
SHARPNESS = (0.3, 1.0, 3.0, 9.0)
RECENT_SHARPNESS = (0.5, 2.0, 8.0)
ROUGH_RIDGES = (4.0, 100.0)  # of the exponential kernel exp(-|x - x'| / v), in units of lam


def residual_features(prompts: Prompts, task: Any, contexts: Sequence[int]) -> Float[Tensor, "F B C"]:
    """Every feature at every context length, scaled to mean square 1."""
    prompts = prompts.to(torch.float64, "cpu")
    batch = Batch.of(prompts, task)
    away = distance(prompts.x, prompts.x)
    widths = OTHER_BANDWIDTHS if hasattr(task, "v") else ()  # a kernel of the user's may have no bandwidth
    others = [Batch.of(prompts, task, ratio * task.v) for ratio in widths]
    gram = torch.exp(-away / getattr(task, "v", float(away.mean())))
    middle = math.log(contexts[len(contexts) // 2])
    columns = [
        torch.stack(list(_features(batch.system(n), [other.system(n) for other in others], gram, math.log(n) - middle)))
        for n in contexts
    ]
    features = torch.stack(columns, dim=-1)
    return unit_size(features)


def unit_size(features: Float[Tensor, "F B C"]) -> Float[Tensor, "F B C"]:
    """Features scaled to mean square 1."""
    size = features.square().mean(dim=(1, 2), keepdim=True).sqrt()
    return features / size.clamp_min(torch.finfo(features.dtype).tiny)


def _features(
    system: System, others: Sequence[System], gram: Float[Tensor, "B M M"], log_n: float
) -> Iterator[Float[Tensor, "B"]]:
    divides = all(each.batch.least_row_sum > 0 for each in (system, *others))
    weighs = system.batch.least_value >= 0
    plain = list(bands_of(system.ridged, PLAIN))
    bands = list(bands_of(system.row_sum, SEVEN)) if divides else []
    wider = [band for other in others for band in bands_of(other.row_sum, FIVE)] if divides else []
    averages = [_average(system.k**beta, system.y) for beta in SHARPNESS] if weighs else []
    position = torch.arange(1, system.n + 1).to(system.y) / system.n
    recent = [_average(position * system.k**beta, system.y) for beta in RECENT_SHARPNESS] if weighs else []
    order = [*recent, *half_solutions(system), system.k[:, -1] * system.y[:, -1]]
    rough = [krr_of_part(system, slice(None), gram, lam * system.lam) for lam in ROUGH_RIDGES]
    for feature in (*bands, *wider, *averages, *order, *rough):
        yield feature
        yield feature * log_n
    yield from plain
    power = system.y.square().mean(-1)
    for feature in (*(bands or plain), *averages):
        yield feature * (power - power.mean())


def bands_of(
    spectrum: Spectrum, edges: Sequence[float], places: Float[Tensor, "B n"] | None = None
) -> Iterator[Float[Tensor, "B"]]:
    """sum_k weight_k / value_k over the eigenvalues (or their `places`) between two edges: KRR's part there."""
    component = spectrum.weights / spectrum.values
    values = spectrum.values if places is None else places
    for low, high in itertools.pairwise(edges):
        yield (component * ((values >= low) & (values < high))).sum(-1)


def _average(weights: Float[Tensor, "B n"], y: Float[Tensor, "B n"]) -> Float[Tensor, "B"]:
    return (weights * y).sum(-1) / weights.sum(-1).clamp_min(torch.finfo(y.dtype).tiny)


def half_solutions(system: System) -> list[Float[Tensor, "B"]]:
    """Exact KRR on the first and on the last half of the examples."""
    half = (system.n + 1) // 2
    return [krr_of_part(system, part) for part in (slice(0, half), slice(system.n - half, system.n))]


def krr_of_part(
    system: System, part: slice, gram: Tensor | None = None, lam: float | None = None
) -> Float[Tensor, "B"]:
    """Exact KRR on a part of the context, with the system's kernel matrix and ridge or others."""
    gram = system.batch.gram if gram is None else gram
    K, k = gram[:, : system.n, : system.n][:, part, part], gram[:, system.n, : system.n][:, part]
    # Without a ridge K may be singular; with this one the answer is that of minimum norm to eight digits.
    least = 1e-10 * float(K.diagonal(dim1=-2, dim2=-1).mean())
    A = ridge(K, max(system.lam if lam is None else lam, least))
    w = torch.linalg.solve(A, system.y[:, part].unsqueeze(-1)).squeeze(-1)
    return (k * w).sum(-1)


def own_features(prompts: Prompts, task: Any, contexts: Sequence[int]) -> Float[Tensor, "F B C"]:
    """The task's own, each scaled to mean square 1 at every context length; those of coordinates where x · z is K."""
    prompts = prompts.to(torch.float64, "cpu")
    if is_linear(task) and not isinstance(task, LinearRegression):
        task = LinearRegression(d=prompts.d, N=prompts.N, sigma=task.sigma)
    found = task.features(prompts, contexts) if hasattr(task, "features") else torch.zeros(0, prompts.B, len(contexts))
    shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
    right = isinstance(found, Tensor) and found.ndim == 3 and found.shape[1:] == (prompts.B, len(contexts))
    words = f"[F, {prompts.B}, {len(contexts)}]: features, prompts, context lengths"
    require(right, f"{type(task).__name__}.features", shape, words)
    require(bool(found.isfinite().all()), f"{type(task).__name__}.features", "not finite", "finite numbers")
    size = found.double().square().mean(dim=1, keepdim=True).sqrt()
    return found.double() / size.clamp_min(torch.finfo(torch.float64).tiny)
