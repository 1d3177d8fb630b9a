"""layerstep solve: classical solvers on every prefix."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from layerstep.cli.list import solvers_and_names
from layerstep.cli.options import Flat, TaskOptions, require_plot
from layerstep.cli.output import Output, table

PAPER = "richardson,cg,gd,nesterov"
MOST_DRAWN = 400  # steps in a figure
LINEAR = "gd-weights,newton,cg-weights,nesterov-weights"


def run(
    *,
    solvers: str | None = None,
    steps: int = 200,
    task: Flat = TaskOptions(),  # noqa: B008
    prompts: int = 256,
    seed: int = 256,
    target: Literal["noisy", "noiseless", "exact"] = "noisy",
    plot: Path | None = None,
    names: Annotated[bool, Parameter(name="--list")] = False,
) -> Output:
    """Run classical solvers on every prefix of sampled prompts and print their errors step by step.

    Args:
        solvers: names separated by commas; `all` for the whole library (default: the paper's four,
            richardson,cg,gd,nesterov; of linear tasks gd-weights,newton,cg-weights,nesterov-weights).
        steps: the largest number of steps; errors are shown at about eight of them, evenly in the logarithm.
        task: the prompts.
        prompts: number of prompts.
        seed: seed of the prompts.
        target: compare with the noisy label, with the noiseless function, or with the exact solution.
        plot: also draw the errors at the longest context, at every step, into this file (.png, .svg or .pdf).
        names: print every solver, and which name of the literature is which; run nothing.
    """
    from layerstep.errors import require_choice, require_count
    from layerstep.progress import showing
    from layerstep.solvers import SOLVERS, exact, solve_all
    from layerstep.tasks import LinearRegression, sample

    if names:
        return solvers_and_names()
    require_count(prompts=prompts)
    require_count(1, 2**53, steps=steps)
    asked = task.task()
    solvers = solvers or (LINEAR if isinstance(asked, LinearRegression) else PAPER)
    asked_for = list(SOLVERS) if solvers == "all" else [name.strip() for name in solvers.split(",")]
    for name in asked_for:
        require_choice("--solvers", name, SOLVERS)
    require_plot(plot)
    shown = sorted({0, steps, *(round(steps ** (i / 6)) for i in range(7))})
    kept = shown if plot is None else sorted({*shown, *_every(steps)})
    with showing(words=f"{len(asked_for)} solvers, {prompts} prompts") as show:
        drawn = sample(asked, prompts, seed)
        paths = solve_all({name: (SOLVERS[name], kept) for name in asked_for}, drawn, asked, progress=show)
    best = exact(drawn, asked)
    goal = {"noisy": drawn.target, "noiseless": drawn.f if drawn.f is None else drawn.noiseless_target, "exact": best}[
        target
    ]
    every = {name: path.mse(goal) for name, path in paths.items()}
    krr = (best - goal).square().mean(0)
    if plot is not None:
        _draw(plot, kept, every, float(krr[-1]), asked.N)
    errors = {name: error[[kept.index(step) for step in shown]] for name, error in every.items()}
    data = {
        "task": asked.to_dict(),
        "prompts": prompts,
        "seed": seed,
        "target": target,
        "steps": shown,
        "contexts": list(range(1, asked.N + 1)),
        "mse": {name: error.tolist() for name, error in errors.items()},
        "krr": krr.tolist(),
    }
    rows = [[name, *map(_shown, error[:, -1].tolist())] for name, error in errors.items()]
    rows.append(["exact KRR", *([""] * (len(shown) - 1)), f"{float(krr[-1]):.3g}"])
    against = "distance to the exact solution" if target == "exact" else f"error; {target} labels"
    title = f"mean squared {against}, by step; n = {asked.N}, {prompts} prompts"
    notes = [f"{name}: {SOLVERS[name].remark}" for name in asked_for if SOLVERS[name].remark]
    notes += [] if plot is None else [f"figure: {plot}"]
    return Output(data, [title, table(["solver", *map(str, shown)], rows), *notes])


def _every(steps: int) -> list[int]:
    """Every step; of very many, some, evenly in the logarithm."""
    return (
        list(range(steps + 1)) if steps <= MOST_DRAWN else [round(steps ** (i / MOST_DRAWN)) for i in range(MOST_DRAWN)]
    )


def _shown(error: float) -> str:
    return f"{error:.3g}" if math.isfinite(error) else "diverges"


def _draw(file: Path, steps: list[int], errors, krr: float, N: int) -> None:
    import matplotlib as mpl
    import numpy as np

    from layerstep.files import write_aside
    from layerstep.plotting import INK, figure
    from layerstep.solvers import SOLVERS

    colors = (
        [f"C{i}" for i in range(10)] if len(errors) <= 10 else mpl.colormaps["turbo"](np.linspace(0, 1, len(errors)))
    )
    with figure(8.5 + 3.2 * (len(errors) > 20), 3.8) as fig:
        ax = fig.subplots()
        places = sorted({int(place) for place in np.geomspace(1, len(steps), 8)})
        for i, (name, error) in enumerate(errors.items()):
            look = {"marker": "osd^vPX"[i % 7], "markersize": 4, "markevery": [place - 1 for place in places]}
            ax.plot(steps, error[:, -1], color=colors[i], label=SOLVERS[name].label, **look)
        if krr > 0:
            ax.axhline(krr, color=INK, linestyle="--", linewidth=1, label="exact KRR")
        what = "error" if krr > 0 else "distance to the exact solution"
        ax.set(
            xscale="symlog", yscale="log", xlabel="step", ylabel=f"mean squared {what}, n = {N}", xlim=(0, steps[-1])
        )
        fig.legend(loc="outside right upper", ncols=1 + len(errors) // 20)
    with write_aside(file) as aside:
        fig.savefig(aside, format=file.suffix[1:], dpi=160)
