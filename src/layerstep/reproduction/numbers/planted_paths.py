"""The field's metric on planted truth: what similarity to iterative Newton says of paths that are something else.

d = 20, N = 40, no noise, inputs and weights standard normal: the setting of Garg et al.'s model, on which iterative
Newton is claimed by best similarity of errors (SimE) and best steps that grow linearly with the layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from layerstep.measurement import identify
from layerstep.measurement.comparison import compare
from layerstep.measurement.identification.crossfit import Instrument
from layerstep.measurement.identification.linear_tasks import Scales
from layerstep.reproduction.numbers.store import Store
from layerstep.solvers import SOLVERS, GradientDescentInWeights, Newton, RidgePath, Solver, solve
from layerstep.tasks import LinearRegression, Trajectory, sample
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


def planted() -> Iterator[tuple[str, str, Solver, list[float]]]:
    """Name, class, solver, its steps by layer."""
    scales = Scales.of(TASK)
    one = GradientDescentInWeights(eta=1 / scales.top)
    yield "Newton, 1.5 per layer", "newton", Newton(), (1.5 * LAYERS).tolist()
    yield "GD in weights, 2^l steps", "gd-weights", SOLVERS["gd-weights"], (2**LAYERS).tolist()
    yield "GD, one step size, 2^l steps", "gd-weights", one, (2**LAYERS).tolist()
    yield "GD in weights, l² steps", "gd-weights", SOLVERS["gd-weights"], (LAYERS**2).tolist()
    yield "CG in weights, 1 per layer", "cg-weights", SOLVERS["cg-weights"], LAYERS.tolist()
    yield "Chebyshev, 2 per layer", "chebyshev-weights", SOLVERS["chebyshev-weights"], (2 * LAYERS).tolist()
    falling = np.geomspace(0.1, 1e4, len(LAYERS)).tolist()
    yield "ridge path, falling geometrically", "ridge", RidgePath(scale=scales.square), falling


def planted_paths(store: Store, prompts: int = PROMPTS) -> list[PlantedPath]:
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
        compared = compare(path, prompts, TASK, COMPARED, layers=LINE)
        newton, gd = (compared.matches[each].sime.amax(1) for each in ("newton", "gd"))
        line = next(row for row in compared.rows if row["solver"] == "newton")
        verdict = identify(path, prompts, TASK, instrument=instrument)
        found.append(
            PlantedPath(
                name=name,
                truth=truth,
                sime=float(newton.mean()),
                slope=line["slope"],
                r2=line["r2"],
                nearer_newton=int((newton > gd).sum()),
                best_step=compared.matches["newton"].best_step.mean(0).tolist(),
                solver=verdict.solver,
                status=verdict.status,
                schedule=verdict.schedule,
            )
        )
    return found
