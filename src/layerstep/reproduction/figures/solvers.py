"""Results of the classical solvers alone: error against step, condition numbers, conjugate gradients by precision."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from layerstep.plotting import BLUE, INK, LOOKS, ORANGE, figure
from layerstep.reproduction.figures.plots import curve_plots, error_axis, name_exact
from layerstep.reproduction.figures.result import Result, Table
from layerstep.reproduction.numbers import (
    EVALUATION_SEQUENCES,
    TITLES,
    Conditioning,
    Numbers,
    Precision,
    SolverCurves,
    to_json,
)
from layerstep.reproduction.reference import KAPPA, KAPPA_ROUNDING, Comparison

# Error against step (figure 1, plots b-e, and its twins for other inputs) --------------------------------------------


def convergence(numbers: Numbers, setting: str) -> Result | None:
    curves = numbers.curves.get(setting)
    if curves is None:
        return None
    return Result(
        name=f"convergence-{setting}",
        title=f"Classical solvers, step by step: {TITLES[setting]}",
        caption=(
            "Mean squared error of the four solvers the paper compares with, against the number of steps, for "
            f"growing context length n; {TITLES[setting]} inputs, {EVALUATION_SEQUENCES} prompts. The dashed line is "
            "exact kernel ridge regression at the longest context, which all four reach there in the end: what "
            "differs is how many steps it takes. Each n predicts another point, so that with so few prompts a shorter "
            "context may have the smaller error."
        ),
        data=curves,
        draw=lambda: _draw_curves(curves),
        table=lambda: table_curves(curves),
        code=__name__,
    )


def _draw_curves(curves: SolverCurves) -> Figure:
    with figure(10.5, 2.9) as fig:
        axes = fig.subplots(1, len(curves.solvers), sharey=True)
        curve_plots(axes, curves, floor=curves.krr[-1])
        error_axis(axes[0])
        name_exact(axes[-1], curves.krr[-1], f"exact KRR, n = {curves.contexts[-1]}")
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return fig


def table_curves(curves: SolverCurves) -> Table:
    lines = [
        [name, n, int(step), value]
        for name, solver in curves.solvers.items()
        for n, mse in zip(curves.contexts, solver.mse, strict=True)
        for step, value in zip(solver.steps, mse, strict=True)
    ]
    return Table(["solver", "n", "step", "mse"], lines)


# Condition numbers ----------------------------------------------------------------------------------------------------


def conditioning(numbers: Numbers) -> Result | None:
    found = numbers.conditioning
    if not found:
        return None
    return Result(
        name="conditioning",
        title="What the row-sum preconditioner does",
        caption=(
            "Condition numbers of the kernel system, which bound how many steps a solver needs, without and with the "
            "row-sum preconditioner; and the inverse of the largest preconditioned eigenvalue. Dividing by row sums "
            "brings that eigenvalue close to 1 for every prompt, so that one step size serves all; it need not lower "
            "the condition number."
        ),
        data=found,
        draw=lambda: _draw_conditioning(found),
        table=lambda: _table_conditioning(found),
        summary=_summary_conditioning(found),
        comparisons=_compare_conditioning(found),
        code=__name__,
    )


def _compare_conditioning(found: dict[str, Conditioning]) -> tuple[Comparison, ...]:
    # The paper writes "≈ 3,000" and "≈ 10,000": one significant digit, so half a unit of it either way.
    return tuple(
        Comparison(
            quantity=f"condition number of K + λI, {TITLES[setting]}",
            where="depth ablation",
            paper=paper,
            ours=found[setting].kappa.median,
            low=found[setting].kappa.low,
            high=found[setting].kappa.high,
            rounding=KAPPA_ROUNDING[setting],
            note="the paper gives one digit (≈)",
        )
        for setting, paper in KAPPA.items()
    )


def _draw_conditioning(found: dict[str, Conditioning]) -> Figure:
    with figure(7.2, 3.0) as fig:
        ax = fig.subplots()
        y = np.arange(len(found))[::-1]
        plain, row_sum = [each.kappa for each in found.values()], [each.kappa_row_sum for each in found.values()]
        kinds = ((plain, "K + λI", BLUE, "o", 0.12), (row_sum, "row-sum preconditioned", ORANGE, "s", -0.12))
        for spreads, label, color, marker, shift in kinds:
            median = np.array([spread.median for spread in spreads])
            reach = [median - [spread.p5 for spread in spreads], [spread.p95 for spread in spreads] - median]
            ax.errorbar(median, y + shift, xerr=reach, fmt=marker, color=color, label=label, capsize=2, markersize=5)
        ax.set_yticks(y, [TITLES[setting] for setting in found])
        ax.set(xscale="log", xlabel="condition number at n = 40: median and 5-95 % of sequences")
        ax.legend(loc="lower left")
    return fig


def _table_conditioning(found: dict[str, Conditioning]) -> Table:
    lines = [
        [setting, quantity, *spread.values()]
        for setting, each in found.items()
        for quantity, spread in to_json(each).items()
    ]
    return Table(["setting", "quantity", "median", "p5", "p95", "median_low_256", "median_high_256"], lines)


def _summary_conditioning(found: dict[str, Conditioning]) -> Table:
    lines = [
        [TITLES[setting], f"{each.kappa.median:,.0f}", f"{each.kappa_row_sum.median:,.0f}", f"{each.eta.median:.3f}"]
        for setting, each in found.items()
    ]
    header = ["inputs: medians", "condition number of K + λI", "with row sums", "1 / largest eigenvalue with row sums"]
    return Table(header, lines)


# Conjugate gradients in three precisions ------------------------------------------------------------------------------


def precision(numbers: Numbers) -> Result | None:
    found = numbers.cg_precision
    if found is None:
        return None
    return Result(
        name="cg-precision",
        title="Conjugate gradients: method or rounding?",
        caption=(
            "Conjugate gradients on the same 1,000 prompts (sphere) in exact arithmetic (by reorthogonalization), in "
            "float64 and in float32; errors are against the noiseless function, so that they lie below those of the "
            "other figures. A bump that the first curve does not have is rounding, not the method."
        ),
        data=found,
        draw=lambda: _draw_precision(found),
        table=lambda: Table(
            ["step", *found.curves], [list(line) for line in zip(found.steps, *found.curves.values(), strict=True)]
        ),
        code=__name__,
    )


def _draw_precision(found: Precision) -> Figure:
    with figure(6.2, 3.0) as fig:
        ax = fig.subplots()
        looks = zip((LOOKS[1], LOOKS[0], LOOKS[2]), ("-", "--", ":"), ("o", "s", "^"), strict=True)
        for (name, mse), (look, dash, marker) in zip(found.curves.items(), looks, strict=True):
            ax.plot(found.steps, mse, dash, color=look.color, marker=marker, markersize=3.5, label=name)
        ax.axhline(found.krr, color=INK, linestyle="--", linewidth=1)
        error_axis(ax)
        name_exact(ax, found.krr)
        ax.set(xlabel="step", ylabel="mean squared error, n = 40")
        ax.legend()
    return fig
