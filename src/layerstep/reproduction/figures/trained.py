"""Trained models beside the classical solvers: error by layer, SimE heat maps, best-matching steps (figures 1 to 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from layerstep.plotting import LAW_LOOKS, figure
from layerstep.reproduction.figures import convergence
from layerstep.reproduction.figures.panels import (
    LABELS,
    convergence_row,
    heat_map,
    lowest,
    r2_words,
    trajectories,
    trajectory,
)
from layerstep.reproduction.measurements import ROOMS, identity
from layerstep.reproduction.reference import BEST_STEP_R2, LAYERS_WON, PROTOCOL, R2_ROUNDING, Row
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.runs import LAWS, RUNS, SEEDS
from layerstep.reproduction.settings import EVALUATION_SEQUENCES, TITLES
from layerstep.solvers import PAPER_SOLVERS

#: The numbers of every model that is here (`measured.compute`), by name.
Found = Mapping[str, Data]


def title(found: Data) -> str:
    """A model in a few words: its setting, its depth, and what of its attention and training is not the paper's."""
    model, steps = RUNS[found["model"]].run.model, found["trained_steps"]
    words = [TITLES[found["setting"]], f"{model.layers} layers"]
    words += [] if model.attention == "softmax" else [f"{model.attention.replace('-mean', '')} attention"]
    words += [] if steps == PROTOCOL["steps"][1] else [f"{steps:,} training steps"]
    return ", ".join(words)


def config(names: Sequence[str], **more: Any) -> Data:
    """What a figure of these models depends on."""
    return {"models": {name: identity(name) for name in names}, **more}


def absent(names: Sequence[str], found: Found) -> str:
    """A sentence on the models a figure would show and that are not here."""
    missing = [name for name in names if name not in found]
    return f" Not here yet: {', '.join(missing)} (see the training runs)." if missing else ""


def lengths(names: Sequence[str], found: Found) -> str:
    """How the models of a figure were trained, for its caption."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(found[name]["held"], []).append(name)
    return " Training: " + "; ".join(f"{held} ({', '.join(members)})" for held, members in groups.items()) + "."


def of_models(
    found: Found, names: Sequence[str], *, caption: Callable[[list[Data]], str], **parts: Any
) -> Artefact | None:
    """A figure whose numbers are those of the models `names` that are here; `caption` is made from them."""
    there = {name: found[name] for name in names if name in found}
    if not there:
        return None
    words = caption(list(there.values())) + lengths(list(there), found) + absent(names, found)
    return Artefact(caption=words, config=config(list(there)), compute=lambda _: there, rooms=ROOMS, **parts)


# Error by layer (figures 1, 4, 6) -------------------------------------------------------------------------------------


def errors(found: Found, name: str, where: str, budget: int = convergence.BUDGET) -> Artefact:
    """The model's error layer by layer beside the solvers' step by step."""
    model = found[name]

    def compute(of: Data) -> Data:
        keys = ("model", "setting", "contexts", "layers", "layer_mse", "krr")
        curves = convergence.curves(model["setting"], EVALUATION_SEQUENCES, of["budget"])
        return {**{key: model[key] for key in keys}, "curves": curves}

    return Artefact(
        name=f"trained-{name}",
        title=f"Error by layer: {title(model)} ({where})",
        caption=(
            "Left: what the model would answer if it stopped after each layer (read off by a linear probe), as mean "
            "squared error, for growing numbers n of examples. Right: four classical solvers after each step, on the "
            "same prompts. The dashed line is the model's last layer at the longest context." + lengths([name], found)
        ),
        config=config([name], budget=budget),
        compute=compute,
        draw=draw_errors,
        table=table_errors,
        rooms=ROOMS,
    )


def draw_errors(data: Data) -> Figure:
    with figure(12.5, 2.9) as fig:
        axes = fig.subplots(1, 1 + len(data["curves"]["solvers"]), sharey=True)
        convergence_row(axes, data, data["curves"])
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return fig


def table_errors(data: Data) -> tuple[list[str], list[list[Any]]]:
    header, lines = convergence.table(data["curves"])
    layers = [
        ["transformer", n, int(layer), value]
        for n, mse in zip(data["contexts"], data["layer_mse"], strict=True)
        for layer, value in zip(data["layers"], mse, strict=True)
    ]
    return [header[0], header[1], "step_or_layer", header[3]], layers + lines


# SimE heat maps (figures 2a, 5, 7) ------------------------------------------------------------------------------------

SIME_CAPTION = (
    "For every layer and every step of a solver: how alike the errors of the two are (SimE, the mean cosine between "
    f"them over {EVALUATION_SEQUENCES} prompts, 1 is the same). Squares mark the step whose mean similarity is "
    "largest, while R² elsewhere is that of the mean over prompts of each prompt's best step. Steps are on a "
    "logarithmic scale: layers that take one and the same number of steps rise ever more slowly on it, and a straight "
    "diagonal is a number of steps that multiplies from layer to layer. High values are no evidence by themselves: all "
    "good predictors share most of their error."
)


def heat(found: Found, name: str, where: str) -> Artefact | None:
    """One large heat map: the layers of one model against Richardson steps."""
    if name not in found:
        return None
    return of_models(
        found,
        [name],
        name=f"heat-{name}",
        title=f"Similarity of errors with Richardson: {title(found[name])} ({where})",
        caption=lambda _: SIME_CAPTION + " The number beside a square is its SimE.",
        draw=draw_heat,
        table=table_sime,
    )


def draw_heat(data: Data) -> Figure:
    (model,) = data.values()
    with figure(7.2, 4.2) as fig:
        ax = fig.subplots()
        image = heat_map(ax, model, "richardson", lowest([model]), numbers=True)
        ax.set(xlabel="layer", ylabel="Richardson step")
        fig.colorbar(image, ax=ax, label="SimE")
    return fig


def similarity(found: Found, names: Sequence[str], key: str, where: str) -> Artefact | None:
    """Heat maps of the four solvers (rows) for several models (columns), one colour scale."""
    return of_models(
        found,
        names,
        name=f"sime-{key}",
        title=f"Similarity of errors with four solvers ({where})",
        caption=lambda _: SIME_CAPTION,
        draw=draw_similarity,
        table=table_sime,
        summary=summary_won,
    )


def draw_similarity(data: Data) -> Figure:
    low = lowest(list(data.values()))
    with figure(3.4 * len(data) + 1.6, 9.6) as fig:
        axes = fig.subplots(len(PAPER_SOLVERS), len(data), squeeze=False, sharex="col")
        for column, model in zip(axes.T, data.values(), strict=True):
            for ax, solver in zip(column, PAPER_SOLVERS, strict=True):
                image = heat_map(ax, model, solver, low)
            column[0].set_title(title(model))
            column[-1].set_xlabel("layer")
        for ax, solver in zip(axes[:, 0], PAPER_SOLVERS, strict=True):
            ax.set_ylabel(f"{LABELS[solver]} step")
        fig.colorbar(image, ax=axes, label="SimE", shrink=0.6)
    return fig


def table_sime(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = [
        [name, solver, int(layer), int(step), value]
        for name, model in data.items()
        for solver, found in model["solvers"].items()
        for layer, row in zip(model["layers"][1:], found["sime"], strict=True)
        for step, value in zip(found["steps"], row, strict=True)
    ]
    return ["model", "solver", "layer", "step", "sime"], lines


def summary_won(data: Data) -> tuple[list[str], list[list[str]]]:
    lines = [[name, *(str(model["won"][solver]) for solver in PAPER_SOLVERS)] for name, model in data.items()]
    return ["model", *(f"layers most like {LABELS[solver]}" for solver in PAPER_SOLVERS)], lines


# Best-matching steps (figures 2b, 2c, 3, 7) ---------------------------------------------------------------------------

STEPS_CAPTION = (
    "The step most similar to each layer, mean over {prompts} prompts (band: one standard deviation), within the "
    "paper's budget ({budget} steps, {cg} for conjugate gradients), and the straight line through layers {first} to "
    "{last} (cut at the edges). R² is how straight: 1 means that every layer takes the same number of steps. In "
    "brackets, where it is given: its 95 % range over prompts. Hollow: for more than a tenth of the prompts it is the "
    "last step of the budget, so that the mean is too small; where that is so in more than a third of the layers of "
    "a line, its R² has a †."
)


def steps_caption(models: Sequence[Data]) -> str:
    first, last = models[0]["range"]
    budgets = sorted({int(model["solvers"]["richardson"]["steps"][-1]) for model in models})
    budget = " or ".join(f"{each:,}" for each in budgets)
    cg = int(models[0]["solvers"]["cg"]["steps"][-1])
    return STEPS_CAPTION.format(prompts=EVALUATION_SEQUENCES, budget=budget, cg=cg, first=first, last=last)


def steps(found: Found, name: str, where: str) -> Artefact:
    """Best-matching steps of the four solvers for one model."""
    seeds = by_seed(found) if name == "sphere" else {}

    def compute(of: Data) -> Data:
        return {"model": name, "models": {name: found[name]}, "seeds": seeds}

    return Artefact(
        name=f"steps-{name}",
        title=f"Best-matching step by layer: {title(found[name])} ({where})",
        caption=steps_caption([found[name]]) + lengths([name], found),
        config=config([name, *seeds]),
        compute=compute,
        draw=draw_steps,
        table=lambda data: table_steps(data["models"]),
        rows=rows_steps,
        summary=lambda data: summary_steps(data["models"]),
        rooms=ROOMS,
    )


def by_seed(found: Found) -> dict[str, Data]:
    """What the summary compares, by training seed."""
    return {
        seed: {"r2": found[seed]["solvers"]["richardson"]["r2"], "won": found[seed]["won"]["richardson"]}
        for seed in SEEDS
        if seed in found
    }


def draw_steps(data: Data) -> Figure:
    with figure(7.6, 3.9) as fig:
        ax = fig.subplots()
        trajectories(ax, data["models"][data["model"]])
    return fig


def table_steps(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = [
        [name, solver, int(layer), *values]
        for name, model in data.items()
        for solver, found in model["solvers"].items()
        for layer, *values in zip(model["layers"][1:], found["mean"], found["sd"], found["at_cap"], strict=True)
    ]
    return ["model", "solver", "layer", "mean_best_step", "sd_over_sequences", "share_at_last_step"], lines


def summary_steps(data: Data) -> tuple[list[str], list[list[str]]]:
    """R² with its range over prompts, by model and solver."""

    def cell(solver: Data) -> str:
        reach = "" if isnan(solver["r2"]) else f" [{solver['r2_low']:.3f}, {solver['r2_high']:.3f}]"
        return r2_words(solver["r2"]) + reach

    lines = [
        [name, *(cell(model["solvers"][solver]) + mark(model, solver) for solver in PAPER_SOLVERS)]
        for name, model in data.items()
    ]
    return ["model", *(f"R², {LABELS[solver]}" for solver in PAPER_SOLVERS)], lines


def mark(model: Data, solver: str) -> str:
    """† where more than a third of the layers of a line are cut off by the budget of steps."""
    first, last = model["range"]
    cut = [share > 0.1 for share in model["solvers"][solver]["at_cap"][first - 1 : last]]
    return " †" if 3 * sum(cut) > len(cut) else ""


def rows_steps(data: Data) -> list[Row]:
    """The paper's R² and layers won beside ours, with their range over prompts and their spread over seeds."""
    name = data["model"]
    model, spread = data["models"][name], data["seeds"].values()
    richardson, setting = model["solvers"]["richardson"], TITLES[model["setting"]]
    rows = []
    if name in BEST_STEP_R2:
        rows.append(
            Row(
                quantity=f"R² of best Richardson step against layer, {setting}",
                where="Figure 2b and text" if name == "sphere" else "text on the arc-cosine kernel",
                paper=BEST_STEP_R2[name],
                ours=richardson["r2"],
                low=richardson["r2_low"],
                high=richardson["r2_high"],
                rounding=R2_ROUNDING[name],
                note=model["held"],
            ).beside([seed["r2"] for seed in spread])
        )
    if name in LAYERS_WON:
        rows.append(
            Row(
                quantity=f"layers of 12 where Richardson is most similar, {setting}",
                where="text on the arc-cosine kernel",
                paper=LAYERS_WON[name],
                ours=model["won"]["richardson"],
                low=model["won_low"],
                high=model["won_high"],
                note=model["held"],
                whole=True,
            ).beside([seed["won"] for seed in spread])
        )
    return rows


def laws(found: Found) -> Artefact | None:
    """Best Richardson steps of the three input laws in one panel (figure 2c)."""
    return of_models(
        found,
        LAWS,
        name="steps-laws",
        title="Best-matching Richardson step: three laws of inputs (Figure 2c)",
        caption=lambda models: steps_caption(models) + " The paper: approximately linear for all three.",
        draw=draw_laws,
        table=table_steps,
        summary=summary_steps,
    )


def draw_laws(data: Data) -> Figure:
    with figure(8.4, 3.4) as fig:
        ax = fig.subplots()
        law_lines(ax, list(data.values()))
        fig.legend(*ax.get_legend_handles_labels(), loc="outside right upper")
    return fig


def law_lines(ax: Axes, models: Sequence[Data]) -> None:
    """Best-matching Richardson steps of models that differ in the law of their inputs."""
    for model in models:
        color, dash = LAW_LOOKS[model["setting"]]
        words = f"{TITLES[model['setting']]}, R² = {r2_words(model['solvers']['richardson']['r2'])}"
        trajectory(ax, model, "richardson", label=words, color=color, dash=dash)
