"""The noise table with a transformer in it: TF, EO and BO on the same prompts."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from layerstep.plotting import BLUE, INK, ORANGE, figure
from layerstep.reproduction.figures import noise
from layerstep.reproduction.figures.trained import config, lengths
from layerstep.reproduction.measurements import ROOMS, predictions
from layerstep.reproduction.predictions import NOISE_SEQUENCES
from layerstep.reproduction.reference import NOISE_TABLE, SIGMA_TEST, TF_OVER_EO, Row
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.runs import RUNS, SEEDS
from layerstep.reproduction.settings import EVALUATION_SEQUENCES, SETTINGS, TITLES, evaluation_prompts

#: Which column of the paper's table a run is held against.
COLUMNS = {"sphere": "sphere", "uniform": "uniform", "gaussian": "gaussian", "gaussian-1.0": "gaussian"}
#: What is shown: key, label, colour, dash; and the levels of the snapshots (figure 10, top row).
SHOWN = (("TF/BO", "our transformer", ORANGE, "-"), ("EO/BO", "encoded ridge", BLUE, "--"))
SNAPSHOTS = (1e-3, 5e-2, 1.0)
SEED_LOOK: dict[str, Any] = {
    "linestyle": "", "marker": "o", "markersize": 4, "color": INK, "markerfacecolor": "none", "markeredgewidth": 0.8,
}  # fmt: skip


def compute(of: Data) -> Data:
    """Ratios of mean squared errors at n = N to the Bayes-optimal ones, with their range on 256 sequences."""
    laws, seeds = {}, {}
    spread = {"sample": EVALUATION_SEQUENCES, "draws": of["bootstrap"], "seed": of["seed"]}
    for name in of["models"]:
        setting = RUNS[name].setting
        # The first sequences of the larger table: the same prompts, solved once.
        encoded, optimal = (part[:, :NOISE_SEQUENCES] for part in noise.squared_errors(setting, noise.SEQUENCES))
        truth = evaluation_prompts(setting, NOISE_SEQUENCES).noiseless_target[:, -1]
        model = (predictions(name).noise - truth).square().numpy()
        (seeds if name in SEEDS else laws)[name] = {
            "TF/BO": noise.ratio_with_range(model, optimal, **spread),
            "EO/BO": noise.ratio_with_range(encoded, optimal, **spread),
            "TF/EO": noise.ratio_with_range(model, encoded, **spread),
        }
    held = {name: RUNS[name].held.words for name in laws}
    return {"sigma_test": list(SIGMA_TEST), "laws": laws, "seeds": seeds, "held": held}


def rows(data: Data) -> list[Row]:
    """The transformer's column of the noise table beside ours, with range over prompts and spread over seeds."""
    found = []
    for name, law in data["laws"].items():
        column, setting = NOISE_TABLE[COLUMNS[name]]["TF"], TITLES[RUNS[name].setting]
        seeds = _seeds(data, name)
        counted = name == COLUMNS[name] or COLUMNS[name] not in data["laws"]
        words = {"note": data["held"][name], "counted": counted}
        for i, sigma in enumerate(data["sigma_test"]):
            quantity = f"transformer / Bayes-optimal error, {setting}, σ_test = {sigma:g}"
            found.append(_row(law, "TF/BO", i, seeds, quantity=quantity, where="noise table", paper=column[i], **words))
        quantity = f"transformer / encoded error, {setting}, σ_test = 1"
        paper, where = TF_OVER_EO[COLUMNS[name]], "Figure 10, caption"
        found.append(_row(law, "TF/EO", -1, seeds, quantity=quantity, where=where, paper=paper, **words))
    return found


def _row(law: Data, key: str, level: int, seeds: list[Data], **words: Any) -> Row:
    value, low, high = (law[key][part][level] for part in ("value", "low", "high"))
    row = Row(ours=value, low=low, high=high, rounding=0.005, **words)
    return row.beside([seed[key]["value"][level] for seed in seeds], factor=True)


def draw(data: Data) -> Figure:
    """Above: three levels of noise, the laws side by side. Below: the whole sweep, a panel a law."""
    laws, sigma = data["laws"], data["sigma_test"]
    with figure(10.5, 5.6) as fig:
        halves: Any = fig.subfigures(2, 1, height_ratios=(1, 1.25))
        above, below = halves
        panels = above.subplots(1, len(SNAPSHOTS))
        for ax, level in zip(panels, SNAPSHOTS, strict=True):
            _snapshot(ax, data, sigma.index(level), level)
        panels[0].set_ylabel("error / Bayes-optimal error")
        axes = below.subplots(1, len(laws), sharey=True, squeeze=False)[0]
        for ax, (name, law) in zip(axes, laws.items(), strict=True):
            for key, label, color, dash in SHOWN:
                ratio = law[key]
                ax.fill_between(sigma, ratio["low"], ratio["high"], color=color, alpha=0.15, linewidth=0)
                ax.plot(sigma, ratio["value"], dash, color=color, marker="o", markersize=3, label=label)
            ax.plot(sigma, NOISE_TABLE[COLUMNS[name]]["TF"], "x", color=INK, label="the paper's transformer")
            for seed in _seeds(data, name):
                ax.plot(sigma, seed["TF/BO"]["value"], label="other seeds, short schedule", **SEED_LOOK)
            ax.axhline(1, color=INK, linestyle="--", linewidth=1)
            ax.axvline(SETTINGS[RUNS[name].setting].sigma, color=INK, linestyle=":", linewidth=1)
            ax.set(title=TITLES[RUNS[name].setting], xlabel="noise in the prompt, σ_test", xscale="log", yscale="log")
        axes[0].set_ylabel("error / Bayes-optimal error")
        axes[0].set_yticks([1, 2, 3, 4, 6, 10], ["1", "2", "3", "4", "6", "10"])
        axes[0].minorticks_off()
        handles, labels = axes[0].get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))
        below.legend(once.values(), once.keys(), loc="outside lower center", ncols=len(once))
    return fig


def _seeds(data: Data, name: str) -> list[Data]:
    """The ratios of other seeds of a law's model."""
    return list(data["seeds"].values()) if name == "sphere" else []


def _snapshot(ax: Axes, data: Data, level: int, sigma: float) -> None:
    """One level of noise: a point and its range for every law."""
    laws = data["laws"]
    place = np.arange(len(laws))
    parts = ("value", "low", "high")
    for shift, (key, _, color, _) in zip((-0.12, 0.12), SHOWN, strict=True):
        value, low, high = (np.array([law[key][part][level] for law in laws.values()]) for part in parts)
        reach = [np.maximum(value - low, 0), np.maximum(high - value, 0)]
        ax.errorbar(place + shift, value, reach, fmt="o", color=color, capsize=2)
    ax.plot(place - 0.12, [NOISE_TABLE[COLUMNS[name]]["TF"][level] for name in laws], "x", color=INK, zorder=3)
    for at, name in zip(place, laws, strict=True):
        for seed in _seeds(data, name):
            ax.plot(at - 0.3, seed["TF/BO"]["value"][level], **SEED_LOOK)
    ax.axhline(1, color=INK, linestyle="--", linewidth=1)
    ax.set_xticks(place, [TITLES[RUNS[name].setting].replace(", ", ",\n") for name in laws], fontsize=7.5)
    ax.set(title=f"σ_test = {sigma:g}", xlim=(-0.5, len(laws) - 0.5))
    ax.grid(axis="x", visible=False)


def table(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = [
        [name, sigma, NOISE_TABLE[COLUMNS[name]]["TF"][i], *(law[key][part][i] for key in law for part in law[key])]
        for name, law in data["laws"].items()
        for i, sigma in enumerate(data["sigma_test"])
    ]
    parts = ("value", "standard_error", "low_256", "high_256")
    keys = [f"{key} {part}" for key in ("TF/BO", "EO/BO", "TF/EO") for part in parts]
    return ["model", "sigma_test", "paper_TF", *keys], lines


def artefact(names: list[str]) -> Artefact | None:
    """The figure for those of `names` that the paper's table has."""
    shown = [name for name in names if name in COLUMNS]
    if not shown:
        return None
    seeds = [name for name in names if name in SEEDS]
    return Artefact(
        name="noise-trained",
        title="Trained models under noise that training did not see (Figure 10)",
        caption=(
            "Error of the model's own prediction at n = 40 over that of the Bayes-optimal predictor, which knows the "
            "noise in the prompt; beside it kernel ridge regression that keeps the ridge of the training noise ("
            "encoded). Above: much less noise than in training (dotted below), as much, and much more. Bands and "
            f"whiskers: where 95 % of evaluations on {EVALUATION_SEQUENCES} prompts fall. Crosses are the paper's "
            f"transformer{', hollow circles other seeds of the model on the sphere' if seeds else ''}: with much more "
            "noise than in training the error depends mostly on the seed."
            + lengths(shown, {name: {"held": RUNS[name].held.words} for name in shown})
        ),
        config={**config([*shown, *seeds]), "bootstrap": 2000, "seed": 1},
        compute=compute,
        draw=draw,
        table=table,
        rows=rows,
        rooms=ROOMS,
    )
