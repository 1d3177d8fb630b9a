"""The instrument's verdicts on the trained models and on controls whose answer is known."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from layerstep.measurement import CLASSES
from layerstep.plotting import MAP, ORANGE, figure
from layerstep.reproduction.figures.result import Result, Table
from layerstep.reproduction.numbers import DISTRIBUTIONS, Numbers, Verdicts, calibrated_rule, human_name


def of_all(numbers: Numbers) -> Result | None:
    """Verdicts on the models and the controls, by the calibrated rule."""
    found = numbers.verdicts
    if not found:
        return None
    rule = calibrated_rule()
    return Result(
        name="verdicts",
        title="The verdict on every model, with controls whose answer is known",
        caption=(
            "For every model the table shows what the paper's similarity metric says, and what the instrument says. U "
            "is the fraction of the layers' distance to exact kernel ridge regression that the nearest class leaves "
            "unexplained, V the part of it that has a pattern, the margin how much farther every other class is in 99 "
            "of 100 resamples of the prompts (below 0: another class is nearer in some). A "
            f"class is named only if V is at most {rule.v_limit:g}, U at most {rule.u_limit:g} and the margin at "
            f"least {rule.margin_limit:g}. The figure shows U of every class for every model (the nearest has "
            "the least U over the share of a layer that anything explains), and for the three input distributions and "
            "the controls U of every family, a class's members, on every layer (dark: little is left; –: diverges)."
        ),
        data=found,
        draw=lambda: draw_verdicts(found),
        table=lambda: _table(found),
        summary=_summary(found),
        code=__name__,
    )


def draw_verdicts(found: Verdicts) -> Figure:
    """What every class leaves of every model, and by layer what every family leaves of a few: dark is close."""
    compared = {name: verdict for name, verdict in found.items() if verdict.classes}
    few = {name: verdict for name, verdict in compared.items() if name in DISTRIBUTIONS or verdict.is_control}
    lines = math.ceil(len(few) / 3)
    heights = [1.2 + 0.2 * len(compared), 2.9 * lines]
    with figure(9.2, sum(heights)) as fig:
        parts = fig.subfigures(2 if few else 1, 1, height_ratios=heights[: 2 if few else 1], squeeze=False)[:, 0]
        if compared:
            _draw_classes(parts[0].subplots(), compared)
        if few:
            _draw_layers(parts[1], parts[1].subplots(lines, 3, sharey=True, squeeze=False).flatten(), few)
    return fig


def _draw_classes(ax: Axes, found: Verdicts) -> None:
    """U of every class on every model, the nearest in a box."""
    kinds = [kind for kind in CLASSES if any(kind in verdict.classes for verdict in found.values())]
    table = np.array([[verdict.classes.get(kind, math.nan) for kind in kinds] for verdict in found.values()])
    ax.imshow(table, cmap=MAP, vmin=0, vmax=1, aspect="auto")
    for (line, column), value in np.ndenumerate(table):
        words, color = ("–", "black") if math.isnan(value) else (f"{value:.2f}", "white" if value < 0.5 else "black")
        ax.text(column, line, words, ha="center", va="center", fontsize=6.5, color=color)
    for line, verdict in enumerate(found.values()):
        if verdict.nearest in kinds:
            corner = (kinds.index(verdict.nearest) - 0.46, line - 0.42)
            ax.add_patch(Rectangle(corner, 0.92, 0.84, fill=False, edgecolor=ORANGE, linewidth=1.6))
    ax.set_xticks(range(len(kinds)), kinds, rotation=40, ha="right", fontsize=7.5)
    labels = [f"{human_name(name)}: {verdict.headline}" for name, verdict in found.items()]
    ax.set_yticks(range(len(found)), labels, fontsize=7.5)
    ax.set_title("unexplained fraction U by class, mean over layers; the nearest in a box")
    ax.grid(False)


def _draw_layers(fig: SubFigure, axes: np.ndarray, few: Verdicts) -> None:
    """U of every family on every layer."""
    names = sorted({family for verdict in few.values() for family in verdict.families})
    for ax, (name, verdict) in zip(axes, few.items(), strict=False):
        empty = [math.nan] * len(verdict.layers)
        by_family = dict(zip(verdict.families, verdict.U_layer, strict=True))
        table = np.array([by_family.get(family, empty) for family in names])
        scale = LogNorm(vmin=1e-3, vmax=1, clip=True)
        image = ax.pcolormesh(
            verdict.layers, range(len(names)), table, cmap=MAP, norm=scale, shading="nearest", rasterized=True
        )
        ax.set_title(human_name(name))
        ax.set_yticks(range(len(names)), names, fontsize=6.5)
        ax.set_xticks(verdict.layers[:: max(1, len(verdict.layers) // 6)])
        ax.set_xlabel("layer")
        ax.grid(False)
    for ax in axes[len(few) :]:
        ax.remove()
    fig.colorbar(image, ax=list(axes[: len(few)]), label="unexplained fraction U by layer", aspect=40)


def _table(found: Verdicts) -> Table:
    header = ["what", "setting", "status", "solver", "nearest", "U", "V", "margin", "rival", "won"]
    lines = [
        [name, *(getattr(verdict, key) for key in header), *(verdict.classes.get(kind) for kind in CLASSES)]
        for name, verdict in found.items()
    ]
    return Table(["model", *header, *(f"U of {kind}" for kind in CLASSES)], lines)


def _summary(found: Verdicts) -> Table:
    def digits(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    lines = [
        [human_name(name), verdict.what, f"Richardson in {verdict.won} of {verdict.depth} layers", verdict.headline]
        + [digits(value) for value in (verdict.U, verdict.V, verdict.margin)]
        for name, verdict in found.items()
    ]
    header = ["model", "what it is", "the paper's metric says", "the instrument says"]
    return Table([*header, "unexplained U", "structured V", "margin"], lines)
