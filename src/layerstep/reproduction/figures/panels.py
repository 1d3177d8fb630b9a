"""Panels that figures are put together from: errors by layer, a SimE heat map, best-matching steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from layerstep.plotting import INK, SOLVER_COLORS, SOLVER_DASHES
from layerstep.reproduction.figures.convergence import draw_curves, draw_solvers, error_axis
from layerstep.reproduction.result import Data
from layerstep.solvers import PAPER_SOLVERS, SOLVERS

LABELS = {name: SOLVERS[name].label for name in PAPER_SOLVERS}
MAP = "cividis"


def convergence_row(axes: np.ndarray, model: Data, solvers: Data, title: str = "Transformer") -> None:
    """The model layer by layer, then the solvers step by step; dashed: its last layer at the longest context."""
    floor = model["layer_mse"][-1][-1]
    draw_curves(axes[0], model["layers"], model["layer_mse"], model["contexts"], marker="o", markersize=3)
    axes[0].axhline(floor, color=INK, linestyle="--", linewidth=1)
    axes[0].set(title=title, xlabel="layer")
    draw_solvers(axes[1:], solvers, floor)
    error_axis(axes[0])


def lowest(models: Sequence[Data]) -> float:
    """The smallest SimE shown, so that all panels of a figure share one colour scale."""
    return min(float(np.min(solver["sime"])) for model in models for solver in model["solvers"].values())


def heat_map(ax: Axes, model: Data, solver: str, low: float, numbers: bool = False) -> ScalarMappable:
    """SimE of every layer with the solver's steps; squares mark the most similar step (numbers: its SimE)."""
    layers, found = np.array(model["layers"][1:]), model["solvers"][solver]
    steps = np.array(found["steps"]) + 1  # step 0 has its place on a logarithmic axis
    image = ax.pcolormesh(
        layers, steps, np.array(found["sime"]).T, cmap=MAP, norm=Normalize(low, 1), shading="nearest", rasterized=True
    )
    best = np.array(found["best_step"]) + 1
    look = {"markerfacecolor": "none", "markeredgecolor": "#D55E00", "markeredgewidth": 1.4, "clip_on": False}
    ax.plot(layers, best, "s", markersize=5 if len(layers) <= 12 else 3.5, **look)
    if numbers:
        for layer, step, value in zip(layers, best, found["best_sime"], strict=True):
            below = step > steps[-1] / 2
            place = {"xytext": (0, -9 if below else 7), "textcoords": "offset points", "ha": "center", "va": "center"}
            ax.annotate(f"{value:.2f}", (layer, step), fontsize=6.5, color=INK if value > 0.75 else "white", **place)
    ticks = [t for t in (0, 1, 3, 10, 30, 100, 300, 1000) if t < steps[-1]]
    ax.set(yscale="log")
    ax.set_yticks([t + 1 for t in ticks], [str(t) for t in ticks])
    ax.set_xticks(layers[:: max(1, len(layers) // 6)])
    ax.minorticks_off()
    ax.grid(False)
    return image


def r2_words(r2: float, digits: int = 3) -> str:
    """R² of best-matching steps; a model whose layers all match one step has none."""
    return "none" if isnan(r2) else f"{r2:.{digits}f}"


def trajectory(
    ax: Axes, model: Data, solver: str, *, label: str, color: str | None = None, dash: str | None = None, band=True
) -> None:
    """Mean best-matching step by layer, one standard deviation over sequences, and the line through inner layers."""
    color, dash = color or SOLVER_COLORS[solver], dash or SOLVER_DASHES[solver]
    layers, found = np.array(model["layers"][1:]), model["solvers"][solver]
    mean, sd = np.array(found["mean"]), np.array(found["sd"])
    if band:
        low, high = (np.clip(edge, 0, found["steps"][-1]) for edge in (mean - sd, mean + sd))
        ax.fill_between(layers, low, high, color=color, alpha=0.12, linewidth=0)
    ax.plot(layers, mean, dash, color=color, marker="o", markersize=3.5, label=label)
    cut = np.array(found["at_cap"]) > 0.1
    ax.plot(layers[cut], mean[cut], "o", color=color, markerfacecolor="white", markersize=3.5)
    inside = layers[(layers >= model["range"][0]) & (layers <= model["range"][1])]
    line = Line2D(inside, found["intercept"] + found["slope"] * inside, color=color, linewidth=0.8)
    ax.add_artist(line)  # not `plot`: a line that leaves the range of steps does not widen it
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="layer", ylabel="best-matching step", ylim=(0, 1.04 * max(ax.dataLim.ymax, 1)))


def trajectories(ax: Axes, model: Data, columns: int = 2) -> None:
    """Best-matching steps of the four solvers in one panel, its legend of so many columns below.

    Conjugate gradients need few steps: beside the others they would be a flat line, and have an inset of their own.
    """
    inset = ax.inset_axes((0.06, 0.56, 0.29, 0.36))
    handles = []
    for solver, found in model["solvers"].items():
        panel, where = (inset, " (inset)") if solver == "cg" else (ax, "")
        trajectory(panel, model, solver, label=f"{LABELS[solver]}{where}, R² = {r2_words(found['r2'])}")
        handles += panel.get_legend_handles_labels()[0][-1:]
    inset.set_title(LABELS["cg"], fontsize=7)
    inset.set(xlabel="", ylabel="")
    inset.tick_params(labelsize=6.5)
    ax.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(-0.02, -0.2), ncols=columns)
