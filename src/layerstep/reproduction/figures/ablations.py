"""What the paper varies, model against model: attention without softmax, another kernel, twice the depth."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from layerstep.plotting import figure
from layerstep.reproduction.figures import convergence
from layerstep.reproduction.figures.capacity import twin
from layerstep.reproduction.figures.panels import LABELS, convergence_row, r2_words, trajectories
from layerstep.reproduction.figures.trained import (
    Found,
    absent,
    by_seed,
    config,
    lengths,
    of_models,
    rows_steps,
    steps_caption,
    summary_steps,
    table_errors,
    table_steps,
    title,
)
from layerstep.reproduction.measurements import ROOMS
from layerstep.reproduction.reference import BEST_STEP_R2, LAYERS_WON
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.runs import DEEP
from layerstep.reproduction.settings import EVALUATION_SEQUENCES, TITLES
from layerstep.solvers import PAPER_SOLVERS

# Linear attention (figure 8) ------------------------------------------------------------------------------------------


def attention(found: Found, kind: str) -> Artefact | None:
    """Error curves and best-matching steps of models whose attention has no softmax; a row a law of inputs."""
    names = [f"{kind}-{law}" for law in ("uniform", "gaussian", "sphere")]
    there = [name for name in names if name in found]
    if not there:
        return None
    what = {
        "linear": "the plain product of queries and keys, divided by nothing",
        "linear-mean": "the product of queries and keys, divided by the number of visible keys",
    }[kind]

    twins = [twin(found, [name], found[name]["setting"]) for name in there]
    twins = [name for name in twins if name in found]

    def compute(_: Data) -> Data:
        models, softmax = ({name: found[name] for name in names} for names in (there, twins))
        settings, of = [model["setting"] for model in models.values()], (EVALUATION_SEQUENCES, convergence.BUDGET)
        curves = {setting: convergence.curves(setting, *of) for setting in settings}
        return {"models": models, "softmax": softmax, "curves": curves}

    return Artefact(
        name=f"attention-{kind}",
        title=f"Without softmax: {what} ({'Figure 8' if kind == 'linear' else 'ours, beside Figure 8'})",
        caption=(
            f"The same model with linear attention: its weights are {what}. Above, a row a law of inputs: error by "
            "layer, beside the four solvers by step; the dashed line is the model's last layer at the longest context. "
            "Below: best-matching steps. The paper: without softmax no solver's best-matching step is a straight line "
            "for all three laws. " + steps_caption([found[there[0]]]) + lengths([*there, *twins], found)
            + absent(names, found)
        ),
        config=config([*there, *twins]),
        compute=compute,
        draw=draw_attention,
        table=table_attention,
        summary=summary_attention,
        rooms=ROOMS,
    )  # fmt: skip


def draw_attention(data: Data) -> Figure:
    """Above: errors by layer and by step, a row a law. Below: best-matching steps, the laws side by side."""
    models = data["models"].values()
    with figure(10.8, 2.3 * len(models) + 3.4) as fig:
        halves: Any = fig.subfigures(2, 1, height_ratios=(2.3 * len(models), 3.4))
        above, below = halves
        rows = above.subplots(len(models), 1 + len(PAPER_SOLVERS), sharey="row", squeeze=False)
        for axes, model in zip(rows, models, strict=True):
            convergence_row(axes, model, data["curves"][model["setting"]], TITLES[model["setting"]])
        handles = rows[0, 0].get_legend_handles_labels()
        above.legend(*handles, loc="outside lower center", ncols=len(handles[0]))
        for ax, model in zip(below.subplots(1, len(models), squeeze=False)[0], models, strict=True):
            trajectories(ax, model, columns=1)
            ax.set_title(TITLES[model["setting"]])
    return fig


def table_attention(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = []
    for name, model in data["models"].items():
        header, found = table_errors({**model, "curves": data["curves"][model["setting"]]})
        lines += [[name, "mse", *line] for line in found]
        found = table_steps({name: model})[1]
        lines += [[name, "best step", solver, "", layer, mean] for _, solver, layer, mean, *_ in found]
    return ["model", "quantity", *header[:3], "value"], lines


def summary_attention(data: Data) -> tuple[list[str], list[list[str]]]:
    """R² without softmax, the lowest of it, and R² of the same model with softmax."""
    header, lines = summary_steps(data["models"])
    models = data["models"].values()
    worst = [r2_words(np.min([model["solvers"][solver]["r2"] for model in models])) for solver in PAPER_SOLVERS]
    usual = [[f"with softmax: {name}", *cells] for name, *cells in summary_steps(data["softmax"])[1]]
    return header, [*lines, ["lowest of these", *worst], *usual]


# Another kernel -------------------------------------------------------------------------------------------------------


def kernel(found: Found) -> Artefact | None:
    """Best-matching steps with the arc-cosine kernel beside those with the Gaussian one."""
    if "arccos1" not in found:
        return None
    return of_models(
        found,
        [twin(found, ["arccos1"]), "arccos1"],
        name="steps-kernel",
        title="Another kernel: best-matching steps with the arc-cosine kernel",
        caption=lambda models: (
            "The paper trains once more with functions drawn from the arc-cosine kernel and finds the likeness to "
            "Richardson weaker: fewer layers are most similar to it, and the line is less straight. "
            + steps_caption(models)
        ),
        draw=draw_side_by_side,
        table=table_steps,
        summary=summary_kernel,
        rows=lambda data: rows_steps({"model": "arccos1", "models": data, "seeds": by_seed(found)}),
    )


def draw_side_by_side(data: Data) -> Figure:
    with figure(5.4 * len(data), 3.7) as fig:
        axes = fig.subplots(1, len(data), squeeze=False)[0]
        for ax, model in zip(axes, data.values(), strict=True):
            trajectories(ax, model)
            ax.set_title(title(model))
    return fig


def summary_kernel(data: Data) -> tuple[list[str], list[list[str]]]:
    lines = []
    for name, model in data.items():
        quoted = "arccos1" if name == "arccos1" else "sphere"
        r2, won = model["solvers"]["richardson"]["r2"], model["won"]
        line = [
            name,
            f"{won['richardson']}",
            f"{LAYERS_WON[quoted]}",
            r2_words(r2, 4),
            f"{BEST_STEP_R2[quoted]:g}",
        ]
        lines.append([*line, ", ".join(f"{LABELS[solver]} {count}" for solver, count in won.items())])
    header = ["model", "layers most like Richardson, ours", "paper", "R², ours", "paper", "layers most like each"]
    return header, lines


# Depth (figure 7: best-matching steps) --------------------------------------------------------------------------------


def depth(found: Found) -> Artefact | None:
    return of_models(
        found,
        DEEP,
        name="steps-depth",
        title="Twice as deep: best-matching steps of models with 24 layers (with Figure 7)",
        caption=lambda models: (
            "The paper sees a linear trend for Richardson, clearest in the earlier layers (see its claims above). "
            + steps_caption(models)
        ),
        draw=draw_side_by_side,
        table=table_steps,
        summary=summary_steps,
    )
