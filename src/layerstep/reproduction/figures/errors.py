"""Error by layer beside the solvers' error by step (figures 1, 4, 6), and models without softmax (figure 8)."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from layerstep.plotting import figure
from layerstep.reproduction.figures.plots import error_row, solver_lines
from layerstep.reproduction.figures.result import (
    Result,
    Table,
    model_title,
    select,
    steps_caption,
    summary_steps,
    table_steps,
    trained,
)
from layerstep.reproduction.figures.solvers import table_curves
from layerstep.reproduction.numbers import (
    SOLVER_LABELS,
    TITLES,
    ModelNumbers,
    Models,
    Numbers,
    SolverCurves,
    r2_text,
    twin,
)


def of_model(numbers: Numbers, name: str, where: str) -> Result | None:
    """The model's error layer by layer beside the solvers' step by step."""
    model = numbers.models.get(name)
    curves = numbers.curves_beside(model) if model else None
    if model is None or curves is None:
        return None
    return Result(
        name=f"trained-{name}",
        title=f"Error by layer: {model_title(model)} ({where})",
        caption=(
            "Left: what the model would answer if it stopped after each layer (read off by a linear probe), as mean "
            "squared error, for growing numbers n of examples. Right: four classical solvers after each step, on the "
            "same prompts. The dashed line is the model's last layer at the longest context." + trained({name: model})
        ),
        data={"model": model, "curves": curves},
        draw=lambda: _draw_errors(model, curves),
        table=lambda: _table_errors(model, curves),
        code=__name__,
    )


def _draw_errors(model: ModelNumbers, curves: SolverCurves) -> Figure:
    with figure(12.5, 2.9) as fig:
        axes = fig.subplots(1, 1 + len(curves.solvers), sharey=True)
        error_row(axes, model, curves)
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return fig


def _table_errors(model: ModelNumbers, curves: SolverCurves) -> Table:
    layers = [
        ["transformer", n, int(layer), value]
        for n, mse in zip(model.contexts, model.layer_mse, strict=True)
        for layer, value in zip(model.layers, mse, strict=True)
    ]
    return Table(["solver", "n", "step_or_layer", "mse"], layers + table_curves(curves).lines)


KINDS = {
    "linear": ("the plain product of queries and keys, divided by nothing", "Figure 8"),
    "linear-mean": ("the product of queries and keys, divided by the number of visible keys", "ours, beside Figure 8"),
}


def attention(numbers: Numbers, kind: str) -> Result | None:
    """Error curves and best-matching steps of models whose attention has no softmax; a row per input distribution."""
    names = [f"{kind}-{inputs}" for inputs in ("uniform", "gaussian", "sphere")]
    models = select(numbers.models, names)
    curves = {model.setting: found for model in models.values() if (found := numbers.curves_beside(model))}
    if not models or len(curves) < len(models):
        return None
    softmax = select(numbers.models, [twin(numbers.models, [name], model.setting) for name, model in models.items()])
    what, where = KINDS[kind]
    return Result(
        name=f"attention-{kind}",
        title=f"Without softmax: {what} ({where})",
        caption=(
            f"The same model with linear attention: its weights are {what}. Above, a row per input distribution: error "
            "by layer, beside the four solvers by step; the dashed line is the model's last layer at the longest "
            "context. Below: best-matching steps. The paper: without softmax no solver's best-matching steps are "
            f"linear for all three input distributions. {steps_caption(models)}"
            + trained(models | softmax, [*names, *softmax])
        ),
        data={"models": models, "softmax": softmax, "curves": curves},
        draw=lambda: _draw_attention(models, curves),
        table=lambda: _table_attention(models, curves),
        summary=_summary_attention(models, softmax),
        code=__name__,
    )


def _draw_attention(models: Models, curves: dict[str, SolverCurves]) -> Figure:
    """Above: errors by layer and by step, a row per input distribution. Below: best-matching steps of each."""
    with figure(10.8, 2.3 * len(models) + 3.4) as fig:
        halves: Any = fig.subfigures(2, 1, height_ratios=(2.3 * len(models), 3.4))
        above, below = halves
        rows = above.subplots(len(models), 1 + len(SOLVER_LABELS), sharey="row", squeeze=False)
        for axes, model in zip(rows, models.values(), strict=True):
            error_row(axes, model, curves[model.setting], TITLES[model.setting])
        handles = rows[0, 0].get_legend_handles_labels()
        above.legend(*handles, loc="outside lower center", ncols=len(handles[0]))
        for ax, model in zip(below.subplots(1, len(models), squeeze=False)[0], models.values(), strict=True):
            solver_lines(ax, model, columns=1)
            ax.set_title(TITLES[model.setting])
    return fig


def _table_attention(models: Models, curves: dict[str, SolverCurves]) -> Table:
    lines = []
    for name, model in models.items():
        lines += [[name, "mse", *line] for line in _table_errors(model, curves[model.setting]).lines]
        steps = table_steps({name: model}).lines
        lines += [[name, "best step", solver, "", layer, mean] for _, solver, layer, mean, *_ in steps]
    return Table(["model", "quantity", "solver", "n", "step_or_layer", "value"], lines)


def _summary_attention(models: Models, softmax: Models) -> Table:
    """R² without softmax, the lowest of it, and R² of the same model with softmax."""
    header, lines = summary_steps(models)
    lowest = [r2_text(np.min([model.solvers[name].r2 for model in models.values()])) for name in SOLVER_LABELS]
    usual = [[f"with softmax: {name}", *cells] for name, *cells in summary_steps(softmax).lines]
    return Table(header, [*lines, ["lowest of these", *lowest], *usual])
