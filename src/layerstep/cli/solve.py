"""layerstep solve: classical solvers on every prefix."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Literal

from layerstep.cli.task import Flat


def run(
    solvers: str = "richardson,cg,gd,nesterov",
    steps: int = 200,
    *,
    task: Flat,
    sequences: int = 256,
    seed: int = 256,
    target: Literal["noisy", "noiseless"] = "noisy",
    json: bool = False,
    plot: Path | None = None,
) -> None:
    """Run classical solvers on every prefix of sampled prompts and print their errors step by step.

    Args:
        solvers: names separated by commas; `all` for the whole library.
        steps: the largest number of steps; errors are shown at about eight of them, evenly in the logarithm.
        task: the prompts.
        sequences: number of prompts.
        seed: seed of the prompts.
        target: compare with the noisy label or with the noiseless function.
        json: print all errors, by solver, step and context length, as JSON.
        plot: also draw the errors at the longest context into this file (.png, .svg or .pdf).
    """
    from layerstep.cli.bar import progress_bar
    from layerstep.errors import require, require_choice, require_count
    from layerstep.files import require_writable
    from layerstep.solvers import SOLVERS, exact, solve_all
    from layerstep.tasks import sample

    require_count(1, steps=steps, sequences=sequences)
    require(steps < 2**53, "steps", steps, "below 2**53")
    names = list(SOLVERS) if solvers == "all" else [name.strip() for name in solvers.split(",")]
    for name in names:
        require_choice("--solvers", name, SOLVERS)
    if plot is not None:
        require_choice("--plot suffix", plot.suffix, [".png", ".svg", ".pdf"])
        require_writable(plot)
    law = task.task()
    shown = sorted({0, steps, *(round(steps ** (i / 6)) for i in range(7))})
    with progress_bar() as progress:
        bar = progress.add_task(f"{len(names)} solvers, {sequences} prompts", total=1.0)
        prompts = sample(law, sequences, seed)
        paths = solve_all(
            {name: (SOLVERS[name], shown) for name in names},
            prompts,
            law,
            progress=lambda done: progress.update(bar, completed=done),
        )
    goal = prompts.target if target == "noisy" else prompts.noiseless_target
    errors = {name: path.mse(goal) for name, path in paths.items()}
    krr = (exact(prompts, law) - goal).square().mean(0)
    if plot is not None:
        _draw(plot, shown, errors, float(krr[-1]), law.N)
    if json:
        result = {
            "task": law.to_dict(),
            "sequences": sequences,
            "seed": seed,
            "target": target,
            "steps": shown,
            "contexts": list(range(1, law.N + 1)),
            "mse": {name: error.tolist() for name, error in errors.items()},
            "krr": krr.tolist(),
        }
        print(json_module.dumps(result))
        return
    _print_table(shown, errors, float(krr[-1]), f"{target} labels, n = {law.N}, {sequences} prompts")
    if plot is not None:
        print(f"figure: {plot}")


def _print_table(shown, errors, krr: float, title: str) -> None:
    from rich import box
    from rich.table import Table

    from layerstep.cli.table import print_table

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("solver", no_wrap=True)
    for step in shown:
        table.add_column(str(step), justify="right", no_wrap=True)
    for name, error in errors.items():
        table.add_row(name, *(f"{value:.3g}" for value in error[:, -1].tolist()))
    table.add_row("exact KRR", *([""] * (len(shown) - 1)), f"{krr:.3g}")
    print(f"mean squared error by step; {title}")
    print_table(table)


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
