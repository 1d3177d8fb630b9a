"""The field's metric on planted truth: what similarity to iterative Newton says of paths that are something else.

d = 20, N = 40, no noise, inputs and weights standard normal: the setting of Garg et al.'s model, on which iterative
Newton is claimed by best similarity of errors (SimE) and best steps that grow linearly with the layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from layerstep.measurement import identify
from layerstep.measurement.comparison import compare
from layerstep.measurement.identification.crossfit import Instrument
from layerstep.measurement.identification.linear_tasks import Scales
from layerstep.reproduction.numbers.store import Store
from layerstep.solvers import SOLVERS, GradientDescentInWeights, Newton, RidgePath, Solver, solve
from layerstep.tasks import LinearRegression, Prompts, Trajectory, sample
from layerstep.threads import one_thread

TASK = LinearRegression(d=20, N=40, sigma=0.0)
LAYERS = np.arange(1, 13)
LINE = (2, 10)  # the layers that the line of best steps is fitted to
PROMPTS, SEED = 320, 0
#: What such claims compare with: Newton's iterates, and gradient descent with a step size of .01.
DESCENT = [*range(40), *np.unique(np.geomspace(40, 4096, 60).round()).tolist()]
COMPARED = {
    "newton": (Newton(start="frobenius"), range(24)),
    "gd": (GradientDescentInWeights(eta=0.01), DESCENT),
}


@dataclass(frozen=True, kw_only=True)
class PlantedPath:
    """One path and its class, `truth`. sime: the best similarity to Newton, mean over layers; slope, r2: of the line
    through Newton's best steps by layer, `best_step`; nearer_newton: of how many layers Newton is nearer than descent.
    solver, status, schedule: our verdict."""

    name: str
    truth: str
    sime: float
    slope: float
    r2: float
    nearer_newton: int
    best_step: list[float]
    solver: str | None
    status: str
    schedule: str | None


def planted() -> Iterator[tuple[str, str, Solver, Sequence[float]]]:
    """Name, class, solver, its steps by layer."""
    scales = Scales.of(TASK)
    one, ridge = GradientDescentInWeights(eta=1 / scales.top), RidgePath(scale=scales.square)
    paths = (
        ("Newton, 1.5 per layer", "newton", Newton(), 1.5 * LAYERS),
        ("GD in weights, 2^l steps", "gd-weights", None, 2**LAYERS),
        ("GD, one step size, 2^l steps", "gd-weights", one, 2**LAYERS),
        ("GD in weights, l² steps", "gd-weights", None, LAYERS**2),
        ("CG in weights, 1 per layer", "cg-weights", None, LAYERS),
        ("Chebyshev, 2 per layer", "chebyshev-weights", None, 2 * LAYERS),
        ("ridge path, falling geometrically", "ridge", ridge, np.geomspace(0.1, 1e4, len(LAYERS))),
    )
    for name, kind, solver, steps in paths:
        yield name, kind, solver or SOLVERS[kind], steps.tolist()


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What the field's metric says of a path: see `PlantedPath`. of: how many layers."""

    sime: float
    slope: float
    r2: float
    nearer_newton: int
    of: int
    best_step: list[float]


def field_metric(path: Trajectory, prompts: Prompts, task: LinearRegression, first: int = 0) -> Metric:
    """The metric on a path, its first layers left out of the counts."""
    compared = compare(path, prompts, task, COMPARED, layers=LINE)
    matched, descent = (compared.matches[name] for name in ("newton", "gd"))
    newton, gd = (each.sime[first:].amax(1) for each in (matched, descent))
    slope, r2 = compared.line("newton")
    return Metric(
        sime=float(newton.mean()),
        slope=slope,
        r2=r2,
        nearer_newton=int((newton > gd).sum()),
        of=len(newton),
        best_step=matched.best_step.mean(0).tolist(),
    )


def compare_planted_paths(store: Store, prompts: int = PROMPTS) -> list[PlantedPath]:
    """What both say of every path."""
    of = {"task": TASK.to_dict(), "prompts": prompts, "seed": SEED}
    return store.get("planted-paths", list[PlantedPath], of, __name__, lambda: _compute(prompts))


@one_thread()
def _compute(count: int) -> list[PlantedPath]:
    prompts = sample(TASK, count, SEED)
    instrument = Instrument.prepare(prompts, TASK)
    found = []
    for name, truth, solver, steps in planted():
        path = Trajectory(solve(solver, prompts, TASK, steps).values, LAYERS.tolist(), name)
        metric = field_metric(path, prompts, TASK)
        verdict = identify(path, prompts, TASK, instrument=instrument)
        found.append(
            PlantedPath(
                name=name,
                truth=truth,
                sime=metric.sime,
                slope=metric.slope,
                r2=metric.r2,
                nearer_newton=metric.nearer_newton,
                best_step=metric.best_step,
                solver=verdict.solver,
                status=verdict.status,
                schedule=verdict.schedule,
            )
        )
    return found
