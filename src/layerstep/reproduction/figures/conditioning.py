"""Condition numbers: what the row-sum preconditioner does and does not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from layerstep.plotting import BLUE, ORANGE, figure
from layerstep.reproduction.reference import KAPPA, Row
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.settings import SETTINGS, TITLES, evaluation_prompts
from layerstep.solvers.system import Batch
from layerstep.stats import interval, resampled


def compute(config: Data) -> Data:
    """Condition numbers of K + lam I and of D^-1/2 (K + lam I) D^-1/2 at n = N, and the spread of the row sums."""
    found = {}
    for setting, task in SETTINGS.items():
        system = Batch.of(evaluation_prompts(setting, config["sequences"]), task).system(task.N)
        plain, row_sum = system.plain.values + system.lam, system.row_sum.values
        quantities = {
            "kappa": plain[:, -1] / plain[:, 0],
            "kappa_row_sum": row_sum[:, -1] / row_sum[:, 0],
            "eta": 1 / row_sum[:, -1],
            "row_sum_variation": system.D.std(-1, correction=0) / system.D.mean(-1),
        }
        found[setting] = {name: _summary(values, config) for name, values in quantities.items()}
    return found


def _summary(values: torch.Tensor, config: Data) -> dict[str, float]:
    """Median, the 5-95 % range over sequences, and the 95 % range of a median over 256 sequences."""
    numbers = values.numpy()
    pick = resampled(len(numbers), config["bootstrap"], config["seed"], 256).numpy()
    low, high = interval(torch.from_numpy(np.median(numbers[pick], axis=1)), 0.95).tolist()
    p5, p95 = np.quantile(numbers, [0.05, 0.95])
    return {"median": float(np.median(numbers)), "p5": p5, "p95": p95, "low": low, "high": high}


def rows(data: Data) -> list[Row]:
    # The paper writes "≈ 3,000" and "≈ 10,000": one significant digit, so half a unit of it either way.
    return [
        Row(
            quantity=f"condition number of K + λI, {TITLES[setting]}",
            where="depth ablation",
            paper=paper,
            ours=data[setting]["kappa"]["median"],
            low=data[setting]["kappa"]["low"],
            high=data[setting]["kappa"]["high"],
            rounding={"sphere": 500, "sphere-v2": 5000}[setting],
            note="the paper gives one digit (≈)",
        )
        for setting, paper in KAPPA.items()
    ]


def draw(data: Data) -> Figure:
    with figure(7.2, 3.0) as fig:
        ax = fig.subplots()
        y = np.arange(len(data))[::-1]
        styles = {"kappa": ("K + λI", BLUE, "o", 0.12), "kappa_row_sum": ("row-sum preconditioned", ORANGE, "s", -0.12)}
        for key, (label, color, marker, shift) in styles.items():
            median = np.array([law[key]["median"] for law in data.values()])
            reach = np.array([[law[key]["median"] - law[key]["p5"], law[key]["p95"] - law[key]["median"]]
                              for law in data.values()]).T  # fmt: skip
            ax.errorbar(median, y + shift, xerr=reach, fmt=marker, color=color, label=label, capsize=2, markersize=5)
        ax.set_yticks(y, [TITLES[setting] for setting in data])
        ax.set(xscale="log", xlabel="condition number at n = 40: median and 5-95 % of sequences")
        ax.legend(loc="lower left")
    return fig


def table(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = [[setting, key, *law[key].values()] for setting, law in data.items() for key in law]
    return ["setting", "quantity", "median", "p5", "p95", "median_low_256", "median_high_256"], lines


def summary(data: Data) -> tuple[list[str], list[list[str]]]:
    formats = {"kappa": ",.0f", "kappa_row_sum": ",.0f", "eta": ".3f"}
    lines = [
        [TITLES[setting], *(format(law[key]["median"], digits) for key, digits in formats.items())]
        for setting, law in data.items()
    ]
    header = ["inputs: medians", "condition number of K + λI", "with row sums", "1 / largest eigenvalue with row sums"]
    return header, lines


ARTEFACT = Artefact(
    name="conditioning",
    title="What the row-sum preconditioner does",
    caption=(
        "Condition numbers of the kernel system, which bound how many steps a solver needs, without and with the "
        "row-sum preconditioner; and the inverse of the largest preconditioned eigenvalue. Dividing by row sums brings "
        "that eigenvalue close to 1 for every prompt, so that one step size serves all; it need not lower the "
        "condition number."
    ),
    config={"sequences": 1000, "bootstrap": 2000, "seed": 1},
    compute=compute,
    draw=draw,
    table=table,
    summary=summary,
    rows=rows,
)
