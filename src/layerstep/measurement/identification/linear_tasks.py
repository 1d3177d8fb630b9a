"""Families of linear tasks: the field's solvers in weights, and what a model may do instead.

Gradient descent with a step size for every prompt, with one for all, and GD++ are one class: twelve layers of them are
too alike to tell apart (docs/linear.md). `Family.variant` names them, and a verdict says which fits best where it can.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require
from layerstep.measurement.identification.families import Family, log_steps, whole_steps
from layerstep.solvers import (
    SOLVERS,
    ConjugateGradient,
    GradientDescentInWeights,
    GradientDescentPlusPlus,
    OnlineGD,
    Preconditioned,
    RidgePath,
    Solver,
    inverse_covariance,
)
from layerstep.tasks import KernelTask, LinearRegression, Task, sample
from layerstep.tasks.kernels import KERNELS, linear

#: Inputs whose second moment has a condition number below this have no other metric to descend in.
ISOTROPIC = 4.0


def is_linear(task: Any) -> bool:
    """Whether the kernel of the task is x · z."""
    named = KERNELS.get(task.kernel) if isinstance(task, Task) else None
    return isinstance(task, LinearRegression) or named is linear


@dataclass(frozen=True, eq=False, kw_only=True)
class Scales:
    """What step sizes and ridges are measured in: of prompts, or of a sample of the task's."""

    square: float  # mean of K(x, x)
    product: float  # root mean square of K(x, z)
    top: float  # the largest eigenvalue of K + lam I over prompts, for the longest prefix
    moment: Float[Tensor, "d d"]  # second moment of the inputs

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def of(task: KernelTask) -> Scales:
        """Of 64 prompts of the task."""
        prompts = sample(task, 64, seed=0)
        gram = task.gram(prompts.x, prompts.x)
        own = gram.diagonal(dim1=-2, dim2=-1)
        M = gram.shape[-1]
        x = prompts.x.flatten(0, 1)
        return Scales(
            square=float(own.mean()),
            product=float(((gram.square().sum() - own.square().sum()) / (len(gram) * M * (M - 1))).sqrt()),
            top=float(torch.linalg.eigvalsh(gram[:, :-1, :-1])[:, -1].amax()) + task.lam,
            moment=x.T @ x / len(x),
        )

    @property
    def condition(self) -> float:
        """Of the second moment, directions without inputs left out."""
        values = torch.linalg.eigvalsh(self.moment)
        there = values[values > 1e-10 * values[-1]]
        return float(there[-1] / there[0])


def linear_families(task: Any) -> tuple[Family, ...]:
    """What the layers of a model of linear regression are compared with; step sizes are in the units of this task."""
    words = "Such as ls.LinearRegression(d=20, N=40). For other kernels the families are ls.FAMILIES."
    require(is_linear(task), "task", f"a {type(task).__name__}", "a task whose kernel is x · z", words)
    # The same for every N: what depends on it are the steps of knn and recursive.
    return _families(replace(task, N=max(task.N, 2)))


@functools.lru_cache(maxsize=32)
def _families(task: Any) -> tuple[Family, ...]:
    scales = Scales.of(task)
    many, momentum = whole_steps(40, 1e4, 60, dense=40), whole_steps(40, 2e3, 50, dense=40)
    points = range(task.N + 1)

    def family(name: str, steps: Sequence[float], solver: Solver | None = None, kind: str = "", **more: Any) -> Family:
        return Family(name=name, kind=kind or name, solver=solver or SOLVERS[name], steps=steps, **more)

    gd: dict[str, Any] = {"kind": "gd-weights"}
    plus: dict[str, Any] = {**gd, "variant": "inputs change, too (GD++)", "settings": "bandwidths"}  # it has no ridge
    one = GradientDescentInWeights(eta=1 / scales.top)
    found = [
        family("gd-weights", many, variant="a step size for every prompt and length"),
        family("gd-weights-fixed", many, variant="a step size for every prompt", **gd),
        family("gd-weights-one", many, one, variant="one step size for all prompts", **gd),
        family(
            "gd-weights-slow", many, replace(one, eta=0.25 / scales.top), variant="one step size for all prompts", **gd
        ),
        *(
            family(f"gd++ {gamma:g}", whole_steps(20, 200, 20, dense=20), GradientDescentPlusPlus(gamma=gamma), **plus)
            for gamma in (0.03, 0.1, 0.3)
        ),
        *(
            family(f"gd++ {gamma:g} {eta:g} one step size", whole_steps(20, 200, 20, dense=20), solver, **plus)
            for gamma in (0.1, 0.17, 0.25)
            for eta in (0.6, 1.0)
            for solver in [GradientDescentPlusPlus(gamma=gamma / scales.top, eta=eta / scales.top, absolute=True)]
        ),
        family("newton", [k / 4 for k in range(97)]),
        family("newton-frobenius", [k / 4 for k in range(97)], kind="newton"),
        family("gd", whole_steps(20, 1e7, 100, dense=20), kind="newton"),
        family("cg-weights", range(min(task.d, task.N) + 6), linear=False),
        family("cg", range(31), ConjugateGradient(reorthogonalize=True), linear=False),
        family("nesterov-weights", momentum),
        family("heavy-ball-weights", momentum),
        family("chebyshev-weights", momentum),
        family("kaczmarz", whole_steps(12, 60, 12, dense=12)),
        family("online-gd", log_steps(0.002, 2, 60), OnlineGD(scale=1 / scales.square), settings="own"),
        family("causal-gd", whole_steps(20, 400, 30, dense=20)),
        family("ridge", [0, *log_steps(1 / 300, 1e6, 400)], RidgePath(scale=scales.square), settings="own"),
        family("shrink", [100 * k / 60 for k in range(61)]),
        family("recursive", points),
        family("knn", points),
        family("softmax-average", [0, *log_steps(0.01, 32, 60)], settings="own"),
    ]
    place = [each.name for each in found].index("softmax-average")
    found[place] = replace(found[place], steps=tuple(t / scales.product for t in found[place].steps))  # type: ignore[union-attr]
    if scales.condition > ISOTROPIC:
        for power in (1.0, 0.5):
            P = inverse_covariance(sample(task, 64, seed=0).x, power)
            variant = f"the metric of the covariance to the power -{power:g}"
            found.append(family(f"pgd {power:g}", many, Preconditioned(P=P), kind="pgd", variant=variant))
    return tuple(found)
