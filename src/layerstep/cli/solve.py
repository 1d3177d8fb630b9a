"""layerstep solve: classical solvers on every prefix."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from layerstep.cli.options import Flat, TaskOptions, require_plot
from layerstep.cli.output import Output, table

PAPER = "richardson,cg,gd,nesterov"
LINEAR = "gd-weights,newton,cg-weights,nesterov-weights"


def run(
    *,
    solvers: str | None = None,
    steps: int = 200,
    task: Flat = TaskOptions(),  # noqa: B008
    prompts: int = 256,
    seed: int = 256,
    target: Literal["noisy", "noiseless"] = "noisy",
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
        target: compare with the noisy label or with the noiseless function.
        plot: also draw the errors at the longest context into this file (.png, .svg or .pdf).
        names: print every solver, and which name of the literature is which; run nothing.
    """
    from layerstep.errors import require_choice, require_count
    from layerstep.progress import showing
    from layerstep.solvers import SOLVERS, exact, solve_all
    from layerstep.tasks import LinearRegression, sample

    if names:
        return _list()
    require_count(prompts=prompts)
    require_count(1, 2**53, steps=steps)
    asked = task.task()
    solvers = solvers or (LINEAR if isinstance(asked, LinearRegression) else PAPER)
    asked_for = list(SOLVERS) if solvers == "all" else [name.strip() for name in solvers.split(",")]
    for name in asked_for:
        require_choice("--solvers", name, SOLVERS)
    require_plot(plot)
    shown = sorted({0, steps, *(round(steps ** (i / 6)) for i in range(7))})
    with showing(words=f"{len(asked_for)} solvers, {prompts} prompts") as show:
        drawn = sample(asked, prompts, seed)
        paths = solve_all({name: (SOLVERS[name], shown) for name in asked_for}, drawn, asked, progress=show)
    goal = drawn.target if target == "noisy" else drawn.noiseless_target
    errors = {name: path.mse(goal) for name, path in paths.items()}
    krr = (exact(drawn, asked) - goal).square().mean(0)
    if plot is not None:
        _draw(plot, shown, errors, float(krr[-1]), asked.N)
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
    title = f"mean squared error by step; {target} labels, n = {asked.N}, {prompts} prompts"
    drawing = [] if plot is None else [f"figure: {plot}"]
    return Output(data, [title, table(["solver", *map(str, shown)], rows), *drawing])


def _list() -> Output:
    from layerstep.solvers import SOLVERS
    from layerstep.solvers.names import LITERATURE, literature

    rows = [[name, solver.label, ", ".join(sorted(solver.needs))] for name, solver in SOLVERS.items()]
    fields = ("literature", "name", "what", "same")
    data = {
        "solvers": [dict(zip(("name", "label", "needs"), row, strict=True)) for row in rows],
        "literature": [dict(zip(fields, row, strict=True)) for row in LITERATURE],
    }
    return Output(data, [table(["name", "solver", "needs of the kernel"], rows), literature()])


def _shown(error: float) -> str:
    return f"{error:.3g}" if math.isfinite(error) else "diverges"


def _draw(file: Path, shown, errors, krr: float, N: int) -> None:
    from layerstep.files import write_aside
    from layerstep.plotting import INK, figure
    from layerstep.solvers import SOLVERS

    with figure(6.5, 3.6) as fig:
        ax = fig.subplots()
        for i, (name, error) in enumerate(errors.items()):
            ax.plot(shown, error[:, -1], marker="osd^vPX"[i % 7], markersize=4, label=SOLVERS[name].label)
        ax.axhline(krr, color=INK, linestyle="--", linewidth=1, label="exact KRR")
        ax.set(xscale="symlog", yscale="log", xlabel="step", ylabel=f"mean squared error, n = {N}", xlim=(0, None))
        ax.legend()
    with write_aside(file) as aside:
        fig.savefig(aside, format=file.suffix[1:], dpi=160)
