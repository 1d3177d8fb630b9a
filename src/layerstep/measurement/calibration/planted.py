"""The calibration suite: planted models whose answer is known, drawn afresh by seed.

A planted model is a trajectory of up to twelve layers at the instrument's contexts. Its bandwidth or ridge, its
schedule of steps and its noise are drawn, never points of the library's grid. `truth` names the class of every layer,
None where no class of the library made it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.construction import construct
from layerstep.measurement.calibration import linear_models
from layerstep.measurement.calibration.negatives import BORDERLINE, LATER, NEGATIVE_CONTROLS
from layerstep.measurement.calibration.schedules import (
    L,
    Schedule,
    geometric,
    linear,
    power,
    random_steps,
    saturating,
    steps_of,
)
from layerstep.measurement.calibration.setting import PlantedSetting
from layerstep.measurement.identification.domains import LINEAR, domain_of
from layerstep.measurement.identification.families import FAMILIES
from layerstep.solvers import SOLVERS, Richardson, Solver
from layerstep.tasks import Prompts, Task, Trajectory


@dataclass(frozen=True, eq=False, kw_only=True)
class Planted:
    """values [L, B, C] in the order of the prompts given; group is inside, outside or borderline."""

    name: str
    group: str
    truth: tuple[str | None, ...]
    noise: str
    values: Float[Tensor, "L B C"]
    model_fn: Callable[[Prompts], Trajectory]  # the same model on other prompts
    row_sums: bool | None  # whether it divides by row sums; None where its class does not say

    @property
    def solver(self) -> str | None:
        """The right answer over all layers."""
        return self.truth[0] if len(set(self.truth)) == 1 else None


Maker = Callable[[PlantedSetting, np.random.Generator], Float[Tensor, "L B C"]]


#: name, class, solver, schedule of steps.
INSIDE: tuple[tuple[str, str, Solver, Schedule], ...] = (
    ("richardson, linear", "richardson", SOLVERS["richardson"], linear(6, 14)),
    ("richardson, fast", "richardson", SOLVERS["richardson"], linear(25, 40)),
    ("richardson, geometric", "richardson", SOLVERS["richardson"], geometric(1, 1500)),
    ("richardson, quadratic", "richardson", SOLVERS["richardson"], power(2, 300)),
    ("richardson, saturating", "richardson", SOLVERS["richardson"], saturating(150)),
    ("richardson, random", "richardson", SOLVERS["richardson"], random_steps(300)),
    ("richardson, half steps", "richardson", Richardson(eta=0.5), linear(8, 20)),
    ("richardson without row sums, linear", "richardson", SOLVERS["richardson-plain"], linear(6, 14)),
    ("richardson without row sums, saturating", "richardson", SOLVERS["richardson-plain"], saturating(150)),
    ("newton-schulz", "richardson", SOLVERS["newton-schulz"], lambda random: np.arange(1, L + 1)),
    ("richardson fixed, linear", "richardson-fixed", SOLVERS["richardson-fixed"], linear(6, 14)),
    ("richardson fixed, geometric", "richardson-fixed", SOLVERS["richardson-fixed"], geometric(2, 600)),
    ("gd, linear", "gd", SOLVERS["gd"], linear(25, 60)),
    ("gd, geometric", "gd", SOLVERS["gd"], geometric(3, 1e5)),
    ("nesterov, linear", "nesterov", SOLVERS["nesterov"], linear(6, 14)),
    ("nesterov, quadratic", "nesterov", SOLVERS["nesterov"], power(2, 200)),
    # CG stops at step 10: beyond it rounding decides, and two correct codes differ.
    ("cg", "cg", SOLVERS["cg"], lambda random: np.arange(1, 11)),
    ("cg, two steps a layer", "cg", SOLVERS["cg"], lambda random: np.arange(2, 11, 2)),
    ("cg with row sums", "cg", SOLVERS["cg-row-sum"], lambda random: np.arange(1, 11)),
    ("chebyshev, linear", "chebyshev", SOLVERS["chebyshev"], linear(4, 6)),
    ("chebyshev, slow", "chebyshev", SOLVERS["chebyshev"], linear(2, 3)),
    ("ridge, geometric", "ridge", SOLVERS["ridge"], geometric(0.05, 100)),
    ("ridge, quadratic", "ridge", SOLVERS["ridge"], power(2, 60)),
    ("shrink", "shrink", SOLVERS["shrink"], linear(5, 7.5)),
    ("nadaraya-watson", "nadaraya-watson", SOLVERS["nadaraya-watson"], geometric(0.5, 12)),
    ("nearest points", "knn", SOLVERS["knn"], linear(2, 3)),
    ("boost, linear", "boost", SOLVERS["boost"], linear(1.5, 4)),
    ("boost, quadratic", "boost", SOLVERS["boost"], power(2, 60)),
    ("causal richardson, linear", "causal-richardson", SOLVERS["causal-richardson"], linear(1, 3)),
    ("causal richardson, quadratic", "causal-richardson", SOLVERS["causal-richardson"], power(2, 40)),
    ("causal boost, linear", "causal-boost", SOLVERS["causal-boost"], linear(1, 3)),
    ("causal boost, quadratic", "causal-boost", SOLVERS["causal-boost"], power(2, 40)),
)

#: name, class, arguments of `construct`: transformers whose weights run the iteration.
CONSTRUCTED = (
    ("transformer, exact scheme, eta = 1", "richardson", {"scheme": "exact", "eta": 1.0}),
    ("transformer, exact scheme, chebyshev", "chebyshev", {"scheme": "exact"}),
    ("transformer, compact scheme, chebyshev", "chebyshev", {"scheme": "compact"}),
    ("transformer, compact scheme, eta = 1/N", "richardson-fixed", {"scheme": "compact", "eta": 1 / 40}),
)

#: Which planted models divide by row sums, in classes with and without them. Newton-Schulz starts from I / eig_max.
ROW_SUMS = {
    name: getattr(solver, "preconditioner", "none") == "row-sum"
    for name, kind, solver, _ in INSIDE
    if kind in {family.kind for family in FAMILIES if family.without_row_sums}
} | {"transformer, exact scheme, eta = 1": True}


def calibration_suite(
    prompts: Prompts, task: Any, contexts: Sequence[int], seed: int, names: Collection[str] | None = None
) -> Iterator[Planted]:
    """Every planted model, or those named, clean and with noise; (seed, name of the model) decides what is drawn."""
    prompts = prompts.to(torch.float64, "cpu")
    # The labels of the paper's task have variance 1: there noise is in that unit.
    unit = float(prompts.y.square().mean().sqrt()) if domain_of(task) is LINEAR else 1.0
    setting = PlantedSetting(prompts=prompts, task=task, contexts=tuple(contexts), unit=unit)
    makers = _linear_models(task, names) if domain_of(task) is LINEAR else _kernel_models(names)
    for name, group, truth, make in makers:
        if names is not None and name not in names:
            continue
        key = [seed, zlib.crc32(name.encode())]
        kinds = ["none", str(np.random.default_rng([*key, 1]).choice(["iid", "clutter"]))]
        values = make(setting, np.random.default_rng(key))
        about = {"name": name, "group": group, "truth": truth, "row_sums": ROW_SUMS.get(name)}
        for noise in kinds + ["bent"] * (group == "inside"):
            noisy = values + _noise(noise, setting, values, key)
            model_fn = partial(_again, setting, make, key, noise)
            yield Planted(**about, noise=noise, values=noisy, model_fn=model_fn)


Model = tuple[str, str, tuple[str | None, ...], Maker]


def _kernel_models(names: Collection[str] | None) -> list[Model]:
    makers: list[Model] = []
    for name, kind, solver, schedule in INSIDE:
        makers.append((name, "inside", (kind,) * L, _solver_maker(solver, schedule)))
    for name, kind, arguments in CONSTRUCTED:
        makers.append((name, "inside", (kind,) * L, _transformer_maker(arguments)))
    later = [control for control in LATER if names is not None and control[0] in names]
    for group, table in (("outside", (*NEGATIVE_CONTROLS, *later)), ("borderline", BORDERLINE)):
        makers += [(name, group, truth, make) for name, truth, make in table]
    return makers


def _linear_models(task: Any, names: Collection[str] | None) -> list[Model]:
    makers: list[Model] = [(name, "inside", (kind,) * L, make) for name, kind, make in linear_models.inside(task)]
    networks = [each for each in linear_models.NETWORKS if names is not None and each[0] in names]
    outside = (*linear_models.OUTSIDE, *networks)
    return makers + [(name, "outside", truth, make) for name, truth, make in outside]


def _again(setting: PlantedSetting, make: Maker, key: list[int], noise: str, prompts: Prompts) -> Trajectory:
    """The planted model of `key` on other prompts, of the same shape."""
    setting = replace(setting, prompts=prompts.to(torch.float64, "cpu"))
    values = make(setting, np.random.default_rng(key))
    values = values + _noise(noise, setting, values, key)
    return Trajectory(values, range(1, len(values) + 1), "planted", torch.tensor(setting.contexts))


def nuisance(task: Task, random: np.random.Generator) -> Task:
    """Another bandwidth (two draws in three), within 15 %, or another ridge: a network need not use the task's.

    Farther off, a nearly converged solver is ambiguous: what separates it from the task's KRR is its own KRR.
    """
    if random.uniform() < 2 / 3:
        return replace(task, v=task.v * float(np.exp(random.uniform(np.log(0.86), np.log(1.16)))))
    return replace(task, sigma=task.sigma * float(np.exp(random.uniform(np.log(0.55), np.log(2.6)))))


def _solver_maker(solver: Solver, schedule: Schedule):
    def make(setting: PlantedSetting, random: np.random.Generator) -> Float[Tensor, "L B C"]:
        return setting.solve(solver, steps_of(schedule, solver, random), nuisance(setting.task, random))

    return make


def _transformer_maker(arguments: dict):
    def make(setting: PlantedSetting, random: np.random.Generator) -> Float[Tensor, "L B C"]:
        task = setting.task
        # The exact scheme is slow; the compact one with a safe step needs many to get anywhere.
        stride = 1 if arguments["scheme"] == "exact" else int(random.integers(3, 7))
        model = construct(task.d, task.N, task.v, task.lam, L=stride * L, **arguments)
        stages = range(stride, stride * L + 1, stride)
        return model.path(setting.prompts, stages=stages, contexts=setting.contexts).values

    return make


def _noise(kind: str, setting: PlantedSetting, values: Float[Tensor, "L B C"], key: list[int]) -> Tensor:
    """iid: normal, variance .002 to .0075 of the labels'. clutter, bent: as large, a random function of the labels."""
    if kind == "none":
        return torch.zeros_like(values)
    random = np.random.default_rng([*key, 2])
    std = float(np.sqrt(random.uniform(0.002, 0.0075)))
    if kind == "iid":
        return setting.unit * std * torch.from_numpy(random.standard_normal(values.shape))
    coefficients = torch.from_numpy(random.standard_normal((len(values), *setting.prompts.y.shape)))
    sums = (coefficients * setting.prompts.y).cumsum(-1)[..., [n - 1 for n in setting.contexts]]
    sums = sums / torch.tensor(setting.contexts).sqrt()  # of about unit variance, as the labels
    if kind == "clutter":
        return std * sums
    phase = torch.from_numpy(random.uniform(0, 2 * np.pi, (len(values), len(setting.prompts.y), 1)))
    return setting.unit * std * 2**0.5 * (2.5 / setting.unit * sums + phase).sin()
