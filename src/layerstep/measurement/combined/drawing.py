"""The combined result as a figure, and as a piece of a notebook."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from layerstep.errors import as_path, require, require_choice
from layerstep.files import write_aside
from layerstep.measurement.identification.report import headline, one_per_class
from layerstep.measurement.reading.readouts import NAMES

if TYPE_CHECKING:
    from layerstep.measurement.combined.result import Identification

SHOWN = 6  # classes of the ranking


def draw(found: Identification, file: str | os.PathLike | None = None):
    """Distance to KRR of every reading; the nearest classes; what each site's nearest solver leaves; its kernel."""
    from layerstep import plotting

    with plotting.figure(11, 7.8) as figure:
        plots = list(figure.subplots(2, 2).flat)
    file = None if file is None else as_path("file", file)
    suffix = (file.suffix if file else "").lstrip(".") or "png"
    require_choice("suffix of file", suffix, figure.canvas.get_supported_filetypes())
    for axes, part in zip(plots, (_readings, _classes, _sites, _kernels), strict=True):
        if not part(found, axes):
            axes.set_axis_off()
            reason = "; ".join(found.untested.values()) or "not asked"
            axes.text(0.5, 0.5, f"not tested: {reason}", ha="center", va="center", wrap=True, fontsize=9)
    figure.suptitle(_wrapped(found.sentences[0], 110), fontsize=11)
    if file is not None:
        with write_aside(file) as aside:
            plotting.save(figure, aside, suffix)
    return figure


def plot(found: Identification, ax=None):
    """`Identification.plot`."""
    from layerstep import plotting

    ax = plotting.new_axes(6.5, 3.6) if ax is None else ax
    with plotting.look():
        drawn = _readings(found, ax) or _sites(found, ax)
    require(drawn, "identification", f"'{found.status}'", "one with readings or responses to draw", found.sentences[0])
    return ax


def _readings(found: Identification, axes) -> bool:
    from layerstep import plotting

    if found.readings is not None:
        curves = {NAMES[name]: error for name, error in found.readings.errors.items()}
        stages = found.readings.readouts.labels.stages
    elif found.behaviour is not None and found.behaviour.table is not None:
        curves, stages = {found.read_by: found.behaviour.table.distance}, found.behaviour.table.layers
    else:
        return False
    for (name, values), (color, dash) in zip(curves.items(), plotting.LOOKS, strict=False):
        axes.plot(stages.numpy(), values.numpy(), dash, color=color, marker="o", ms=3, label=name)
    axes.set_yscale("log")
    axes.set(xlabel="layer", ylabel="mean squared distance to exact KRR")
    axes.set_title("what is read off every layer", fontsize=10)
    axes.legend(fontsize=8)
    return True


def _classes(found: Identification, axes) -> bool:
    from layerstep import plotting

    verdict = found.own if found.own is not None and found.own.solver else found.behaviour
    if verdict is None or not verdict.overall.fits:
        return False
    fits = one_per_class(verdict.overall)[:SHOWN]
    places = range(len(fits))[::-1]
    axes.barh(places, [fit.score for fit in fits], color=plotting.LOOKS[0].color, height=0.6)
    axes.set_yticks(places, [fit.kind for fit in fits])
    axes.set_xlabel("share of the explainable distance to KRR left")
    axes.set_title(f"nearest classes: {headline(verdict.overall)}", fontsize=10)
    return True


def _sites(found: Identification, axes) -> bool:
    from layerstep import plotting

    result = found.interventions
    tested = [] if result is None else [layer for layer in result.layers if layer.match is not None]
    if result is None or not tested:
        return False
    left = [max(layer.match.unexplained, 1e-6) for layer in tested if layer.match is not None]
    axes.plot(range(len(tested)), left, color=plotting.LOOKS[0].color, marker="o", ms=4, lw=1)
    axes.axhspan(1e-7, result.rule.unexplained, color=plotting.GREEN, alpha=0.15, lw=0)
    axes.set_yscale("log")
    axes.set_ylim(min(1e-3, *left) / 2, 1.2)
    axes.set_xticks(range(len(tested)), [layer.site for layer in tested], rotation=60, fontsize=8, ha="right")
    for place, layer in enumerate(tested):
        if layer.match is not None:
            text = f"{layer.match.solver}, {layer.match.form}"
            low = left[place] < 0.03
            axes.annotate(text, (place, left[place]), rotation=90, fontsize=6, ha="center",
                           va="bottom" if low else "top", xytext=(0, 6 if low else -6),
                           textcoords="offset points")  # fmt: skip
    axes.set_ylabel("response the nearest solver leaves")
    axes.set_title("written into: shaded, a claim is possible", fontsize=10)
    return True


def _kernels(found: Identification, axes) -> bool:
    from layerstep import plotting

    sites = list(found.operator.items())
    if not sites:
        return False
    picked = sites[:: max(1, -(-len(sites) // 5))]
    for index, (site, operator) in enumerate(picked):
        distance, response = zip(*operator.profile, strict=True)
        size = max(map(abs, response)) or 1.0
        color, dash = plotting.LOOKS[index % len(plotting.LOOKS)]
        axes.plot(distance, [value / size for value in response], dash, color=color, label=site)
    axes.axhline(0, color=plotting.INK, lw=0.5)
    axes.set(xlabel="distance of query and example", ylabel="mean response (largest: 1)")
    axes.set_title("the measured operator: response one layer on", fontsize=10)
    axes.legend(fontsize=8)
    return True


def _wrapped(text: str, width: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))
