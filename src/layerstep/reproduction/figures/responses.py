"""What layers do with what is written into them: a bump followed to the output, and the kernel of every layer."""

from __future__ import annotations

import math
from collections.abc import Callable

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from layerstep.measurement.interventions.operator import Operator
from layerstep.plotting import BLUE, INK, ORANGE, figure
from layerstep.reproduction.figures.networks import Networks, name_of
from layerstep.reproduction.figures.result import Result, Table
from layerstep.reproduction.numbers import Impulse, Numbers, WrittenInto

#: The plots of the kernels, in two lines: what is known above, what was trained on labels below.
SHOWN = {
    "planted-richardson": "made by hand: runs Richardson",
    "richardson-functional": "trained to run Richardson",
    "untrained-causal": "untrained",
    "sphere": "trained on labels, sphere",
    "uniform": "trained on labels, uniform",
    "open-uniform": "trained, uniform, open mask",
}
#: The columns of the bumps, and by form of the solver what is shown of the first two.
FOLLOWED = {
    "by hand": {"functional": "planted-richardson", "dual": "planted-richardson-dual"},
    "trained to run it": {"functional": "richardson-functional", "dual": "richardson-dual"},
    "untrained": {"functional": "untrained-causal", "dual": "untrained-causal"},
    "trained on labels": {"functional": "sphere", "dual": "sphere"},
}
WRITTEN = {"functional": "residual", "dual": "coefficient"}
SIZE = (8.6, 5.0)


# A bump, followed -----------------------------------------------------------------------------------------------------


def bump(numbers: Numbers) -> Result | None:
    found = {
        f"{title}, {form}": each
        for title, names in FOLLOWED.items()
        for form, name in names.items()
        if name in numbers.interventions
        for each in numbers.interventions[name].bumps
        if each.form == form
    }
    if not found:
        return None
    return Result(
        name="interventions-bump",
        title="A bump written into one example, followed to the output",
        caption=(
            "A unit is written into the state of one example, early in the network: into its residual, what is left of "
            "its label (above; it grows into the prediction), or its coefficient (below; an iteration corrects it "
            "away). Across: how far the query is from that example. Up: how much what is read at the query moves, "
            "layer after layer (light to dark; thick: the model's own output), per unit written. Orange: the output of "
            "an iteration with the same number of steps: Richardson's; for the causal model causal Richardson's, "
            "whose state fits into tokens. Trained networks may scale what they hold, so that shapes tell more than "
            "heights. The small causal network that was trained to run causal Richardson does not follow its line "
            "either: of causal models the picture shows what happens, not what is impossible."
        ),
        data=found,
        draw=lambda: _draw_bumps(found),
        table=lambda: _table_bump(found),
        code=__name__,
    )


def _draw_bumps(found: dict[str, Impulse]) -> Figure:
    with figure(10.4, 4.9) as fig:
        axes = fig.subplots(2, len(FOLLOWED), squeeze=False)
        for line, form in enumerate(WRITTEN):
            for ax, title in zip(axes[line], FOLLOWED, strict=True):
                if (each := found.get(f"{title}, {form}")) is None:
                    ax.remove()
                    continue
                _draw_bump(ax, each)
                ax.axhline(0, color=INK, linewidth=0.5)
                ax.set_title(title if line == 0 else "")
            axes[line][0].set_ylabel(f"{WRITTEN[form]} written:\nchange of the prediction")
        for ax in axes[-1]:
            ax.set_xlabel("distance of query and example")
        fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return fig


def _shown(numbers: Numbers) -> Networks:
    return {name: numbers.interventions[name] for name in SHOWN if name in numbers.interventions}


def _grid(found: Networks, draw: Callable[[Axes, WrittenInto], None], up: str) -> Figure:
    columns = min(3, len(found))
    lines = math.ceil(len(found) / columns)
    with figure(SIZE[0] * columns / 3, SIZE[1] * lines / 2) as fig:
        axes = fig.subplots(lines, columns, squeeze=False)
        for ax, network in zip(axes.flat, found.values(), strict=False):
            draw(ax, network)
            ax.axhline(0, color=INK, linewidth=0.5)
            ax.set_title(SHOWN[network.name])
        for ax in axes[-1]:
            ax.set_xlabel("distance of query and example")
        for ax in axes[:, 0]:
            ax.set_ylabel(up)
        for ax in list(axes.flat)[len(found) :]:
            ax.remove()
        handles = axes.flat[0].get_legend_handles_labels()
        fig.legend(*handles, loc="outside lower center", ncols=4)
    return fig


def _depth_colors(count: int) -> np.ndarray:
    """Light to dark, seen on paper and on a dark page."""
    return mpl.colormaps.get_cmap("Blues")(np.linspace(0.35, 0.8, count))


def _draw_bump(ax: Axes, found: Impulse) -> None:
    response, solver = np.array(found.response), np.array(found.solver)
    for place, (color, line) in enumerate(zip(_depth_colors(len(response) - 1), response[:-1], strict=True)):
        label = {0: "read one layer on", len(response) - 2: "read after the last but one"}.get(place)
        ax.plot(found.distances, line, color=color, linewidth=1.1, label=label)
    ax.plot(found.distances, response[-1], color=BLUE, linewidth=2.6, label="the model's output")
    ax.plot(found.distances, solver[-1], "--", color=ORANGE, linewidth=1.8, label="the iteration's output")


def _table_bump(found: dict[str, Impulse]) -> Table:
    lines = []
    for name, each in found.items():
        steps = [f"step {step}" for step in range(1, len(each.solver) + 1)]
        for kind, places, table in (("network", each.sites, each.response), (each.of, steps, each.solver)):
            for site, line in zip(places, table, strict=True):
                lines += [[name, kind, site, at, value] for at, value in zip(each.distances, line, strict=True)]
    return Table(["network", "of", "after", "distance", "change per unit"], lines)


# The kernel of every layer --------------------------------------------------------------------------------------------


def kernels(numbers: Numbers) -> Result | None:
    found = {name: each for name, each in _shown(numbers).items() if _operators_of(each)}
    if not found:
        return None
    return Result(
        name="interventions-kernels",
        title="What one layer makes of a state, by distance",
        caption=(
            "The measured operator: a unit is written into the state of an example, and what is read at a query one "
            "layer on moves by this much, on average over pairs of points so far apart (over the largest; light to "
            "dark: first to last layer). Orange: the kernel of the task, of which a step of Richardson's iteration is "
            "made. The table says how much of the response the nearest Gaussian kernel explains, and of what width."
        ),
        data={name: each.result for name, each in found.items()},
        draw=lambda: _grid(found, _draw_kernels, "response one layer on\n(largest: 1)"),
        table=lambda: _table_kernels(numbers.interventions),
        summary=_operators(found),
        code=__name__,
    )


def _draw_kernels(ax: Axes, network: WrittenInto) -> None:
    operators = _operators_of(network)
    colors = _depth_colors(len(operators))
    for place, (color, operator) in enumerate(zip(colors, operators.values(), strict=True)):
        distance, mean = np.array(operator.profile).T
        size = np.abs(mean).max()
        label = {0: "first layer", len(operators) - 1: "last layer"}.get(place)
        ax.plot(distance, mean / max(size, 1e-300), color=color, linewidth=1.3, label=label)
    far = np.array(next(iter(operators.values())).profile)[:, 0]
    kernel = np.exp(-(far**2) / (2 * network.v**2))
    ax.plot(far, kernel / kernel.max(), "--", color=ORANGE, linewidth=1.8, label="a step of Richardson's")


def _operators_of(network: WrittenInto) -> dict[str, Operator]:
    """Of the sites where a state was found that could be written."""
    found = [layer for layer in network.result.layers if layer.match is not None]
    return {layer.site: layer.one_layer for layer in found if layer.one_layer is not None}


def _operators(found: Networks) -> Table:
    lines = []
    for network in found.values():
        for site, operator in _operators_of(network).items():
            lines.append(
                [
                    name_of(network),
                    site,
                    f"{operator.bandwidth:.2f}",
                    {"none": "none", "query": "by query", "example": "by example"}[operator.normalisation],
                    f"{operator.gain:.3g}",
                    f"{operator.explained:.0%}",
                    f"{operator.explained_by_distance:.0%}",
                    f"{operator.by_order:.0%}",
                ]
            )
    header = ["network", "written at", "kernel's width", "normalised", "gain", "it explains"]
    return Table([*header, "any function of distance", "order adds"], lines)


def _table_kernels(found: Networks) -> Table:
    header = ["bandwidth", "normalisation", "gain", "explained", "explained_by_distance", "by_order", "size"]
    lines = [
        [name, layer.site, way, *(getattr(operator, key) for key in header)]
        for name, network in found.items()
        for layer in network.result.layers
        for way, operator in (("one layer on", layer.one_layer), ("output", layer.to_output))
        if operator is not None
    ]
    return Table(["network", "site", "to", *header], lines)
