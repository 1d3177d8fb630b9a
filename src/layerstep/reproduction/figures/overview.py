"""The figures that answer first: what a constructed and a trained transformer do, and all verdicts on one axis."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from layerstep.plotting import BLUE, INK, LOOKS, ORANGE, Look, figure
from layerstep.reproduction.figures.plots import error_axis, name_exact
from layerstep.reproduction.figures.result import Result, Table
from layerstep.reproduction.numbers import (
    DISTRIBUTIONS,
    TITLES,
    ModelNumbers,
    ModelVerdict,
    Numbers,
    SolverCurves,
    Verdicts,
    calibrated_rule,
    human_name,
)

#: What the trained model is seen beside: a network whose layers are steps of Richardson iteration, and its verdict.
CONSTRUCTED, CONTROL = "constructed-5", "constructed transformer"
STEPS_PER_LAYER = 5
SIZE = (4.9, 3.3)  # inches: two beside each other on a desk, one above the other on a phone
Shares = tuple[list[float], list[float]]


def errors_by_layer(numbers: Numbers) -> Result | None:
    """A constructed and a trained transformer beside the steps of a solver."""
    constructed, trained = numbers.constructed.get(CONSTRUCTED), numbers.models.get("sphere")
    curves = numbers.curves.get("sphere")
    if constructed is None or trained is None or curves is None:
        return None
    return Result(
        name="overview-errors",
        title="Error after each layer",
        caption=(
            "40 examples, points on a sphere. The constructed transformer (dots) takes "
            f"{STEPS_PER_LAYER} steps of Richardson iteration (line) per layer; the trained one goes another way."
        ),
        data={"constructed": constructed, "trained": trained, "curve": curves.solvers["richardson"]},
        draw=lambda: _draw_errors(constructed, trained, curves),
        table=lambda: _table_errors(constructed, trained),
        code=__name__,
    )


def _draw_errors(constructed: ModelNumbers, trained: ModelNumbers, curves: SolverCurves) -> Figure:
    richardson = curves.solvers["richardson"]
    row = curves.contexts.index(max(curves.contexts))
    steps, errors = np.array(richardson.steps), np.array(richardson.mse[row])
    shown = steps <= STEPS_PER_LAYER * constructed.depth
    with figure(*SIZE) as fig:
        ax = fig.subplots()
        ax.plot(steps[shown] / STEPS_PER_LAYER, errors[shown], color=ORANGE, label="Richardson iteration, a solver")
        look = {"color": ORANGE, "markersize": 5, "label": "constructed transformer"}
        ax.plot(constructed.layers, constructed.layer_mse[-1], "o", **look)
        look = {"color": BLUE, "markersize": 4, "label": "trained transformer"}
        ax.plot(trained.layers, trained.layer_mse[-1], "--s", **look)
        krr = trained.krr[-1]
        ax.axhline(krr, color=INK, linestyle=":", linewidth=1)
        error_axis(ax)
        name_exact(ax, krr, "exact answer")
        ax.set(xlabel="layer", title="Error after each layer")
        ax.legend(loc="upper right")
    return fig


def _table_errors(constructed: ModelNumbers, trained: ModelNumbers) -> Table:
    models = {"constructed": constructed, "trained": trained}
    lines = [
        [name, layer, error]
        for name, model in models.items()
        for layer, error in zip(model.layers, model.layer_mse[-1], strict=True)
    ]
    return Table(["model", "layer", "mean squared error"], lines)


def unexplained(numbers: Numbers) -> Result | None:
    """What the nearest solver leaves of every layer, of a constructed and of trained transformers."""
    shares = {name: _shares(verdict) for name in (CONTROL, *DISTRIBUTIONS) if (verdict := _compared(numbers, name))}
    if CONTROL not in shares or len(shares) < 2:
        return None
    return Result(
        name="overview-unexplained",
        title="What no solver explains, layer by layer",
        caption=(
            "The share of a layer's distance to the exact answer that the nearest solver of the library leaves "
            "unexplained, whatever its number of steps, bandwidth and ridge, as read by a linear probe. What runs "
            "one of these solvers lies at 0."
        ),
        data=shares,
        draw=lambda: _draw_unexplained(shares),
        table=lambda: _table_unexplained(shares),
        code=__name__,
    )


def _compared(numbers: Numbers, name: str) -> ModelVerdict | None:
    found = numbers.verdicts.get(name)
    return found if found is not None and found.U_layer else None


def _shares(verdict: ModelVerdict) -> Shares:
    """Layers, and on each the share that the family leaves which is nearest on it."""
    return verdict.layers, np.nanmin(np.array(verdict.U_layer, float), axis=0).tolist()


def _draw_unexplained(shares: dict[str, Shares]) -> Figure:
    looks: dict[str, Look] = dict(zip((CONTROL, *DISTRIBUTIONS), LOOKS, strict=False))
    with figure(*SIZE) as fig:
        ax = fig.subplots()
        for name, (layers, values) in shares.items():
            label = "constructed (Richardson)" if name == CONTROL else f"trained, {TITLES[name]}"
            look = {"color": looks[name].color, "marker": "o" if name == CONTROL else "s", "markersize": 4}
            ax.plot(layers, values, looks[name].dash, label=label, clip_on=False, **look)
        ax.set(xlabel="layer", ylabel="unexplained share", ylim=(-0.02, 1), title="What no solver explains")
        ax.legend(loc="upper left")
    return fig


def _table_unexplained(shares: dict[str, Shares]) -> Table:
    lines = [[name, layer, value] for name, line in shares.items() for layer, value in zip(*line, strict=True)]
    return Table(["model", "layer", "unexplained by the nearest family"], lines)


# All verdicts on one axis ---------------------------------------------------------------------------------------------


def verdict_axis(numbers: Numbers) -> Result | None:
    """V, what decides, of every model and control, with the limit as a line."""
    found = {name: verdict for name, verdict in numbers.verdicts.items() if verdict.V is not None}
    if not found:
        return None
    rule = calibrated_rule()
    return Result(
        name="verdict-axis",
        title="Every model and every control on one axis",
        caption=(
            "The structured part of what the nearest solver leaves of the layers' predictions (V, logarithmic). A "
            f"solver is named left of the line ({rule.v_limit:g}) if it is nearer than any other by a margin. Controls "
            "are paths whose solver is known; the word beside each dot is the nearest class."
        ),
        data={"verdicts": found, "limit": rule.v_limit},
        draw=lambda: _draw_axis(found, rule.v_limit),
        table=lambda: _table_axis(found),
        code=__name__,
    )


def _sorted(found: Verdicts) -> list[ModelVerdict]:
    """Controls first, then models; each from the smallest V."""
    return sorted(found.values(), key=lambda verdict: (not verdict.is_control, verdict.V or 0.0))


def _draw_axis(found: Verdicts, limit: float) -> Figure:
    listed = _sorted(found)
    with figure(6.4, 0.9 + 0.2 * len(listed)) as fig:
        ax = fig.subplots()
        for line, verdict in enumerate(listed):
            color, marker = (ORANGE, "o") if verdict.is_control else (BLUE, "s")
            value = max(verdict.V or 0.0, 1e-5)
            ax.plot(value, line, marker, color=color, markersize=5)
            ax.annotate(
                verdict.nearest or "", (value, line), xytext=(7, 0), textcoords="offset points", va="center", fontsize=7
            )
        ax.axvline(limit, color=INK, linestyle="--", linewidth=1)
        ax.text(0.86 * limit, -0.9, "limit", ha="right", va="center", fontsize=7.5, color=INK)
        names = [f"{human_name(each.name)} (control)" if each.is_control else human_name(each.name) for each in listed]
        ax.set_yticks(range(len(listed)), names, fontsize=7.5)
        ax.set(xscale="log", xlabel="structured part left by the nearest solver (V)", ylim=(len(listed) - 0.4, -1.5))
        ax.set_xlim(right=3 * max(verdict.V or 0.0 for verdict in listed))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.grid(axis="y", visible=False)
    return fig


def _table_axis(found: Verdicts) -> Table:
    lines = [
        [each.name, human_name(each.name), each.truth, each.nearest, each.V, each.solver] for each in _sorted(found)
    ]
    return Table(["model", "in words", "truth", "nearest", "V", "named"], lines)
