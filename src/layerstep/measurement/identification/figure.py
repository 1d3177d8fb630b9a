"""The numbers of a verdict in one figure."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from layerstep.errors import as_path, require_choice
from layerstep.files import write_aside
from layerstep.measurement.identification.report import headline, one_per_class, span

if TYPE_CHECKING:
    from layerstep.measurement.identification.result import Verdict

SHOWN = 5  # classes drawn by layer; the ranking shows all


def _looks(count: int) -> list:
    """How classes are drawn, best first: the first few in colour."""
    from layerstep import plotting

    return [*plotting.LOOKS, *max(0, count - SHOWN) * [plotting.Look("0.6", "-")]][:count]


def draw_ranking(verdict: Verdict, axes) -> None:
    """What each class leaves of the explainable distance, best first."""
    overall = verdict.overall
    fits = one_per_class(overall)
    places = range(len(fits))[::-1]
    errors = [[fit.score - fit.score_interval[0] for fit in fits], [fit.score_interval[1] - fit.score for fit in fits]]
    colours = [look.color for look in _looks(len(fits))]
    axes.barh(places, [fit.score for fit in fits], xerr=errors, color=colours, height=0.7)
    axes.set_yticks(places, [fit.kind for fit in fits])
    axes.set_xscale("symlog", linthresh=0.01)
    axes.set_xlim(0, None)
    axes.set_xlabel("score: share of the explainable distance left (5-95 %)")
    axes.set_title(f"{headline(overall)}; margin to {overall.rival}: {overall.margin:.3f}", fontsize=10)


def draw(verdict: Verdict, file: str | os.PathLike | None = None):
    """Ranking of the classes; U and V by layer; fitted steps; the result of every window."""
    from layerstep import plotting

    with plotting.figure(11, 7.6) as figure:
        ranking, unexplained, structured, steps = figure.subplots(2, 2).flat
    file = None if file is None else as_path("file", file)
    suffix = (file.suffix if file else "").lstrip(".") or "png"
    require_choice("suffix of file", suffix, figure.canvas.get_supported_filetypes())
    overall, table = verdict.overall, verdict.table
    assert table is not None
    layers = table.layers.numpy()
    fits = one_per_class(overall)
    looks = _looks(len(fits))
    draw_ranking(verdict, ranking)
    for fit, (color, dash) in zip(fits[:SHOWN], looks, strict=False):
        look = {"color": color, "marker": "o", "ms": 3, "lw": 2.4 if fit is fits[0] else 1}
        unexplained.plot(layers, fit.U_layer.numpy(), dash, **look, label=fit.kind)
        structured.plot(layers, fit.V_layer.numpy(), dash, **look)
    unexplained.plot(layers, table.explainable.numpy(), ":", color=plotting.INK, lw=1, label="explainable")
    unexplained.set(ylim=(0, 1.6), ylabel="U, left of the distance to KRR", xlabel="layer")
    unexplained.legend(fontsize=8, ncol=2, loc="upper left")
    structured.axhspan(-1, verdict.rule.v_limit, color=plotting.GREEN, alpha=0.15, lw=0)
    structured.set_yscale("symlog", linthresh=0.01)
    structured.set(ylim=(-0.02, 2), ylabel="V, left with a pattern", xlabel="layer")
    structured.set_title("shaded: may be claimed", fontsize=10)

    best = fits[0]
    steps.plot(layers, best.step.numpy(), color=looks[0].color, marker="o", ms=4)
    for window in verdict.ranges:
        text = {"identified": str(window.solver), "nothing to identify": ""}.get(window.status, window.status)
        middle = sum(window.layers) / len(window.layers)
        steps.annotate(text, (middle, 0.02), xycoords=("data", "axes fraction"), rotation=90, fontsize=7, ha="center")
    steps.set_yscale("symlog", linthresh=1)
    steps.set(ylabel=f"t of {best.family}", xlabel="layer")
    steps.set_title("fitted step; below, the result of each window of layers", fontsize=10)

    usable = span(overall.usable) or "none"
    figure.suptitle(
        f"{verdict.label}: {headline(overall)}\nU = {overall.U:.3f}, V = {overall.V:.4f}; usable layers {usable}; "
        f"{verdict.sequences} sequences, {verdict.task.inputs} inputs",
        fontsize=11,
    )
    if file is not None:
        with write_aside(file) as aside:
            plotting.save(figure, aside, suffix)
    return figure
