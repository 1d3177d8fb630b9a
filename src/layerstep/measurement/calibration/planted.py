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

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.construction import construct
from layerstep.measurement.calibration.negatives import BORDERLINE, LATER, NEGATIVE_CONTROLS
from layerstep.measurement.calibration.setting import PlantedSetting
from layerstep.measurement.identification.families import FAMILIES
from layerstep.solvers import SOLVERS, Richardson, Solver
from layerstep.tasks import Prompts, Task, Trajectory

L = 12


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


Schedule = Callable[[np.random.Generator], np.ndarray]
Maker = Callable[[PlantedSetting, np.random.Generator], Float[Tensor, "L B C"]]


def _linear(low: float, high: float) -> Schedule:
    return lambda random: random.uniform(low, high) * np.arange(1, L + 1)


def _power(exponent: float, last: float) -> Schedule:
    return lambda random: last * random.uniform(0.7, 1.4) * (np.arange(1, L + 1) / L) ** exponent


def _geometric(first: float, last: float) -> Schedule:
    def schedule(random: np.random.Generator) -> np.ndarray:
        a, b = first * random.uniform(0.7, 1.4), last * random.uniform(0.7, 1.4)
        return a * (b / a) ** (np.arange(L) / (L - 1))

    return schedule


def _saturating(last: float) -> Schedule:
    return lambda random: last * random.uniform(0.7, 1.4) * (1 - 0.97 * np.exp(-np.arange(L) / 4))


def _random(last: float) -> Schedule:
    return lambda random: last * np.sort(random.uniform(0.01, 1, L) ** 2)


#: name, class, solver, schedule of steps.
INSIDE: tuple[tuple[str, str, Solver, Schedule], ...] = (
    ("richardson, linear", "richardson", SOLVERS["richardson"], _linear(6, 14)),
    ("richardson, fast", "richardson", SOLVERS["richardson"], _linear(25, 40)),
    ("richardson, geometric", "richardson", SOLVERS["richardson"], _geometric(1, 1500)),
    ("richardson, quadratic", "richardson", SOLVERS["richardson"], _power(2, 300)),
    ("richardson, saturating", "richardson", SOLVERS["richardson"], _saturating(150)),
    ("richardson, random", "richardson", SOLVERS["richardson"], _random(300)),
    ("richardson, half steps", "richardson", Richardson(eta=0.5), _linear(8, 20)),
    ("richardson without row sums, linear", "richardson", SOLVERS["richardson-plain"], _linear(6, 14)),
    ("richardson without row sums, saturating", "richardson", SOLVERS["richardson-plain"], _saturating(150)),
    ("newton-schulz", "richardson", SOLVERS["newton-schulz"], lambda random: np.arange(1, L + 1)),
    ("richardson fixed, linear", "richardson-fixed", SOLVERS["richardson-fixed"], _linear(6, 14)),
    ("richardson fixed, geometric", "richardson-fixed", SOLVERS["richardson-fixed"], _geometric(2, 600)),
    ("gd, linear", "gd", SOLVERS["gd"], _linear(25, 60)),
    ("gd, geometric", "gd", SOLVERS["gd"], _geometric(3, 1e5)),
    ("nesterov, linear", "nesterov", SOLVERS["nesterov"], _linear(6, 14)),
    ("nesterov, quadratic", "nesterov", SOLVERS["nesterov"], _power(2, 200)),
    # CG stops at step 10: beyond it rounding decides, and two correct codes differ.
    ("cg", "cg", SOLVERS["cg"], lambda random: np.arange(1, 11)),
    ("cg, two steps a layer", "cg", SOLVERS["cg"], lambda random: np.arange(2, 11, 2)),
    ("cg with row sums", "cg", SOLVERS["cg-row-sum"], lambda random: np.arange(1, 11)),
    ("chebyshev, linear", "chebyshev", SOLVERS["chebyshev"], _linear(4, 6)),
    ("chebyshev, slow", "chebyshev", SOLVERS["chebyshev"], _linear(2, 3)),
    ("ridge, geometric", "ridge", SOLVERS["ridge"], _geometric(0.05, 100)),
    ("ridge, quadratic", "ridge", SOLVERS["ridge"], _power(2, 60)),
    ("shrink", "shrink", SOLVERS["shrink"], _linear(5, 7.5)),
    ("nadaraya-watson", "nadaraya-watson", SOLVERS["nadaraya-watson"], _geometric(0.5, 12)),
    ("nearest points", "knn", SOLVERS["knn"], _linear(2, 3)),
    ("boost, linear", "boost", SOLVERS["boost"], _linear(1.5, 4)),
    ("boost, quadratic", "boost", SOLVERS["boost"], _power(2, 60)),
    ("causal richardson, linear", "causal-richardson", SOLVERS["causal-richardson"], _linear(1, 3)),
    ("causal richardson, quadratic", "causal-richardson", SOLVERS["causal-richardson"], _power(2, 40)),
    ("causal boost, linear", "causal-boost", SOLVERS["causal-boost"], _linear(1, 3)),
    ("causal boost, quadratic", "causal-boost", SOLVERS["causal-boost"], _power(2, 40)),
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
    prompts: Prompts, task: Task, contexts: Sequence[int], seed: int, names: Collection[str] | None = None
) -> Iterator[Planted]:
    """Every planted model, or those named, clean and with noise; (seed, name of the model) decides what is drawn."""
    setting = PlantedSetting(prompts=prompts.to(torch.float64, "cpu"), task=task, contexts=tuple(contexts))
    makers: list[tuple[str, str, tuple[str | None, ...], Maker]] = []
    for name, kind, solver, schedule in INSIDE:
        makers.append((name, "inside", (kind,) * L, _solver_maker(solver, schedule)))
    for name, kind, arguments in CONSTRUCTED:
        makers.append((name, "inside", (kind,) * L, _transformer_maker(arguments)))
    later = [control for control in LATER if names is not None and control[0] in names]
    for group, table in (("outside", (*NEGATIVE_CONTROLS, *later)), ("borderline", BORDERLINE)):
        makers += [(name, group, truth, make) for name, truth, make in table]
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


def steps_of(schedule: Schedule, solver: Solver, random: np.random.Generator) -> list[float]:
    """The schedule as increasing steps: whole numbers, each above the one before, for an iteration."""
    steps = schedule(random)
    if not solver.continuous:
        steps = np.maximum.accumulate(np.maximum(np.round(steps), 1) - np.arange(len(steps))) + np.arange(len(steps))
    return steps.tolist()


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
    """iid: normal, variance .002 to .0075. clutter, bent: as large, a random function of the labels, linear or not."""
    if kind == "none":
        return torch.zeros_like(values)
    random = np.random.default_rng([*key, 2])
    std = float(np.sqrt(random.uniform(0.002, 0.0075)))
    if kind == "iid":
        return std * torch.from_numpy(random.standard_normal(values.shape))
    coefficients = torch.from_numpy(random.standard_normal((len(values), *setting.prompts.y.shape)))
    sums = (coefficients * setting.prompts.y).cumsum(-1)[..., [n - 1 for n in setting.contexts]]
    sums = sums / torch.tensor(setting.contexts).sqrt()  # of about unit variance, as the labels
    if kind == "clutter":
        return std * sums
    phase = torch.from_numpy(random.uniform(0, 2 * np.pi, (len(values), len(setting.prompts.y), 1)))
    return std * 2**0.5 * (2.5 * sums + phase).sin()
