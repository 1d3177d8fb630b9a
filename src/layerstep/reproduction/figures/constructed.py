"""Constructed transformers: what they promise and reach, one seen block by block, and one beside trained models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from layerstep.plotting import BLUE, INK, LOOKS, ORANGE, figure
from layerstep.reproduction.figures.plots import error_axis, final_errors, name_exact, richardson_lines
from layerstep.reproduction.figures.result import Result, Table, select, summary_steps, table_steps
from layerstep.reproduction.numbers import Models, Numbers, Schemes, Walk

# Block by block -------------------------------------------------------------------------------------------------------


def walk(numbers: Numbers) -> Result | None:
    found = numbers.walk
    if found is None:
        return None
    return Result(
        name="walk",
        title="A transformer solves a kernel system, block by block",
        caption=(
            "A compact network reads the examples (points) and answers at every x at once. No weight of it was "
            "trained: attention computes kernel sums, a small MLP takes a step of the Chebyshev iteration, and after "
            "the last block the answer is within the guaranteed error of exact kernel ridge regression (dashed). "
            "Shaded: how far each answer can be from it, computed from the prompt."
        ),
        data=found,
        draw=lambda: _draw_walk(found),
        table=lambda: _table_walk(found),
        code=__name__,
    )


def _draw_walk(found: Walk) -> Figure:
    last = len(found.readout) - 1
    shown = sorted({min(stage, last) for stage in (1, 5, 25, last)})
    with figure(10.5, 2.7) as fig:
        axes = fig.subplots(1, len(shown), sharey=True)
        for ax, stage in zip(axes, shown, strict=True):
            ax.plot(found.queries, found.exact, color=INK, linestyle="--", linewidth=1, label="exact KRR")
            value, bound = np.array(found.readout[stage]), np.array(found.bounds[stage])
            ax.fill_between(found.queries, value - bound, value + bound, color=ORANGE, alpha=0.15, linewidth=0)
            ax.plot(found.queries, value, color=ORANGE, label="the transformer's answer, and its bound")
            ax.plot(found.x, found.y, "o", color=BLUE, markersize=4, label="examples in the prompt")
            ax.set(title=f"after iteration {stage}", xlabel="x")
        axes[0].set_ylabel("y")
        every = np.array([*found.y, *found.exact, *np.ravel([found.readout[stage] for stage in shown])])
        beyond = 0.15 * np.ptp(every) or 1.0  # bounds of the first answers are wider
        axes[0].set_ylim(every.min() - beyond, every.max() + beyond)
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    return fig


def _table_walk(found: Walk) -> Table:
    lines = [
        [stage, query, value, bound, solution]
        for stage, (values, bounds) in enumerate(zip(found.readout, found.bounds, strict=True))
        for query, value, bound, solution in zip(found.queries, values, bounds, found.exact, strict=True)
    ]
    return Table(["iteration", "query", "readout", "bound", "exact"], lines)


# Schemes --------------------------------------------------------------------------------------------------------------


def schemes(numbers: Numbers) -> Result | None:
    found = numbers.schemes
    if found is None:
        return None
    return Result(
        name="schemes",
        title="What is promised and what is reached, in the paper's setting",
        caption=(
            f"Blocks, hidden units of their MLPs and parameters that guarantee an error of {found.error} on every "
            f"prompt of the paper's setting (sphere) whose labels are {found.B_y:g} or less: the paper's own "
            "network, the same iteration without approximation (the exact scheme, with Richardson's steps and "
            "Chebyshev's, which need far fewer), and the compact one. Figure: distance of the compact read-out to "
            "exact kernel ridge regression by iteration (median and largest over prompts), and the median of the "
            "bounds computed for each."
        ),
        data=found,
        draw=lambda: _draw_schemes(found),
        table=lambda: _table_schemes(found),
        summary=_summary_schemes(found),
        code=__name__,
    )


def _draw_schemes(found: Schemes) -> Figure:
    curve = found.curve
    with figure(6.8, 3.4) as fig:
        ax = fig.subplots()
        stages = np.maximum(curve.stages, 0.5)  # iteration 0 has its place on a logarithmic axis
        ax.fill_between(stages, curve.median_error, curve.largest_error, color=BLUE, alpha=0.18, linewidth=0)
        ax.plot(stages, curve.median_error, color=BLUE, label="true error: median, and up to the largest")
        ax.plot(stages, curve.median_bound, "--", color=ORANGE, label="bound computed from the prompt, median")
        promised = f"promised before any prompt: {curve.promised:.2g}"
        ax.axhline(curve.promised, color=INK, linestyle=":", label=promised)
        ax.set(xscale="log", yscale="log", xlabel="iterations (one block each)", ylabel="distance to exact KRR")
        ax.legend(loc="lower left")
    return fig


def _table_schemes(found: Schemes) -> Table:
    curve = found.curve
    columns = (curve.stages, curve.median_error, curve.largest_error, curve.median_bound, curve.largest_bound)
    header = ["stages", "median_error", "largest_error", "median_bound", "largest_bound"]
    return Table(header, [list(line) for line in zip(*columns, strict=True)])


def _summary_schemes(found: Schemes) -> Table:
    lines = [
        [
            ", ".join(f"{option}={value!r}" for option, value in size.options.items()),
            size.steps,
            f"{size.depth:,}",
            _large(size.width),
            _large(size.parameters),
            f"{size.bound:.4f}",
        ]
        for size in found.sizes.values()
    ]
    return Table(["network", "steps of", "blocks", "MLP units", "parameters", "guaranteed error"], lines)


def _large(value: float) -> str:
    return f"{value:,}" if value < 1e9 else f"{value:.1e}"


# Beside a trained model -----------------------------------------------------------------------------------------------


def beside_trained(numbers: Numbers) -> Result | None:
    """Error and best Richardson step by layer: the trained model on the sphere, if it is here, and constructed ones."""
    if not numbers.constructed:
        return None
    trained = {name: replace(model, label="trained") for name, model in select(numbers.models, ["sphere"]).items()}
    models = trained | numbers.constructed
    other = numbers.constructed["constructed-chebyshev"].richardson.r2
    return Result(
        name="constructed-vs-trained",
        title="Trained and constructed, in the same plots (ours)",
        caption=(
            "Left: error by layer with 40 examples. Right: the Richardson step most similar to each layer. A "
            "constructed transformer that takes one Richardson step per block gives a straight line, R² = 1: this is "
            "what the paper's claim would look like. The one that takes Chebyshev steps, another solver, has "
            f"R² = {other:.3f}: a straight line alone names no solver."
        ),
        data=models,
        draw=lambda: _draw_beside(models),
        table=lambda: table_steps(models),
        summary=_summary_beside(models),
        code=__name__,
    )


def _draw_beside(models: Models) -> Figure:
    with figure(10.8, 3.6) as fig:
        left, right = fig.subplots(1, 2)
        shown = list(zip(models.values(), LOOKS, strict=False))
        final_errors(left, shown)
        richardson_lines(right, shown)
        krr = shown[0][0].krr[-1]
        left.axhline(krr, color=INK, linestyle="--", linewidth=1)
        error_axis(left)
        name_exact(left, krr)
        right.set_ylabel("best-matching Richardson step")
        fig.legend(*right.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return fig


def _summary_beside(models: Models) -> Table:
    header, lines = summary_steps(models)
    lines = [
        [model.label, *cells, f"{model.won} of {model.depth}"]
        for model, (_, *cells) in zip(models.values(), lines, strict=True)
    ]
    return Table([*header, "layers most like Richardson"], lines)
