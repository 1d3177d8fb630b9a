"""The same training with other random seeds: what of a single run's numbers is chance."""

from __future__ import annotations

from itertools import cycle
from math import isfinite

from matplotlib.figure import Figure

from layerstep.plotting import INK, SEED_LOOKS, figure
from layerstep.reproduction.figures.convergence import error_axis
from layerstep.reproduction.figures.panels import LABELS, r2_words, trajectory
from layerstep.reproduction.figures.trained import Found, of_models, steps_caption, table_steps
from layerstep.reproduction.reference import by_chance
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.runs import SEEDS
from layerstep.reproduction.settings import TITLES
from layerstep.solvers import PAPER_SOLVERS


def seeds(found: Found) -> Artefact | None:
    """The same run with other seeds: what of a single run's numbers is chance."""
    there = [name for name in SEEDS if name in found]
    if len(there) < 2:
        return None
    return of_models(
        found,
        there,
        name="seeds",
        title="The same training, other random seeds (ours)",
        caption=lambda models: (
            "Models on the sphere that differ in the seed of their first weights and prompts only. What moves between "
            "them says how much of a single run's number is chance; the last line is by how much two runs differ by "
            "chance (95 %, from Student's t), and the table of numbers uses it. The table: R² of the best-matching "
            "steps of each solver, layers where Richardson is most similar, and the error with 40 examples over that "
            "of exact KRR. Left: error by layer with 40 examples. Right: best-matching Richardson steps. "
            + steps_caption(models)
        ),
        draw=draw_seeds,
        table=table_steps,
        summary=summary_seeds,
    )


def draw_seeds(data: Data) -> Figure:
    with figure(10.5, 3.3) as fig:
        left, right = fig.subplots(1, 2)
        for (color, dash), (name, model) in zip(cycle(SEED_LOOKS), data.items(), strict=False):
            left.plot(model["layers"], model["layer_mse"][-1], dash, color=color, marker="o", markersize=3, label=name)
            words = f"{name}, R² = {r2_words(model['solvers']['richardson']['r2'])}"
            trajectory(right, model, "richardson", label=words, color=color, dash=dash, band=False)
        left.axhline(next(iter(data.values()))["krr"][-1], color=INK, linestyle=":", label="exact KRR")
        left.set(xlabel="layer", title="error with 40 examples")
        error_axis(left)
        left.legend()
        right.set_title(f"{LABELS['richardson']}, {TITLES['sphere']}")
        right.legend(loc="upper left")
    return fig


def summary_seeds(data: Data) -> tuple[list[str], list[list[str]]]:
    def numbers(model: Data) -> dict[str, float]:
        r2 = {LABELS[solver]: model["solvers"][solver]["r2"] for solver in PAPER_SOLVERS}
        return {**r2, "won": model["won"]["richardson"], "ratio": model["over_krr"]}

    found = {name: numbers(model) for name, model in data.items()}
    keys = list(next(iter(found.values())))
    lines = [
        [name, *(r2_words(each[key]) if key != "won" else f"{each[key]:.0f}" for key in keys)]
        for name, each in found.items()
    ]
    chance = [by_chance([each[key] for each in found.values()]) for key in keys]
    lines.append(["two runs differ by up to", *(f"{value:.3f}" if isfinite(value) else "–" for value in chance)])
    names = [f"R², {LABELS[solver]}" for solver in PAPER_SOLVERS]
    return ["model", *names, "layers most like Richardson", "error / KRR"], lines
