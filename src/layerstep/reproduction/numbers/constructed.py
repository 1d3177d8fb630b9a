"""Numbers of constructed transformers: what they promise and reach, one block by block, and the paper's metrics."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import torch

from layerstep.construction import construct, convergence_data
from layerstep.reproduction.numbers.measurements import alignment, errors_by_layer
from layerstep.reproduction.numbers.model import ModelNumbers
from layerstep.reproduction.numbers.store import Store, to_json
from layerstep.reproduction.settings import SPHERE, evaluation_prompts
from layerstep.solvers import Richardson, solve
from layerstep.tasks import Prompts, Task, Trajectory

#: Networks that are compared by what they need for one promise: their options, and whose steps they take.
NETWORKS: dict[str, tuple[dict[str, Any], str]] = {
    "paper": ({"scheme": "paper"}, "Richardson"),
    "exact-richardson": ({"scheme": "exact", "eta": 1.0}, "Richardson"),
    "exact": ({"scheme": "exact"}, "Chebyshev"),
    "compact": ({"scheme": "compact"}, "Chebyshev"),
}
#: The error they guarantee where labels are at most PROMISED_B_Y.
PROMISED_ERROR, PROMISED_B_Y = 0.01, 3.0


@dataclass(frozen=True, kw_only=True)
class SchemeSize:
    """`steps`: whose."""

    options: dict[str, Any]
    steps: str
    depth: int
    width: int
    parameters: int
    bound: float


@dataclass(frozen=True, kw_only=True)
class BoundCurve:
    """Distances to exact KRR, and the bounds computed for them, by stage; `promised` before any prompt."""

    promised: float
    stages: list[int]
    median_error: list[float]
    largest_error: list[float]
    median_bound: list[float]
    largest_bound: list[float]


@dataclass(frozen=True, kw_only=True)
class Schemes:
    """Sizes by scheme for one guaranteed error, the compact network's curve, and how far the read-outs of the exact one
    are from Richardson's iterates, the most over `richardson_steps` and prompts."""

    B_y: float
    error: float
    sizes: dict[str, SchemeSize]
    curve: BoundCurve
    richardson_steps: int
    richardson_difference: float


def constructed_schemes(store: Store, stages: int = 24, sequences: int = 32, steps: int = 200) -> Schemes:
    of = {"stages": stages, "sequences": sequences, "steps": steps}
    return store.get("schemes", Schemes, of, __name__, lambda: compute_schemes(stages, sequences, steps))


def compute_schemes(stages: int, sequences: int, steps: int) -> Schemes:
    task, sizes = SPHERE, {}
    limits = {"B_x": 1.0, "B_y": PROMISED_B_Y, "error": PROMISED_ERROR, "c": None}  # c: the best for the paper's
    for name, (options, whose) in NETWORKS.items():
        network = construct(task.d, task.N, task.v, task.lam, **{**options, **limits})
        certificate = network.certificate
        sizes[name] = SchemeSize(
            options=options,
            steps=whose,
            depth=certificate.depth,
            width=certificate.width,
            parameters=certificate.parameters,
            bound=certificate.bound or nan,
        )
    shown = sorted({0, network.L, *np.geomspace(1, network.L, stages).round().astype(int).tolist()})
    # Labels of a Gaussian process exceed any bound now and then; the promise speaks of labels within B_y only.
    prompts = evaluation_prompts("sphere")
    prompts = prompts[prompts.y.abs().amax(1) <= PROMISED_B_Y][:sequences]
    curve = convergence_data(network, prompts, shown)
    return Schemes(
        B_y=PROMISED_B_Y,
        error=PROMISED_ERROR,
        sizes=sizes,
        curve=BoundCurve(**{name: curve[name] for name in BoundCurve.__dataclass_fields__}),
        richardson_steps=steps,
        richardson_difference=_difference_to_richardson(steps, prompts),
    )


def _difference_to_richardson(steps: int, prompts: Prompts) -> float:
    task = SPHERE
    network = construct(task.d, task.N, task.v, task.lam, scheme="exact", eta=1.0, L=steps)
    readout = network.path(prompts, contexts=[task.N]).values[..., 0]
    iterates = solve(Richardson(eta=1.0), prompts, task, steps=steps).values[..., -1]
    return float((readout - iterates).abs().max())


@dataclass(frozen=True, kw_only=True)
class Walk:
    """One prompt on a line: a compact network's answer at every query after every iteration, and the exact one.

    bounds: of each answer, computed from the prompt; bound: promised before it, after the last block. reads: which
    examples a query reads, as shares.
    """

    x: list[float]
    y: list[float]
    queries: list[float]
    exact: list[float]
    readout: list[list[float]]
    bounds: list[list[float]]
    reads: list[list[float]]
    blocks: int
    width: int
    bound: float


def constructed_walk(store: Store, N: int = 12, queries: int = 121, error: float = 0.01) -> Walk:
    of = {"N": N, "queries": queries, "error": error}
    return store.get("walk", Walk, of, __name__, lambda: compute_walk(N, queries, error))


def compute_walk(N: int, queries: int, error: float) -> Walk:
    task = Task(inputs="uniform", d=1, N=N, v=0.35, sigma=0.2)
    network = construct(1, N, task.v, task.lam, B_x=1.0, B_y=2.0, scheme="compact", error=error)
    x = torch.linspace(-0.9, 0.9, N, dtype=torch.float64)
    y = torch.sin(4 * x) + 0.5 * torch.cos(9 * x)
    at = torch.linspace(-1, 1, queries, dtype=torch.float64)
    found = network.iterates(x[:, None], y, at[:, None])
    return Walk(
        x=x.tolist(),
        y=y.tolist(),
        queries=at.tolist(),
        exact=found.exact.tolist(),
        readout=found.value.tolist(),
        bounds=found.bound.tolist(),
        reads=found.reads.tolist(),
        blocks=network.depth,
        width=network.width,
        bound=network.certificate.bound or nan,
    )


#: Networks measured as the trained models are, on the sphere: scheme, blocks counted as one layer, label.
MEASURED = {
    "constructed-1": ("exact", 1, "constructed, one Richardson step per layer"),
    "constructed-5": ("exact", 5, "constructed, five Richardson steps per layer"),
    "constructed-chebyshev": ("compact", 1, "constructed, one Chebyshev step per layer"),
}
MEASURED_LAYERS = 12


def constructed_models(store: Store) -> dict[str, ModelNumbers]:
    """By name."""
    of = {"networks": to_json(MEASURED), "layers": MEASURED_LAYERS}
    return store.get("constructed", dict[str, ModelNumbers], of, __name__, compute_models)


def compute_models() -> dict[str, ModelNumbers]:
    paths = {scheme: _readout(scheme) for scheme in ("exact", "compact")}
    found = {}
    for name, (scheme, stride, label) in MEASURED.items():
        whole = paths[scheme]
        at = [whole.stages.tolist().index(stride * layer) for layer in range(MEASURED_LAYERS + 1)]
        path = Trajectory(whole.values[at], list(range(MEASURED_LAYERS + 1)), label)
        found[name] = ModelNumbers(
            name=name,
            label=label,
            setting="sphere",
            training="",
            trained_steps=0,
            over_krr=nan,
            alignment=alignment(path, "sphere"),
            **errors_by_layer(path, "sphere"),
        )
    return found


def _readout(scheme: str) -> Trajectory:
    """The read-out of a constructed network after every block that is a layer of one of MEASURED."""
    task = SPHERE
    strides = [stride for kind, stride, _ in MEASURED.values() if kind == scheme]
    stages = sorted({stride * layer for stride in strides for layer in range(MEASURED_LAYERS + 1)})
    eta = 1.0 if scheme == "exact" else None
    network = construct(task.d, task.N, task.v, task.lam, scheme=scheme, L=stages[-1], eta=eta)
    return network.path(evaluation_prompts("sphere"), stages=stages)
