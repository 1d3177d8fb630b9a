"""The noise table with a transformer in it: TF, EO and BO on the same prompts."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from layerstep.paper import noise, trained
from layerstep.paper.artefact import Artefact, Data
from layerstep.paper.predictions import NOISE_SEQUENCES, Predictions
from layerstep.paper.quoted import NOISE_TABLE, SIGMA_TEST, TF_OVER_EO, Row
from layerstep.paper.runs import RUNS
from layerstep.paper.settings import SETTINGS, TITLES, evaluation_prompts
from layerstep.paper.style import BLUE, INK, ORANGE, figure

#: Which column of the paper's table a run is held against.
COLUMNS = {"sphere": "sphere", "uniform": "uniform", "gaussian": "gaussian", "gaussian-1.0": "gaussian"}


def compute(config: Data) -> Data:
    """Ratios of mean squared errors at n = N to the Bayes-optimal ones, with their range on 256 sequences."""
    laws = {}
    spread = {"sample": 256, "draws": config["bootstrap"], "seed": config["seed"]}
    for name in config["models"]:
        setting = RUNS[name].setting
        encoded, optimal = noise.squared_errors(setting, NOISE_SEQUENCES)
        truth = evaluation_prompts(setting, NOISE_SEQUENCES).noiseless_target[:, -1]
        model = (Predictions.load(RUNS[name].folder).noise - truth).square().numpy()
        laws[name] = {
            "TF/BO": noise.ratio_with_range(model, optimal, **spread),
            "EO/BO": noise.ratio_with_range(encoded, optimal, **spread),
            "TF/EO": noise.ratio_with_range(model, encoded, **spread),
        }
    return {"sigma_test": list(SIGMA_TEST), "laws": laws}


def rows(data: Data) -> list[Row]:
    found = []
    for name, law in data["laws"].items():
        column = NOISE_TABLE[COLUMNS[name]]
        note = trained.steps_note(name)
        title = TITLES[RUNS[name].setting]
        for i, sigma in enumerate(data["sigma_test"]):
            ratio = law["TF/BO"]
            found.append(
                Row(
                    quantity=f"transformer / Bayes-optimal error, {title}, σ_test = {sigma:g}",
                    where="noise table",
                    paper=column["TF"][i],
                    ours=ratio["value"][i],
                    low=ratio["low"][i],
                    high=ratio["high"][i],
                    rounding=0.005,
                    note=note,
                )
            )
        ratio = law["TF/EO"]
        found.append(
            Row(
                quantity=f"transformer / encoded error, {title}, σ_test = 1",
                where="section on noise",
                paper=TF_OVER_EO[COLUMNS[name]],
                ours=ratio["value"][-1],
                low=ratio["low"][-1],
                high=ratio["high"][-1],
                rounding=0.005,
                note=note,
            )
        )
    return found


def draw(data: Data) -> Figure:
    with figure(10.5, 3.1) as fig:
        axes = fig.subplots(1, len(data["laws"]), sharey=True, squeeze=False)[0]
        sigma = data["sigma_test"]
        for ax, (name, law) in zip(axes, data["laws"].items(), strict=True):
            for key, label, color, dash in (
                ("TF/BO", "our transformer", ORANGE, "-"),
                ("EO/BO", "encoded ridge", BLUE, "--"),
            ):
                ratio = law[key]
                ax.fill_between(sigma, ratio["low"], ratio["high"], color=color, alpha=0.15, linewidth=0)
                ax.plot(sigma, ratio["value"], dash, color=color, marker="o", markersize=3, label=label)
            paper = NOISE_TABLE[COLUMNS[name]]["TF"]
            ax.plot(sigma, paper, "x", color=INK, label="the paper's transformer")
            ax.axhline(1, color=INK, linestyle="--", linewidth=1)
            ax.axvline(SETTINGS[RUNS[name].setting].sigma, color=INK, linestyle=":", linewidth=1)
            ax.set(title=TITLES[RUNS[name].setting], xlabel="noise in the prompt, σ_test", xscale="log", yscale="log")
        axes[0].set_ylabel("error / Bayes-optimal error")
        axes[0].set_yticks([1, 2, 3, 4, 6], ["1", "2", "3", "4", "6"])
        axes[0].minorticks_off()
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    return fig


def table(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = [
        [name, sigma, NOISE_TABLE[COLUMNS[name]]["TF"][i], *(law[key][part][i] for key in law for part in law[key])]
        for name, law in data["laws"].items()
        for i, sigma in enumerate(data["sigma_test"])
    ]
    parts = ("value", "standard_error", "low_256", "high_256")
    return [
        "model",
        "sigma_test",
        "paper_TF",
        *(f"{key} {p}" for key in ("TF/BO", "EO/BO", "TF/EO") for p in parts),
    ], lines


def artefact(names: list[str]) -> Artefact:
    """The figure for those of `names` that the paper's table has."""
    chosen = [name for name in names if name in COLUMNS]
    return Artefact(
        name="noise-trained",
        title="Trained models under noise that training did not see",
        caption=(
            "Error of the model's own prediction at n = 40 over that of the Bayes-optimal predictor, the encoded ridge "
            "beside it; bands as above. Crosses are the paper's transformer."
        ),
        config={"models": chosen, "of": [trained.identity(name) for name in chosen], "bootstrap": 2000, "seed": 1},
        compute=compute,
        draw=draw,
        table=table,
        rows=rows,
        rooms=trained.ROOMS,
    )
