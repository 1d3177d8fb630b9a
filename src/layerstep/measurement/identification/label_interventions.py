"""Interventions on the labels and the order: is a layer a fixed linear map of y, does it see y, does order matter?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require
from layerstep.solvers import exact
from layerstep.tasks import Prompts, Task, Trajectory
from layerstep.tasks.posterior import cholesky

RERUN = "a function from prompts to the path, such as probes.path"  # what `rerun` must be, in words


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelTests:
    """Per layer, from re-running the model with other labels on the same inputs; rms over sequences and contexts.

    additivity: rms[Q(y12) - (Q(y1) + Q(y2)) / √2] / rms[P(y12) - KRR(y12)], Q = P - P(0), y12 = (y1 + y2) / √2. The √2
    keeps y12 in distribution. 0 for every solver with fixed coefficients; the nonlinear share of the squared
    distance to KRR is a² / 2. oddness: rms[(P(y) + P(-y)) / 2] / rms P. at_zero: rms P(0) in the unit of the labels.
    order: rms change of the prediction at n = N when the context is permuted, over rms[P - KRR]; NaN without n = N.
    """

    layers: Float[Tensor, "L"]
    additivity: Float[Tensor, "L"]
    oddness: Float[Tensor, "L"]
    at_zero: Float[Tensor, "L"]
    order: Float[Tensor, "L"]


@torch.no_grad()
def label_tests(
    rerun: Callable[[Prompts], Trajectory], prompts: Prompts, task: Task, layers: Float[Tensor, "L"], *, seed: int
) -> LabelTests:
    """Run the model on y1, y2, (y1 + y2) / √2, 0, -y1 and on a permuted context, with the inputs of `prompts`.

    y1 and y2 are drawn from the task's law and brought to the root mean square of the labels of `prompts`, their unit.
    `rerun` gives a path at the same contexts each time: all of them, or some.
    """
    prompts = prompts.to(torch.float64, "cpu")
    random = np.random.default_rng(seed)
    K = task.gram(prompts.x, prompts.x)
    root = cholesky(K, task.lam)
    draw = torch.from_numpy(random.standard_normal((2, *prompts.y.shape, 1)))
    y1, y2 = (root @ draw).squeeze(-1)
    both = Prompts(prompts.x, (y1 + y2) / 2**0.5)
    expected = K.diagonal(dim1=-2, dim2=-1).mean() + task.lam  # E y² under the task's law
    unit = float((prompts.y.square().mean() / expected).sqrt()) or 1.0  # labels that are all 0 have none

    def run(x: Tensor, y: Tensor) -> Trajectory:
        path = rerun(Prompts(x, unit * y))
        require(isinstance(path, Trajectory), "rerun", f"a function that gives a {type(path).__name__}", RERUN)
        within = path.B == prompts.B and int(path.contexts.max()) <= prompts.N
        require(within, "rerun", f"{path.B} x {path.N} predictions", "a path on the prompts it is given")
        keep = torch.isin(path.stages, layers)
        require(
            int(keep.sum()) == len(layers), "rerun", f"stages {path.stages.tolist()}", "a path with the same stages"
        )
        return Trajectory(path.values[keep].to("cpu", torch.float64) / unit, layers, path.label, path.contexts)

    paths = [run(prompts.x, y) for y in (y1, y2, both.y, torch.zeros_like(y1), -y1)]
    contexts = paths[0].contexts
    p1, p2, p12, zero, odd = (path.values for path in paths)
    defect = (p12 - zero) - ((p1 - zero) + (p2 - zero)) / 2**0.5
    shuffle = torch.from_numpy(random.permutation(prompts.N))
    order = torch.cat([shuffle, torch.tensor([prompts.N])])
    away = p12 - exact(both, task)[:, contexts - 1]
    whole = contexts == prompts.N
    moved = run(prompts.x[:, order], both.y[:, order]).values[..., whole] - p12[..., whole]
    return LabelTests(
        layers=layers,
        additivity=_rms(defect) / _rms(away).clamp_min(1e-12),
        oddness=_rms((p1 + odd) / 2) / _rms(p1).clamp_min(1e-12),
        at_zero=_rms(zero),
        order=_rms(moved) / _rms(away[..., whole]).clamp_min(1e-12),
    )


def _rms(values: Float[Tensor, "L B N"]) -> Float[Tensor, "L"]:
    return values.square().mean(dim=(1, 2)).sqrt()
