"""How much model does it take? Error and R² against the number of heads and the width (figure 9)."""

from __future__ import annotations

from math import isnan

import numpy as np
from matplotlib.figure import Figure

from layerstep.plotting import BLUE, INK, ORANGE, figure
from layerstep.reproduction.figures.result import Result, Table, select, trained
from layerstep.reproduction.numbers import SEEDS, Models, Numbers, human_name, r2_text, twin


def heads(numbers: Numbers) -> Result | None:
    says = "The paper: the error does not depend on the number of heads, and R² stays close to 1."
    runs = {1: "heads-1", 2: "heads-2", 4: "heads-4", 8: ""}
    return _capacity(numbers.models, runs, "heads", "number of attention heads", f"{says}", "Figure 9a")


def width(numbers: Numbers) -> Result | None:
    says = "The paper: the error falls quickly with the width, then stays near exact kernel ridge regression."
    runs = {32: "width-32", 64: "width-64", 128: "width-128", 256: "", 512: "width-512"}
    return _capacity(numbers.models, runs, "width", "width", says, "Figure 9b")


def _capacity(found: Models, runs: dict[int, str], name: str, axis: str, says: str, where: str) -> Result | None:
    """Error of the model's own answer at n = 40, and R² of its best Richardson steps, against heads or width."""
    own = [run for run in runs.values() if run]
    if not any(run in found for run in own):
        return None
    usual = twin(found, own)
    runs = {size: run or usual for size, run in runs.items()}
    sizes = {size: run for size, run in runs.items() if run in found}
    models = select(found, list(sizes.values()))
    seeds = select(found, [seed for seed in SEEDS if seed != usual]) if usual in SEEDS else {}
    line = next(iter(models.values())).alignment
    hollow = "Hollow: other seeds of the default model. " if seeds else ""
    return Result(
        name=name,
        title=f"Does it depend on the {axis}? ({where})",
        caption=(
            f"The model of the other figures on the sphere with another {axis}. Left: mean squared error of its own "
            "answer with 40 examples over that of exact kernel ridge regression (as on the models' cards: noiseless "
            "targets, 2,048 prompts). Right: how linear the best-matching Richardson steps are (R², layers "
            f"{line.first} to {line.last}, whiskers: 95 % over prompts). {hollow}{says}"
            f"{trained(models, list(runs.values()))}"
        ),
        data={"axis": axis, "sizes": sizes, "models": models, "seeds": seeds},
        draw=lambda: _draw(axis, sizes, models, seeds),
        table=lambda: _table(axis, sizes, models),
        summary=_summary(axis, sizes, models),
        code=__name__,
    )


def _draw(axis: str, sizes: dict[int, str], models: Models, seeds: Models) -> Figure:
    places, shown = np.array(list(sizes)), list(models.values())
    with figure(9.6, 3.1) as fig:
        left, right = fig.subplots(1, 2)
        left.plot(places, [model.over_krr for model in shown], color=BLUE, marker="o", label="transformer")
        left.axhline(1, color=INK, linestyle="--", linewidth=1, label="exact KRR")
        left.set(ylabel="error over exact KRR, n = 40", ylim=(0.95, None))
        left.legend()
        lines = [model.richardson for model in shown]
        r2 = np.array([line.r2 for line in lines])
        reach = [r2 - [line.r2_low for line in lines], [line.r2_high for line in lines] - r2]
        right.errorbar(places, r2, np.maximum(reach, 0), color=ORANGE, marker="s", capsize=2)
        right.set(ylabel="R² of best Richardson step", ylim=(np.nanmin([0.6, *r2]) - 0.1, 1.02))
        default = next((size for size, run in sizes.items() if run in SEEDS), None)
        for seed in seeds.values():
            for ax, value in ((left, seed.over_krr), (right, seed.richardson.r2)):
                ax.plot(default, value, "o", color=INK, markerfacecolor="none", markersize=5, zorder=3)
        for ax in (left, right):
            ax.set(xscale="log", xlabel=axis)
            ax.set_xticks(places, [str(size) for size in sizes])
            ax.minorticks_off()
    return fig


def _table(axis: str, sizes: dict[int, str], models: Models) -> Table:
    lines = []
    for size, run in sizes.items():
        model, line = models[run], models[run].richardson
        lines.append([size, run, model.trained_steps, model.over_krr, line.r2, line.r2_low, line.r2_high])
    return Table([axis, "run", "training_steps", "error_over_krr_n40", "r2", "r2_low", "r2_high"], lines)


def _summary(axis: str, sizes: dict[int, str], models: Models) -> Table:
    lines = []
    for size, run, steps, over, r2, low, high in _table(axis, sizes, models).lines:
        reach = "" if isnan(r2) else f"{low:.3f}–{high:.3f}"
        lines.append([str(size), human_name(run), f"{steps:,}", f"{over:.3f}", r2_text(r2), reach])
    return Table([axis, "run", "training steps", "error over exact KRR, n = 40", "R²", "95 % over prompts"], lines)
