"""Every network that was written into, on one axis; and the same networks read by probes and by their own heads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from layerstep.plotting import BLUE, GREEN, INK, ORANGE, PINK, figure
from layerstep.reproduction.figures.result import Result, Table
from layerstep.reproduction.numbers import TITLES, Numbers, Reading, WrittenInto, calibrated_rule

Networks = Mapping[str, WrittenInto]
#: How a group is called, and its colour.
GROUPS = {
    "planted": ("made by hand to run a solver", ORANGE),
    "positive": ("trained to run a solver", ORANGE),
    "near miss": ("trained to run its neighbour", PINK),
    "decoy": ("holds a solver's state, does not use it", PINK),
    "untrained": ("untrained", INK),
    "labels": ("trained on labels, small", GREEN),
    "open": ("trained on labels, open mask", BLUE),
    "causal": ("trained on labels, causal mask", BLUE),
}


def name_of(network: WrittenInto) -> str:
    """A network in words."""
    known = {
        "sphere": "sphere", "uniform": "uniform", "gaussian": "Gaussian, s.d. 0.6",
        "planted-richardson-dual": "by hand: Richardson, dual",
        "planted-richardson": "by hand: Richardson", "planted-causal-richardson": "by hand: causal Richardson",
        "untrained-causal": "untrained, causal mask", "untrained-open": "untrained, open mask",
    }  # fmt: skip
    if network.group == "open":
        seed = network.name.rpartition("seed-")[2] if "seed" in network.name else ""
        return f"open mask, {TITLES[network.inputs]}" + (f", seed {seed}" if seed else "")
    words = {"positive": "trained to run: ", "near miss": "near miss: ", "decoy": "decoy: ", "labels": "small: "}
    return known.get(network.name, words.get(network.group, "") + network.name.replace("-", " "))


# Every layer of every network -----------------------------------------------------------------------------------------


def axis(numbers: Numbers) -> Result | None:
    """What the nearest solver leaves of the response of every layer."""
    found = {name: each for name, each in numbers.interventions.items() if each.left}
    if not found:
        return None
    limit = next(iter(found.values())).result.rule.unexplained
    return Result(
        name="interventions-axis",
        title="Every layer of every network that was written into",
        caption=(
            "A dot per layer: the share of the output's response to white noise in the layer's state that the nearest "
            f"solver leaves, in its nearest form, width and number of steps left. A claim needs at most {limit:g} "
            "(dashed) in neighbouring layers, and more: that every other solver leaves far more, that the steps left "
            "fall, and that random directions do worse."
        ),
        data={name: each.result for name, each in found.items()},
        draw=lambda: _draw_axis(found, limit),
        table=lambda: _table_axis(found),
        summary=_summary(found),
        code=__name__,
    )


def _draw_axis(found: Networks, limit: float) -> Figure:
    with figure(6.6, 1.1 + 0.2 * len(found)) as fig:
        ax = fig.subplots()
        for line, network in enumerate(found.values()):
            color = GROUPS[network.group][1]
            left = np.clip(network.left, 1e-8, 1)
            ax.plot(left, [line] * len(left), "o", color=color, markersize=4, alpha=0.75, markeredgewidth=0)
            ax.plot(median(left), line, "|", color=INK, markersize=9)
        ax.axvline(limit, color=INK, linestyle="--", linewidth=1)
        ax.set_yticks(range(len(found)), [name_of(each) for each in found.values()], fontsize=7.5)
        ax.set(xscale="log", xlabel="share of the response that the nearest solver leaves", ylim=(len(found) - 0.4, -1))
        ax.grid(axis="y", visible=False)
    return fig


def _table_axis(found: Networks) -> Table:
    lines = []
    for name, network in found.items():
        for layer in network.result.layers:
            match = layer.match
            if match is not None:
                seen = [match.solver, match.form, match.bandwidth, match.steps_left, match.unexplained, match.gain]
                lines.append(
                    [name, network.group, network.truth, layer.site, *seen, network.result.rule.refuses(layer)]
                )
    header = ["network", "group", "truth", "site", "nearest", "form", "bandwidth", "steps left", "left", "gain"]
    return Table([*header, "no claim, because"], lines)


def _summary(found: Networks) -> Table:
    lines = []
    for network in found.values():
        nearest = [layer.match for layer in network.result.layers if layer.match is not None]
        right = sum(match.solver == network.truth for match in nearest)
        known = network.group in ("planted", "positive")
        lines.append(
            [
                name_of(network),
                GROUPS[network.group][0],
                network.claimed or "no claim",
                f"{right} of {len(nearest)}" if known else "",
                f"{median(network.left):.2g}",
                _said(network.readings.get("labels")),
                _said(network.readings.get("lens")),
            ]
        )
    header = ["network", "what it is", "written into", "nearest is right in layers", "left, median"]
    return Table([*header, "probes fitted on y", "its own head"], lines)


def _said(reading: Reading | None) -> str:
    if reading is None:
        return ""
    return reading.solver or f"none (nearest {reading.nearest})"


# Read three ways ------------------------------------------------------------------------------------------------------


def readings(numbers: Numbers) -> Result | None:
    """The same networks, read by probes fitted on y and by their own heads."""
    found = {
        name: each
        for name, each in numbers.interventions.items()
        if each.readings.get("labels")
        and each.group in ("planted", "positive", "labels", "untrained", "causal", "open")
    }
    if not any(each.group in ("planted", "positive") for each in found.values()):
        return None
    return Result(
        name="interventions-readings",
        title="The same layers, read by probes and by the network's own head",
        caption=(
            "The structured part of what the nearest class leaves (V, as in the figure of all verdicts), of probes "
            "fitted on y (squares) and of the network's own head at every layer (circles). Right of the line nothing "
            "may be named. Networks that run a solver lie right of it, too, as long as they are read by probes."
        ),
        data={name: [each.group, each.readings] for name, each in found.items()},
        draw=lambda: _draw_readings(found),
        table=lambda: _table_readings(found),
        summary=_table_readings(found),
        code=__name__,
    )


def _draw_readings(found: Networks) -> Figure:
    limit = calibrated_rule().v_limit
    looks = {"labels": ("s", BLUE, "probes fitted on y"), "lens": ("o", ORANGE, "its own head")}
    with figure(6.6, 1.5 + 0.2 * len(found)) as fig:
        ax = fig.subplots()
        for reading, (marker, color, label) in looks.items():
            values = [each.readings[reading].V if reading in each.readings else None for each in found.values()]
            shown = [math.nan if value is None else max(value, 1e-5) for value in values]
            ax.plot(shown, range(len(found)), marker, color=color, markersize=5, label=label)
        ax.axvline(limit, color=INK, linestyle="--", linewidth=1)
        ax.set_yticks(range(len(found)), [name_of(each) for each in found.values()], fontsize=7.5)
        ax.set(xscale="log", xlabel="structured part left by the nearest class (V)", ylim=(len(found) - 0.4, -1))
        fig.legend(loc="outside lower center", ncols=2)
        ax.grid(axis="y", visible=False)
    return fig


def _table_readings(found: Networks) -> Table:
    names = {"labels": "probes fitted on y", "output": "maps to the output", "lens": "its own head"}
    lines = [
        [name_of(each), each.truth or "", *(_said(each.readings.get(name)) for name in names)]
        for each in found.values()
    ]
    return Table(["network", "runs", *names.values()], lines)
