"""How much model does it take? Error and straightness against the number of heads and the width (figure 9)."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from layerstep.plotting import BLUE, INK, ORANGE, figure
from layerstep.reproduction.figures.panels import r2_words
from layerstep.reproduction.figures.trained import Found, absent, config, lengths
from layerstep.reproduction.measurements import ROOMS
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.runs import SEEDS


def twin(found: Found, others: Sequence[str], law: str = "sphere") -> str:
    """The default model on a law that was trained as long as most of `others`: a fair column beside theirs."""
    lengths = [found[name]["trained_steps"] for name in others if name in found]
    usual = max(lengths, key=lengths.count) if lengths else None
    candidates = [name for name in (law, f"{law}-fast") if name in found]
    return next((name for name in candidates if found[name]["trained_steps"] == usual), law)


def heads(found: Found) -> Artefact | None:
    return _capacity(
        found,
        [(1, "heads-1"), (2, "heads-2"), (4, "heads-4"), (8, "")],
        name="heads",
        axis="number of attention heads",
        where="Figure 9a",
        says="The paper: the error does not depend on the number of heads, and R² stays close to 1.",
    )


def width(found: Found) -> Artefact | None:
    return _capacity(
        found,
        [(32, "width-32"), (64, "width-64"), (128, "width-128"), (256, ""), (512, "width-512")],
        name="width",
        axis="width",
        where="Figure 9b",
        says="The paper: the error falls quickly with the width, then stays near exact kernel ridge regression.",
    )


def _capacity(found: Found, runs: list[tuple[int, str]], *, name: str, axis: str, where: str, says: str):
    """Error of the model's own answer at n = 40, and R² of its best Richardson steps, against heads or width."""
    own = [run for _, run in runs if run]
    usual = twin(found, own)
    runs = [(size, run or usual) for size, run in runs]
    there = {str(size): run for size, run in runs if run in found}
    if not any(run in found for run in own):
        return None
    others = [seed for seed in SEEDS if seed in found and seed != usual] if usual in SEEDS else []
    first, last = found[next(iter(there.values()))]["range"]
    return Artefact(
        name=name,
        title=f"Does it depend on the {axis}? ({where})",
        caption=(
            f"The model of the other figures on the sphere with another {axis}. Left: mean squared error of its own "
            "answer with 40 examples over that of exact kernel ridge regression (as on the models' cards: noiseless "
            "targets, 2,048 prompts). Right: how straight the line of best-matching Richardson steps is (R², layers "
            f"{first} to {last}, whiskers: 95 % over prompts). "
            f"{'Hollow: other seeds of the default model. ' if others else ''}"
            f"{says}{lengths(list(there.values()), found)}{absent([run for _, run in runs], found)}"
        ),
        config=config([*there.values(), *others], sizes=there, axis=axis),
        compute=lambda _: {
            "axis": axis,
            "sizes": there,
            "models": {run: found[run] for run in there.values()},
            "seeds": {run: found[run] for run in others},
        },
        draw=draw_capacity,
        table=table_capacity,
        summary=summary_capacity,
        rooms=ROOMS,
    )


def draw_capacity(data: Data) -> Figure:
    sizes = np.array([int(size) for size in data["sizes"]])
    models = [data["models"][run] for run in data["sizes"].values()]
    with figure(9.6, 3.1) as fig:
        left, right = fig.subplots(1, 2)
        left.plot(sizes, [model["over_krr"] for model in models], color=BLUE, marker="o", label="transformer")
        left.axhline(1, color=INK, linestyle="--", linewidth=1, label="exact KRR")
        left.set(ylabel="error over exact KRR, n = 40", ylim=(0.95, None))
        left.legend()
        r2 = [model["solvers"]["richardson"] for model in models]
        value = np.array([found["r2"] for found in r2])
        reach = [value - [found["r2_low"] for found in r2], [found["r2_high"] for found in r2] - value]
        right.errorbar(sizes, value, np.maximum(reach, 0), color=ORANGE, marker="s", capsize=2)
        right.set(ylabel="R² of best Richardson step", ylim=(np.nanmin([0.6, *value]) - 0.1, 1.02))
        default = next((int(size) for size, run in data["sizes"].items() if run in SEEDS), None)
        for ax, of in (
            (left, lambda model: model["over_krr"]),
            (right, lambda model: model["solvers"]["richardson"]["r2"]),
        ):
            for model in data["seeds"].values():
                ax.plot(default, of(model), "o", color=INK, markerfacecolor="none", markersize=5, zorder=3)
            ax.set(xscale="log", xlabel=data["axis"])
            ax.set_xticks(sizes, [str(size) for size in sizes])
            ax.minorticks_off()
    return fig


def table_capacity(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = []
    for size, run in data["sizes"].items():
        model = data["models"][run]
        r2 = model["solvers"]["richardson"]
        lines.append([size, run, model["trained_steps"], model["over_krr"], r2["r2"], r2["r2_low"], r2["r2_high"]])
    return [data["axis"], "run", "training_steps", "error_over_krr_n40", "r2", "r2_low", "r2_high"], lines


def summary_capacity(data: Data) -> tuple[list[str], list[list[str]]]:
    lines = []
    for size, run, steps, over, r2, low, high in table_capacity(data)[1]:
        reach = "" if isnan(r2) else f"{low:.3f}–{high:.3f}"
        lines.append([size, run, f"{steps:,}", f"{over:.3f}", r2_words(r2), reach])
    return [data["axis"], "run", "training steps", "error over exact KRR, n = 40", "R²", "95 % over prompts"], lines
