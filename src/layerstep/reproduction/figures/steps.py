"""Best-matching steps by layer: of one model, by inputs, kernel, depth, probe and seed (figures 2, 3, 7)."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

from matplotlib.figure import Figure

from layerstep.plotting import INK, LOOKS, figure
from layerstep.reproduction.figures.plots import (
    error_axis,
    final_errors,
    richardson_lines,
    setting_lines,
    solver_lines,
)
from layerstep.reproduction.figures.result import (
    Result,
    Table,
    compare_steps,
    model_title,
    select,
    steps_caption,
    summary_steps,
    table_steps,
    trained,
)
from layerstep.reproduction.numbers import (
    DEEP,
    DISTRIBUTIONS,
    SEEDS,
    SOLVER_LABELS,
    TITLES,
    ModelNumbers,
    Models,
    Numbers,
    human_name,
    r2_text,
    twin,
)
from layerstep.reproduction.reference import BEST_STEP_R2, LAYERS_WON, Comparison, seed_variation


def of_model(numbers: Numbers, name: str, where: str) -> Result | None:
    """Best-matching steps of the four solvers for one model."""
    model = numbers.models.get(name)
    if model is None:
        return None
    return Result(
        name=f"steps-{name}",
        title=f"Best-matching step by layer: {model_title(model)} ({where})",
        caption=steps_caption({name: model}) + trained({name: model}),
        data=model,
        draw=lambda: _draw_one(model),
        table=lambda: table_steps({name: model}),
        summary=summary_steps({name: model}),
        comparisons=compare_steps(model, numbers.models if name == "sphere" else {}),
        code=__name__,
    )


def _draw_one(model: ModelNumbers) -> Figure:
    with figure(7.6, 3.9) as fig:
        solver_lines(fig.subplots(), model)
    return fig


def by_inputs(numbers: Numbers) -> Result | None:
    """Best Richardson steps of the three input distributions in one plot (figure 2c)."""
    models = select(numbers.models, DISTRIBUTIONS)
    if not models:
        return None
    return Result(
        name="steps-inputs",
        title="Best-matching Richardson step: three input distributions (Figure 2c)",
        caption=(
            f"{steps_caption(models)} The paper: approximately linear for all three." + trained(models, DISTRIBUTIONS)
        ),
        data=models,
        draw=lambda: _draw_by_inputs(models),
        table=lambda: table_steps(models),
        summary=summary_steps(models),
        code=__name__,
    )


def _draw_by_inputs(models: Models) -> Figure:
    with figure(8.4, 3.4) as fig:
        ax = fig.subplots()
        setting_lines(ax, list(models.values()))
        fig.legend(*ax.get_legend_handles_labels(), loc="outside right upper")
    return fig


def by_kernel(numbers: Numbers) -> Result | None:
    """Best-matching steps with the arc-cosine kernel beside those with the Gaussian one."""
    names = [twin(numbers.models, ["arccos1"]), "arccos1"]
    models = select(numbers.models, names)
    if "arccos1" not in models:
        return None
    return Result(
        name="steps-kernel",
        title="Another kernel: best-matching steps with the arc-cosine kernel",
        caption=(
            "The paper trains once more with functions drawn from the arc-cosine kernel and finds the alignment with "
            f"Richardson weaker: fewer layers are most similar to it, and the steps are less linear. "
            f"{steps_caption(models)}{trained(models, names)}"
        ),
        data=models,
        draw=lambda: _draw_beside(models),
        table=lambda: table_steps(models),
        summary=_summary_kernel(models),
        comparisons=compare_steps(models["arccos1"], numbers.models),
        code=__name__,
    )


def _draw_beside(models: Models) -> Figure:
    with figure(5.4 * len(models), 3.7) as fig:
        axes = fig.subplots(1, len(models), squeeze=False)[0]
        for ax, model in zip(axes, models.values(), strict=True):
            solver_lines(ax, model)
            ax.set_title(model_title(model))
    return fig


def _summary_kernel(models: Models) -> Table:
    lines = []
    for name, model in models.items():
        paper = "arccos1" if name == "arccos1" else "sphere"
        each = ", ".join(f"{SOLVER_LABELS[solver]} {count}" for solver, count in model.alignment.won.items())
        r2 = r2_text(model.richardson.r2, 4)
        lines.append([human_name(name), f"{model.won}", f"{LAYERS_WON[paper]}", r2, f"{BEST_STEP_R2[paper]:g}", each])
    return Table(
        ["model", "layers most like Richardson, ours", "paper", "R², ours", "paper", "layers most like each"], lines
    )


def by_depth(numbers: Numbers) -> Result | None:
    models = select(numbers.models, DEEP)
    if not models:
        return None
    return Result(
        name="steps-depth",
        title="Twice as deep: best-matching steps of models with 24 layers (with Figure 7)",
        caption=(
            "The paper sees a linear trend for Richardson, clearest in the earlier layers (see its claims above). "
            f"{steps_caption(models)}{trained(models, DEEP)}"
        ),
        data=models,
        draw=lambda: _draw_beside(models),
        table=lambda: table_steps(models),
        summary=summary_steps(models),
        code=__name__,
    )


def by_probe(numbers: Numbers) -> Result | None:
    """Best Richardson steps of the three input distributions, read by probes of all x tokens and of the last one."""
    models = {name: model for name, model in select(numbers.models, DISTRIBUTIONS).items() if model.last_token}
    last = {name: read for name, model in models.items() if (read := model.by_last_token())}
    if not models:
        return None
    readings = {"all x tokens": models, "last x token": last}
    return Result(
        name="probes",
        title="Probes fitted on the last token alone",
        caption=(
            "What a layer would answer is read off its hidden states by a linear probe, fitted on fresh prompts. The "
            "paper describes the probes twice: in the definition of the similarity they read the state at every "
            "position n, in the details of training they map the state at the last query's x token alone. Elsewhere "
            "on this page one probe per layer is fitted on all x tokens of a prompt (left); here it is also fitted on "
            "the last one alone, which has seen all examples, and then reads the others too (right), since the "
            "similarity needs a prediction after every number of examples. Models, prompts and solvers are the same; "
            f"the table says what changes. {steps_caption(models)}{trained(models)}"
        ),
        data=models,
        draw=lambda: _draw_by_probe(readings),
        table=lambda: Table(
            ["probes", *table_steps(models).header],
            [[words, *line] for words, read in readings.items() for line in table_steps(read).lines],
        ),
        summary=_summary_probes(readings),
        comparisons=_compare_last(last, numbers.models),
        code=__name__,
    )


def _draw_by_probe(readings: dict[str, dict[str, ModelNumbers]]) -> Figure:
    with figure(10.4, 3.6) as fig:
        axes = fig.subplots(1, 2, sharey=True)
        for ax, (words, models) in zip(axes, readings.items(), strict=True):
            setting_lines(ax, list(models.values()))
            ax.set_title(f"probes fitted on: {words}")
            ax.legend(loc="upper left")
        axes[0].set_ylim(0, 1.04 * max(ax.dataLim.ymax for ax in axes))
    return fig


def _summary_probes(readings: dict[str, dict[str, ModelNumbers]]) -> Table:
    """R² of the four solvers and the layers most like Richardson, by model and probes."""
    first = next(iter(readings.values()))
    lines = [
        [human_name(name), words, *summary_steps({name: read[name]}).lines[0][1:], str(read[name].won)]
        for name in first
        for words, read in readings.items()
    ]
    (model, *r2) = summary_steps(first).header
    return Table([model, "probes", *r2, "layers most like Richardson"], lines)


def _compare_last(last: Models, models: Models) -> tuple[Comparison, ...]:
    """The paper's numbers of the sphere once more; they are counted where the probes are those of all x tokens.

    The variation over seeds is that of probes of all x tokens: too few seeds were read by others.
    """
    of_all = "; seed-to-seed variation: that of probes of all x tokens"
    found = compare_steps(last["sphere"], models) if "sphere" in last else ()
    return tuple(
        replace(each, quantity=f"{each.quantity}, probes of the last token", note=each.note + of_all, counted=False)
        for each in found
    )


def by_seed(numbers: Numbers) -> Result | None:
    """The same training with other random seeds: what of a single run's numbers is chance."""
    models = select(numbers.models, SEEDS)
    if len(models) < 2:
        return None
    return Result(
        name="seeds",
        title="The same training, other random seeds (ours)",
        caption=(
            "Models on the sphere that differ in the seed of their first weights and prompts only. What moves between "
            "them says how much of a single run's number is chance; the last line is the seed-to-seed variation (95 % "
            "of two runs differ by less, from Student's t), and the table of numbers uses it. The table: R² of the "
            "best-matching steps of each solver, layers where Richardson is most similar, and the error with 40 "
            "examples over that of exact KRR. Left: error by layer with 40 examples. Right: best-matching Richardson "
            f"steps. {steps_caption(models)}{trained(models, SEEDS)}"
        ),
        data=models,
        draw=lambda: _draw_seeds(models),
        table=lambda: table_steps(models),
        summary=summary_seeds(models),
        code=__name__,
    )


def _draw_seeds(models: Models) -> Figure:
    looked = list(zip(models.values(), LOOKS, strict=False))
    with figure(10.5, 3.3) as fig:
        left, right = fig.subplots(1, 2)
        final_errors(left, looked, labels=True)
        left.axhline(looked[0][0].krr[-1], color=INK, linestyle=":", label="exact KRR")
        left.set_title("error with 40 examples")
        error_axis(left)
        left.legend()
        richardson_lines(right, looked, band=False, named=lambda model: human_name(model.name))
        right.set_title(f"{SOLVER_LABELS['richardson']}, {TITLES['sphere']}")
        right.legend(loc="upper left")
    return fig


def summary_seeds(models: Models) -> Table:
    numbers = [
        [model.solvers[solver].r2 for solver in SOLVER_LABELS] + [model.won, model.over_krr]
        for model in models.values()
    ]
    lines = [
        [human_name(name), *map(r2_text, r2), f"{won:.0f}", r2_text(over_krr)]
        for name, (*r2, won, over_krr) in zip(models, numbers, strict=True)
    ]
    apart = map(seed_variation, zip(*numbers, strict=True))
    lines.append(["seed-to-seed variation (95 %)", *(f"{value:.3f}" if isfinite(value) else "–" for value in apart)])
    names = [f"R², {label}" for label in SOLVER_LABELS.values()]
    return Table(["model", *names, "layers most like Richardson", "error / KRR"], lines)
