"""SimE of every layer with every step of a solver (figures 2a, 5, 7)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from layerstep.plotting import figure
from layerstep.reproduction.figures.plots import heat_map, lowest_sime
from layerstep.reproduction.figures.result import Result, Table, model_title, select, trained
from layerstep.reproduction.numbers import EVALUATION_SEQUENCES, SOLVER_LABELS, ModelNumbers, Models, Numbers, twin

CAPTION = (
    "For every layer and every step of a solver: how alike the errors of the two are (SimE, the mean cosine between "
    f"them over {EVALUATION_SEQUENCES} prompts, 1 is the same). Squares mark the step whose mean similarity is "
    "largest, while R² elsewhere is that of the mean over prompts of each prompt's best step. Steps are on a "
    "logarithmic scale: layers that take one and the same number of steps rise ever more slowly on it, and a straight "
    "diagonal is a number of steps that multiplies from layer to layer. High values alone are not evidence: all "
    "good predictors share most of their error."
)


def heat(numbers: Numbers, name: str, where: str) -> Result | None:
    """One large heat map: the layers of one model against Richardson steps."""
    model = numbers.models.get(name)
    if model is None:
        return None
    return Result(
        name=f"heat-{name}",
        title=f"Similarity of errors with Richardson: {model_title(model)} ({where})",
        caption=f"{CAPTION} The number beside a square is its SimE.{trained({name: model})}",
        data={name: model},
        draw=lambda: _draw_one(model),
        table=lambda: _table({name: model}),
        code=__name__,
    )


def _draw_one(model: ModelNumbers) -> Figure:
    with figure(7.2, 4.2) as fig:
        ax = fig.subplots()
        image = heat_map(ax, model, "richardson", lowest_sime({model.name: model}), numbers=True)
        ax.set(xlabel="layer", ylabel="Richardson step")
        fig.colorbar(image, ax=ax, label="SimE")
    return fig


def of_solvers(numbers: Numbers, names: Sequence[str], key: str, where: str) -> Result | None:
    """Heat maps of the four solvers (rows) for several models (columns), one colour scale."""
    models = select(numbers.models, names)
    if not models:
        return None
    return Result(
        name=f"sime-{key}",
        title=f"Similarity of errors with four solvers ({where})",
        caption=CAPTION + trained(models, names),
        data=models,
        draw=lambda: _draw_grid(models),
        table=lambda: _table(models),
        summary=Table(
            ["model", *(f"layers most like {label}" for label in SOLVER_LABELS.values())],
            [[name, *(str(model.alignment.won[solver]) for solver in SOLVER_LABELS)] for name, model in models.items()],
        ),
        code=__name__,
    )


def _draw_grid(models: Models) -> Figure:
    low = lowest_sime(models)
    with figure(3.4 * len(models) + 1.6, 9.6) as fig:
        axes = fig.subplots(len(SOLVER_LABELS), len(models), squeeze=False, sharex="col")
        for column, model in zip(axes.T, models.values(), strict=True):
            for ax, solver in zip(column, SOLVER_LABELS, strict=True):
                image = heat_map(ax, model, solver, low)
            column[0].set_title(model_title(model))
            column[-1].set_xlabel("layer")
        for ax, label in zip(axes[:, 0], SOLVER_LABELS.values(), strict=True):
            ax.set_ylabel(f"{label} step")
        fig.colorbar(image, ax=axes, label="SimE", shrink=0.6)
    return fig


def _table(models: Models) -> Table:
    lines = [
        [name, solver, int(layer), int(step), value]
        for name, model in models.items()
        for solver, found in model.solvers.items()
        for layer, row in zip(model.layers[1:], found.sime, strict=True)
        for step, value in zip(found.steps, row, strict=True)
    ]
    return Table(["model", "solver", "layer", "step", "sime"], lines)


def kernels(numbers: Numbers) -> Result | None:
    """The arc-cosine kernel beside the Gaussian one."""
    names = [twin(numbers.models, ["arccos1"]), "arccos1"] if "arccos1" in numbers.models else []
    return of_solvers(numbers, names, "kernel", "section on the arc-cosine kernel")
