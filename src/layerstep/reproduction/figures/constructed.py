"""The transformer whose weights are written down: what it promises, what it reaches, and one seen block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from layerstep.construction import construct, convergence_data
from layerstep.plotting import BLUE, INK, ORANGE, figure
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.settings import SETTINGS, evaluation_prompts
from layerstep.solvers import Richardson, exact, solve
from layerstep.tasks import Prompts, Task

ROOMS = ("tasks", "solvers", "construction", "reproduction")
#: What the schemes are compared for: the error they guarantee where labels are no larger than B_y.
PROMISE = {"B_y": 3.0, "error": 0.01}

#: Networks that are compared: their options, and whose steps they take.
NETWORKS: dict[str, tuple[dict[str, Any], str]] = {
    "paper": ({"scheme": "paper"}, "Richardson"),
    "exact-richardson": ({"scheme": "exact", "eta": 1.0}, "Richardson"),
    "exact": ({"scheme": "exact"}, "Chebyshev"),
    "compact": ({"scheme": "compact"}, "Chebyshev"),
}


def compute_schemes(config: Data) -> Data:
    """Depth, width and size of every scheme for one guaranteed error; errors and bounds along the compact one."""
    task = SETTINGS["sphere"]
    made = {}
    limits = {"B_x": 1.0, "B_y": config["B_y"], "error": config["error"], "c": None}  # c: the best for the paper's
    for name, (options, steps) in NETWORKS.items():
        network = construct(task.d, task.N, task.v, task.lam, **options, **limits)
        certificate = network.certificate
        size = {part: getattr(certificate, part) for part in ("depth", "width", "parameters", "bound")}
        made[name] = {"options": options, "steps": steps, **size}
    stages = sorted({0, network.L, *np.geomspace(1, network.L, config["stages"]).round().astype(int).tolist()})
    # Labels of a Gaussian process exceed any bound now and then; the promise speaks of labels within B_y only.
    prompts = evaluation_prompts("sphere")
    prompts = prompts[prompts.y.abs().amax(1) <= config["B_y"]][: config["sequences"]]
    curve = convergence_data(network, prompts, stages)
    promise = {key: config[key] for key in PROMISE}
    return {"schemes": made, **promise, "curve": curve, "richardson": _beside_richardson(config["steps"], prompts)}


def _beside_richardson(steps: int, prompts: Prompts) -> Data:
    """How far the read-outs of a written network are from the iterates of the solver, over steps and prompts."""
    task = SETTINGS["sphere"]
    network = construct(task.d, task.N, task.v, task.lam, scheme="exact", eta=1.0, L=steps)
    readout = network.path(prompts, contexts=[task.N]).values[..., 0]
    iterates = solve(Richardson(eta=1.0), prompts, task, steps=steps).values[..., -1]
    return {"steps": steps, "difference": float((readout - iterates).abs().max())}


def draw_schemes(data: Data) -> Figure:
    curve = data["curve"]
    with figure(6.8, 3.4) as fig:
        ax = fig.subplots()
        stages = np.maximum(curve["stages"], 0.5)  # iteration 0 has its place on a logarithmic axis
        ax.fill_between(stages, curve["median_error"], curve["largest_error"], color=BLUE, alpha=0.18, linewidth=0)
        ax.plot(stages, curve["median_error"], color=BLUE, label="true error: median, and up to the largest")
        ax.plot(
            stages, curve["median_bound"], color=ORANGE, linestyle="--", label="bound computed from the prompt, median"
        )
        ax.axhline(
            curve["promised"], color=INK, linestyle=":", label=f"promised before any prompt: {curve['promised']:.2g}"
        )
        ax.set(xscale="log", yscale="log", xlabel="iterations (one block each)", ylabel="distance to exact KRR")
        ax.legend(loc="lower left")
    return fig


def table_schemes(data: Data) -> tuple[list[str], list[list[Any]]]:
    curve = data["curve"]
    keys = ["stages", "median_error", "largest_error", "median_bound", "largest_bound"]
    return keys, [list(line) for line in zip(*(curve[key] for key in keys), strict=True)]


def summary_schemes(data: Data) -> tuple[list[str], list[list[str]]]:
    lines = [
        [
            ", ".join(f"{option}={value!r}" for option, value in made["options"].items()),
            made["steps"],
            f"{made['depth']:,}",
            _large(made["width"]),
            _large(made["parameters"]),
            f"{made['bound']:.4f}",
        ]
        for made in data["schemes"].values()
    ]
    return ["network", "steps of", "blocks", "MLP units", "parameters", "guaranteed error"], lines


def _large(value: float) -> str:
    return f"{value:,}" if value < 1e9 else f"{value:.1e}"


def walk_network(config: Data):
    task = Task(inputs="uniform", d=1, N=config["N"], v=config["v"], sigma=config["sigma"])
    network = construct(
        1, task.N, task.v, task.lam, B_x=1.0, B_y=config["B_y"], scheme="compact", error=config["error"]
    )
    return task, network


def compute_walk(config: Data) -> Data:
    """One prompt on a line; the read-out at many queries after every block of a compact network."""
    task, network = walk_network(config)
    x = torch.linspace(-0.9, 0.9, task.N, dtype=torch.float64)
    y = torch.sin(4 * x) + 0.5 * torch.cos(9 * x)
    queries = torch.linspace(-1, 1, config["queries"], dtype=torch.float64)
    # One sequence a query: the same examples, another last point.
    examples = x.expand(len(queries), -1)
    prompts = Prompts(
        torch.cat([examples, queries[:, None]], 1).unsqueeze(-1),
        torch.cat([y.expand(len(queries), -1), torch.zeros(len(queries), 1, dtype=torch.float64)], 1),
    )
    path = network.path(prompts, contexts=[task.N])
    solution = exact(prompts, task)[:, -1]
    return {
        "x": x.tolist(),
        "y": y.tolist(),
        "queries": queries.tolist(),
        "exact": solution.tolist(),
        "readout": path.values[..., 0].tolist(),
        "blocks": network.depth,
        "width": network.width,
        "bound": network.certificate.bound,
    }


def draw_walk(data: Data) -> Figure:
    last = len(data["readout"]) - 1
    shown = sorted({1, 3, 8, last})
    with figure(10.5, 2.7) as fig:
        axes = fig.subplots(1, len(shown), sharey=True)
        for ax, stage in zip(axes, shown, strict=True):
            ax.plot(data["queries"], data["exact"], color=INK, linestyle="--", linewidth=1, label="exact KRR")
            ax.plot(data["queries"], data["readout"][stage], color=ORANGE, label="the transformer's answer")
            ax.plot(data["x"], data["y"], "o", color=BLUE, markersize=4, label="examples in the prompt")
            ax.set(title=f"after iteration {stage}", xlabel="x")
        axes[0].set_ylabel("y")
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    return fig


def table_walk(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = [
        [stage, query, value, solution]
        for stage, values in enumerate(data["readout"])
        for query, value, solution in zip(data["queries"], values, data["exact"], strict=True)
    ]
    return ["iteration", "query", "readout", "exact"], lines


WALK = Artefact(
    name="walk",
    title="A transformer solves a kernel system, block by block",
    caption=(
        "A compact network reads the examples (points) and answers at every x at once. No weight of it was trained: "
        "attention computes kernel sums, a small MLP takes a step of the Chebyshev iteration, and after the last "
        "block the answer is within the guaranteed error of exact kernel ridge regression (dashed)."
    ),
    config={"N": 12, "v": 0.35, "sigma": 0.2, "B_y": 2.0, "error": 0.01, "queries": 121},
    compute=compute_walk,
    draw=draw_walk,
    table=table_walk,
    rooms=ROOMS,
)

SCHEMES = Artefact(
    name="schemes",
    title="What is promised and what is reached, in the paper's setting",
    caption=(
        f"Blocks, hidden units of their MLPs and parameters that guarantee an error of {PROMISE['error']} on every "
        f"prompt of the paper's setting (sphere) whose labels are {PROMISE['B_y']:g} or less: the paper's own network, "
        "the same iteration written without approximation (the exact scheme, with Richardson's steps and Chebyshev's, "
        "which need far fewer), and the compact one. Figure: distance of the compact read-out to exact kernel ridge "
        "regression by iteration (median and largest over prompts), and the median of the bounds computed for each."
    ),
    config={**PROMISE, "stages": 24, "sequences": 32, "steps": 200},
    compute=compute_schemes,
    draw=draw_schemes,
    table=table_schemes,
    summary=summary_schemes,
    rooms=ROOMS,
)
