"""Interventions on the labels and the order: is a layer a fixed linear map of y, does it see y, does order matter?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import InputError, LayerstepError, require
from layerstep.measurement.identification.decision import IDENTIFIED, RangeResult
from layerstep.measurement.identification.descriptions import Description
from layerstep.solvers import exact
from layerstep.tasks import Prompts, Task, Trajectory, require_task
from layerstep.tasks.posterior import cholesky

MODEL_FN = "a function from prompts to the trajectory, such as probes.path"  # what `model_fn` must be, in words
DEFECT = 0.3  # additivity defect above which a layer is not a fixed linear map of the labels


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelInterventions(Description):
    """Per layer, from running the model with other labels on the same inputs; rms over sequences and contexts.

    additivity: rms[Q(y12) - (Q(y1) + Q(y2)) / √2] / rms[P(y12) - KRR(y12)], Q = P - P(0), y12 = (y1 + y2) / √2. The √2
    keeps y12 in distribution. 0 for every solver with fixed coefficients; the nonlinear share of the squared
    distance to KRR is a² / 2. oddness: rms[(P(y) + P(-y)) / 2] / rms P. at_zero: rms P(0) in the unit of the labels.
    order: rms change of the prediction at n = N when the context is permuted, over rms[P - KRR]; NaN without n = N.
    """

    name: ClassVar[str] = "label interventions"

    layers: Float[Tensor, "L"]
    additivity: Float[Tensor, "L"]
    oddness: Float[Tensor, "L"]
    at_zero: Float[Tensor, "L"]
    order: Float[Tensor, "L"]

    def veto(self, result: RangeResult) -> RangeResult:
        """The result, its claim of a linear class withdrawn when half of the usable layers or more are not linear."""
        usable = torch.isin(self.layers, torch.tensor(result.usable, dtype=torch.float64))
        bent = int((self.additivity[usable] > DEFECT).sum())
        if result.status != IDENTIFIED or not result.linear or 2 * bent < int(usable.sum()):
            return result
        which = "half of the usable layers or more are" if len(result.usable) > 1 else "the usable layer is"
        return result.withdrawn(f"{result.solver} fits, but {which} not linear in the labels, as it is")

    def lines(self) -> Iterator[str]:
        for name in ("additivity", "oddness", "at_zero", "order"):
            yield f"{name.replace('_', ' ')}: " + " ".join(f"{value:.2f}" for value in getattr(self, name).tolist())


@torch.no_grad()
def intervene_on_labels(
    model_fn: Callable[[Prompts], Trajectory],
    prompts: Prompts,
    task: Any,
    layers: Float[Tensor, "L"],
    *,
    seed: int,
    exactly: bool = True,
) -> LabelInterventions:
    """Run the model on y1, y2, (y1 + y2) / √2, 0, -y1 and on a permuted context, with the inputs of `prompts`.

    y1 and y2 are drawn from the task and brought to the root mean square of the labels of `prompts`, their unit.
    `model_fn` gives a trajectory at the same contexts each time: all of them, or some. exactly=False: distances are to
    the last layer, where there is no exact answer.
    """
    prompts = prompts.to(torch.float64, "cpu")
    random = np.random.default_rng(seed)
    (y1, y2), expected = _labels(prompts, task, random)
    both = Prompts(prompts.x, (y1 + y2) / 2**0.5)
    unit = float((prompts.y.square().mean() / expected).sqrt()) or 1.0  # labels that are all 0 have none

    def run(x: Tensor, y: Tensor) -> Trajectory:
        try:
            path = model_fn(Prompts(x, unit * y))
        except LayerstepError:
            raise
        except Exception as error:
            raise InputError(f"model_fn: raised {type(error).__name__}: {error}. It must be {MODEL_FN}.") from error
        require(isinstance(path, Trajectory), "model_fn", f"a function that gives a {type(path).__name__}", MODEL_FN)
        within = path.B == prompts.B and int(path.contexts.max()) <= prompts.N
        require(within, "model_fn", f"{path.B} x {path.N} predictions", "one on the prompts it is given")
        keep = torch.isin(path.stages, layers)
        same = int(keep.sum()) == len(layers)
        require(same, "model_fn", f"stages {path.stages.tolist()}", "a trajectory with the same stages")
        return Trajectory(path.values[keep].to("cpu", torch.float64) / unit, layers, path.label, path.contexts)

    paths = [run(prompts.x, y) for y in (y1, y2, both.y, torch.zeros_like(y1), -y1)]
    contexts = paths[0].contexts
    p1, p2, p12, zero, odd = (path.values for path in paths)
    defect = (p12 - zero) - ((p1 - zero) + (p2 - zero)) / 2**0.5
    shuffle = torch.from_numpy(random.permutation(prompts.N))
    order = torch.cat([shuffle, torch.tensor([prompts.N])])
    away = p12 - (exact(both, task)[:, contexts - 1] if exactly else p12[-1])
    whole = contexts == prompts.N
    moved = run(prompts.x[:, order], both.y[:, order]).values[..., whole] - p12[..., whole]
    return LabelInterventions(
        layers=layers,
        additivity=_rms(defect) / _rms(away).clamp_min(1e-12),
        oddness=_rms((p1 + odd) / 2) / _rms(p1).clamp_min(1e-12),
        at_zero=_rms(zero),
        order=_rms(moved) / _rms(away[..., whole]).clamp_min(1e-12),
    )


def _labels(prompts: Prompts, task: Any, random: np.random.Generator) -> tuple[Float[Tensor, "2 B M"], Tensor]:
    """Two draws of labels of the task at these inputs, and their expected square."""
    if not isinstance(task, Task):
        require_task(task, "relabel")
        y = torch.stack([task.relabel(prompts, int(random.integers(2**31))).y for _ in range(2)]).to(prompts.y)
        return y, y.square().mean()
    K = task.gram(prompts.x, prompts.x)
    draw = torch.from_numpy(random.standard_normal((2, *prompts.y.shape, 1)))
    y = (cholesky(K, task.lam) @ draw).squeeze(-1)
    return y, K.diagonal(dim1=-2, dim2=-1).mean() + task.lam


def _rms(values: Float[Tensor, "L B N"]) -> Float[Tensor, "L"]:
    return values.square().mean(dim=(1, 2)).sqrt()
