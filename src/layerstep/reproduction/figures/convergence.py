"""Error against step for the four classical solvers (figure 1, panels b-e, and its twins for other inputs)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from layerstep.plotting import INK, context_colors, figure
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.settings import CONTEXTS, EVALUATION_SEQUENCES, SETTINGS, TITLES, evaluation_prompts
from layerstep.solvers import PAPER_SOLVERS, SOLVERS, ConjugateGradient, exact, solve_all

CG_STEPS, BUDGET = 40, 200


@functools.lru_cache(maxsize=len(SETTINGS))  # a setting's curves stand beside several models
def curves(setting: str, sequences: int, budget: int) -> Data:
    """Mean squared error against the noisy label by solver, context length and step, and that of exact KRR."""
    task, prompts = SETTINGS[setting], evaluation_prompts(setting, sequences)
    # Exact CG: the plain recursion's bumps from step 12 on are rounding (see the figure on CG precision).
    chosen = {**SOLVERS, "cg": ConjugateGradient(reorthogonalize=True)}
    shown = sorted({*range(min(budget, 50) + 1), *range(0, budget + 1, max(1, budget // 200)), budget})
    steps = {name: list(range(CG_STEPS + 1)) if name == "cg" else shown for name in PAPER_SOLVERS}
    paths = solve_all({name: (chosen[name], steps[name]) for name in PAPER_SOLVERS}, prompts, task, contexts=CONTEXTS)
    columns = [n - 1 for n in CONTEXTS]
    target = prompts.target[:, columns]
    return {
        "setting": setting,
        "contexts": list(CONTEXTS),
        "krr": (exact(prompts, task)[:, columns] - target).square().mean(0).tolist(),
        "solvers": {
            name: {"label": path.label, "steps": path.stages.tolist(), "mse": path.mse(target).T.tolist()}
            for name, path in paths.items()
        },
    }


def draw(data: Data) -> Figure:
    with figure(10.5, 2.9) as fig:
        axes = fig.subplots(1, len(data["solvers"]), sharey=True)
        draw_solvers(axes, data, floor=data["krr"][-1])
        error_axis(axes[0])
        name_exact(axes[-1], data["krr"][-1], f"exact KRR, n = {data['contexts'][-1]}")
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return fig


def draw_solvers(axes: np.ndarray, data: Data, floor: float) -> None:
    """One panel a solver: error against step, a line a context length, and a dashed line at `floor`."""
    for ax, solver in zip(axes, data["solvers"].values(), strict=True):
        draw_curves(ax, solver["steps"], solver["mse"], data["contexts"])
        ax.axhline(floor, color=INK, linestyle="--", linewidth=1)
        ax.set(title=solver["label"], xlabel="step")


def draw_curves(ax: Axes, x: Sequence[float], mse: Sequence[Sequence[float]], contexts: Sequence[int], **look) -> None:
    for color, n, values in zip(context_colors(len(contexts)), contexts, mse, strict=True):
        ax.plot(x, values, color=color, label=f"n = {n}", **look)


def error_axis(ax: Axes) -> None:
    """A logarithmic axis of mean squared errors with plain numbers, fewer of a decade where there are more decades."""
    ax.set(ylabel="mean squared error", yscale="log")
    low, high = ax.get_ylim()
    digits = (1, 2, 3, 4, 6) if high < 8 * low else (1, 2, 5) if high < 2000 * low else (1,)
    ticks = [digit * 10.0**power for power in range(-6, 7) for digit in digits]
    ticks = [tick for tick in ticks if low <= tick <= high]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()


def name_exact(ax: Axes, value: float, words: str = "exact KRR") -> None:
    """Words below the line at `value` of a logarithmic axis, and room for them."""
    look = {"ha": "right", "va": "top", "fontsize": 7.5, "color": INK}
    ax.text(0.98, 0.97 * value, words, transform=ax.get_yaxis_transform(), **look)
    ax.set_ylim(bottom=min(ax.get_ylim()[0], 0.78 * value))


def table(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = [
        [name, n, int(step), value]
        for name, solver in data["solvers"].items()
        for n, mse in zip(data["contexts"], solver["mse"], strict=True)
        for step, value in zip(solver["steps"], mse, strict=True)
    ]
    return ["solver", "n", "step", "mse"], lines


def artefact(setting: str) -> Artefact:
    return Artefact(
        name=f"convergence-{setting}",
        title=f"Classical solvers, step by step: {TITLES[setting]}",
        caption=(
            "Mean squared error of the four solvers the paper compares with, against the number of steps, for "
            f"growing context length n; {TITLES[setting]} inputs, {EVALUATION_SEQUENCES} prompts. The dashed line is "
            "exact kernel ridge regression at the longest context, which all four reach there in the end: what "
            "differs is how many steps it takes. Each n predicts another point, so that with so few prompts a shorter "
            "context may have the smaller error."
        ),
        config={"setting": setting, "sequences": EVALUATION_SEQUENCES, "budget": BUDGET},
        compute=lambda of: curves(of["setting"], of["sequences"], of["budget"]),
        draw=draw,
        table=table,
    )
