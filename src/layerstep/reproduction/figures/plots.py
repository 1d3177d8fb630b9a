"""Plots that figures are put together from: errors by layer and step, a SimE heat map, best-matching steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from layerstep import plotting
from layerstep.plotting import INK, LOOKS, SOLVER_LOOKS, Look, context_colors
from layerstep.reproduction.numbers import CUT, SOLVER_LABELS, TITLES, ModelNumbers, Models, SolverCurves, human_name

SETTING_LOOKS: dict[str, Look] = dict(zip(("sphere", "uniform", "gaussian", "gaussian-1.0"), LOOKS, strict=False))


def curve_plots(axes: np.ndarray, curves: SolverCurves, floor: float) -> None:
    """One plot per solver: error against step, a line per context length, and a dashed line at `floor`."""
    for ax, solver in zip(axes, curves.solvers.values(), strict=True):
        _context_lines(ax, solver.steps, solver.mse, curves.contexts)
        ax.axhline(floor, color=INK, linestyle="--", linewidth=1)
        ax.set(title=solver.label, xlabel="step")


def _context_lines(
    ax: Axes, x: Sequence[float], mse: Sequence[Sequence[float]], contexts: Sequence[int], **look
) -> None:
    for color, n, values in zip(context_colors(len(contexts)), contexts, mse, strict=True):
        ax.plot(x, values, color=color, label=f"n = {n}", **look)


def error_row(axes: np.ndarray, model: ModelNumbers, curves: SolverCurves, title: str = "Transformer") -> None:
    """The model layer by layer, then the solvers step by step; dashed: its last layer at the longest context."""
    floor = model.layer_mse[-1][-1]
    _context_lines(axes[0], model.layers, model.layer_mse, model.contexts, marker="o", markersize=3)
    axes[0].axhline(floor, color=INK, linestyle="--", linewidth=1)
    axes[0].set(title=title, xlabel="layer")
    curve_plots(axes[1:], curves, floor)
    error_axis(axes[0])


def error_axis(ax: Axes) -> None:
    """A logarithmic axis of mean squared errors with plain numbers, fewer per decade where there are more decades."""
    ax.set(ylabel="mean squared error", yscale="log")
    low, high = ax.get_ylim()
    digits = (1, 2, 3, 4, 6) if high < 8 * low else (1, 2, 5) if high < 2000 * low else (1,)
    ticks = [digit * 10.0**power for power in range(-6, 7) for digit in digits]
    ticks = [tick for tick in ticks if low <= tick <= high]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()


def name_exact(ax: Axes, value: float, words: str = "exact KRR") -> None:
    """Words below the line at `value` of a logarithmic axis, and space for them."""
    look = {"ha": "right", "va": "top", "fontsize": 7.5, "color": INK}
    ax.text(0.98, 0.97 * value, words, transform=ax.get_yaxis_transform(), **look)
    ax.set_ylim(bottom=min(ax.get_ylim()[0], 0.78 * value))


def final_errors(ax: Axes, models: Sequence[tuple[ModelNumbers, Look]], labels: bool = False) -> None:
    """Error by layer at the longest context, a line per model."""
    for model, look in models:
        label = human_name(model.name) if labels else None
        ax.plot(model.layers, model.layer_mse[-1], look.dash, color=look.color, marker="o", markersize=3, label=label)
    ax.set(xlabel="layer")


def lowest_sime(models: Models) -> float:
    """The smallest SimE shown, so that all plots of a figure share one colour scale."""
    return min(float(np.min(solver.sime)) for model in models.values() for solver in model.solvers.values())


def heat_map(ax: Axes, model: ModelNumbers, solver: str, low: float, numbers: bool = False) -> ScalarMappable:
    """SimE of every layer with the solver's steps; squares mark the most similar step (numbers: its SimE)."""
    layers, found = np.array(model.layers[1:]), model.solvers[solver]
    steps, best = np.array(found.steps), np.array(found.best_step)
    image = plotting.heat_map(ax, layers, steps, np.array(found.sime), best, low)
    if numbers:
        for layer, step, value in zip(layers, best + 1, found.best_sime, strict=True):
            below = step > steps[-1] / 2
            place = {"xytext": (0, -9 if below else 7), "textcoords": "offset points", "ha": "center", "va": "center"}
            ax.annotate(
                f"{value:.2f}", (layer, step), fontsize=6.5, color="black" if value > 0.75 else "white", **place
            )
    return image


def step_line(
    ax: Axes, model: ModelNumbers, solver: str, label: str, look: Look | None = None, band: bool = True
) -> None:
    """Mean best-matching step by layer, one standard deviation over sequences, and the line through inner layers."""
    color, dash = look or SOLVER_LOOKS[solver]
    layers, found = np.array(model.layers[1:]), model.solvers[solver]
    mean, sd = np.array(found.mean), np.array(found.sd)
    if band:
        low, high = (np.clip(edge, 0, found.steps[-1]) for edge in (mean - sd, mean + sd))
        ax.fill_between(layers, low, high, color=color, alpha=0.12, linewidth=0)
    ax.plot(layers, mean, dash, color=color, marker="o", markersize=3.5, label=label)
    cut = np.array(found.at_cap) > CUT
    ax.plot(layers[cut], mean[cut], "o", color=color, markerfacecolor="none", markersize=3.5)
    inside = layers[(layers >= model.alignment.first) & (layers <= model.alignment.last)]
    line = Line2D(inside, found.intercept + found.slope * inside, color=color, linewidth=0.8)
    ax.add_artist(line)  # not `plot`: a line that leaves the range of steps does not widen it
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="layer", ylabel="best-matching step", ylim=(0, 1.04 * max(ax.dataLim.ymax, 1)))


def richardson_lines(
    ax: Axes,
    models: Sequence[tuple[ModelNumbers, Look]],
    band: bool = True,
    named: Callable[[ModelNumbers], str] = lambda model: model.label,
) -> None:
    """Best-matching Richardson steps of several models, named with their R²."""
    for model, look in models:
        words = f"{named(model)}, R² = {model.richardson.r2_text}"
        step_line(ax, model, "richardson", words, look, band)


def setting_lines(ax: Axes, models: Sequence[ModelNumbers]) -> None:
    """Best-matching Richardson steps of models that differ in their input distribution."""
    for model in models:
        words = f"{TITLES[model.setting]}, R² = {model.richardson.r2_text}"
        step_line(ax, model, "richardson", words, SETTING_LOOKS[model.setting])


def solver_lines(ax: Axes, model: ModelNumbers, columns: int = 2) -> None:
    """Best-matching steps of the four solvers in one plot, its legend of so many columns below.

    Conjugate gradients need few steps: beside the others they would be a flat line, and have an inset of their own.
    """
    inset = ax.inset_axes((0.06, 0.56, 0.29, 0.36))
    handles = []
    for solver, found in model.solvers.items():
        place, where = (inset, " (inset)") if solver == "cg" else (ax, "")
        step_line(place, model, solver, f"{SOLVER_LABELS[solver]}{where}, R² = {found.r2_text}")
        handles += place.get_legend_handles_labels()[0][-1:]
    inset.set_title(SOLVER_LABELS["cg"], fontsize=7)
    inset.set(xlabel="", ylabel="")
    inset.tick_params(labelsize=6.5)
    ax.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(-0.02, -0.2), ncols=columns)
