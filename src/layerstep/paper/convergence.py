"""Error against step for the four classical solvers (figure 1, panels b-e, and its twins for other inputs)."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from layerstep.paper.artefact import Artefact, Data
from layerstep.paper.settings import CONTEXTS, SETTINGS, TITLES, evaluation_prompts
from layerstep.paper.style import INK, context_colors, figure
from layerstep.solvers import PAPER_SOLVERS, SOLVERS, ConjugateGradient, exact, solve_all

STEPS = {"richardson": 200, "cg": 40, "gd": 200, "nesterov": 200}


def compute(config: Data) -> Data:
    """Mean squared error against the noisy label by solver, context length and step, and that of exact KRR."""
    setting = config["setting"]
    task, prompts = SETTINGS[setting], evaluation_prompts(setting, config["sequences"])
    # Exact CG: the plain recursion's bumps from step 12 on are rounding (see the figure on CG precision).
    chosen = {**SOLVERS, "cg": ConjugateGradient(reorthogonalize=True)}
    paths = solve_all({name: (chosen[name], STEPS[name]) for name in PAPER_SOLVERS}, prompts, task, contexts=CONTEXTS)
    columns = [n - 1 for n in CONTEXTS]
    target = prompts.target[:, columns]
    error = (exact(prompts, task)[:, columns] - target).square()
    return {
        "setting": setting,
        "contexts": list(CONTEXTS),
        "krr": error.mean(0).tolist(),
        "krr_standard_error": (error.std(0) / len(error) ** 0.5).tolist(),
        "solvers": {
            name: {"label": path.label, "steps": path.stages.tolist(), "mse": path.mse(target).T.tolist()}
            for name, path in paths.items()
        },
    }


def draw(data: Data) -> Figure:
    with figure(10.5, 2.9) as fig:
        axes = fig.subplots(1, len(data["solvers"]), sharey=True)
        colors = context_colors(len(data["contexts"]))
        for ax, solver in zip(axes, data["solvers"].values(), strict=True):
            for color, n, mse in zip(colors, data["contexts"], solver["mse"], strict=True):
                ax.plot(solver["steps"], mse, color=color, label=f"n = {n}")
            ax.axhline(data["krr"][-1], color=INK, linestyle="--", linewidth=1)
            ax.set(title=solver["label"], xlabel="step", yscale="log")
        axes[0].set_ylabel("mean squared error")
        axes[-1].text(
            0.98, data["krr"][-1] * 0.96, f"exact KRR, n = {data['contexts'][-1]}", fontsize=7.5, color=INK,
            transform=axes[-1].get_yaxis_transform(), ha="right", va="top",
        )  # fmt: skip
        axes[0].set_yticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
        axes[0].minorticks_off()
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return fig


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
            f"growing context length n; {TITLES[setting]} inputs, 256 sequences. The dashed line is exact kernel "
            "ridge regression at the longest context, which all four reach in the end: what differs is how many "
            "steps it takes."
        ),
        config={"setting": setting, "sequences": 256, "steps": STEPS},
        compute=compute,
        draw=draw,
        table=table,
    )
