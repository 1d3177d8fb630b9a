"""Trained models beside the classical solvers: error by layer, SimE heat maps, best-matching steps."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from layerstep.errors import FileError
from layerstep.measurement import Match, layers_won, match
from layerstep.paper import convergence
from layerstep.paper.artefact import Artefact, Data
from layerstep.paper.predictions import FILE, Predictions
from layerstep.paper.quoted import BEST_STEP_R2, LAYERS_WON, Row
from layerstep.paper.runs import RUNS
from layerstep.paper.settings import CONTEXTS, SETTINGS, TITLES, evaluation_prompts
from layerstep.paper.style import INK, SOLVER_COLORS, SOLVER_DASHES, context_colors, figure
from layerstep.solvers import PAPER_SOLVERS, SOLVERS, ConjugateGradient, solve_all
from layerstep.tasks import Path

ROOMS = ("tasks", "solvers", "measurement", "paper")
LABELS = {name: SOLVERS[name].label for name in PAPER_SOLVERS}


def available() -> list[str]:
    """Names of the paper's runs whose predictions are here and whole, in the order of the paper."""
    found = []
    for name, run in RUNS.items():
        with contextlib.suppress(FileError):
            Predictions.load(run.folder)
            found.append(name)
    return found


def identity(name: str) -> Data:
    """What a model's artefacts depend on: its name and its predictions."""
    return {"model": name, "predictions": hashlib.sha256((RUNS[name].folder / FILE).read_bytes()).hexdigest()[:12]}


def steps_note(name: str) -> str:
    """How long the model was trained, for the reader of a number made with it."""
    steps = RUNS[name].trained_steps
    return f"our model: {steps:,} training steps" if steps else ""


@functools.lru_cache(maxsize=1)
def references(setting: str) -> dict[str, Path]:
    """Paths of the paper's four solvers with the paper's budgets: 500 steps, 1,500 at v = 2, 100 for CG."""
    budget = 1500 if setting == "sphere-v2" else 500
    steps = {"richardson": budget, "cg": 100, "gd": budget, "nesterov": budget}
    chosen = {**SOLVERS, "cg": ConjugateGradient(reorthogonalize=True)}
    prompts = evaluation_prompts(setting)
    return solve_all({name: (chosen[name], steps[name]) for name in PAPER_SOLVERS}, prompts, SETTINGS[setting])


@functools.lru_cache(maxsize=1)
def matches(name: str) -> dict[str, Match]:
    """SimE of the model's layers 1..L with every step of the four solvers."""
    setting, path = RUNS[name].setting, Predictions.load(RUNS[name].folder).layers
    inner = Path(path.values[1:], path.stages[1:], path.label)
    return {solver: match(inner, found, evaluation_prompts(setting)) for solver, found in references(setting).items()}


# Error by layer -------------------------------------------------------------------------------------------------


def compute_convergence(config: Data) -> Data:
    """The solvers' panels, and the model's mean squared error by layer and context length."""
    name = config["model"]
    setting = RUNS[name].setting
    found = Predictions.load(RUNS[name].folder)
    prompts = evaluation_prompts(setting)
    columns = [n - 1 for n in CONTEXTS]
    target = prompts.target[:, columns]
    return {
        **convergence.compute({"setting": setting, "sequences": prompts.B}),
        "model": name,
        "layers": found.layers.stages.tolist(),
        "layer_mse": (found.layers.values[..., columns] - target).square().mean(1).T.tolist(),
        "head_mse": (found.head[:, columns] - target).square().mean(0).tolist(),
    }


def draw_convergence(data: Data) -> Figure:
    with figure(12.5, 2.9) as fig:
        axes = fig.subplots(1, 1 + len(data["solvers"]), sharey=True)
        colors = context_colors(len(data["contexts"]))
        floor = data["layer_mse"][-1][-1]
        panels = [("Transformer", data["layers"], data["layer_mse"], "layer")]
        panels += [(s["label"], s["steps"], s["mse"], "step") for s in data["solvers"].values()]
        for ax, (title, x, curves, unit) in zip(axes, panels, strict=True):
            for color, n, mse in zip(colors, data["contexts"], curves, strict=True):
                ax.plot(x, mse, color=color, label=f"n = {n}", marker="o" if unit == "layer" else "", markersize=3)
            ax.axhline(floor, color=INK, linestyle="--", linewidth=1)
            ax.set(title=title, xlabel=unit, yscale="log")
        axes[0].set_ylabel("mean squared error")
        axes[0].set_yticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
        axes[0].minorticks_off()
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return fig


def table_convergence(data: Data) -> tuple[list[str], list[list[Any]]]:
    header, lines = convergence.table(data)
    layers = [
        ["transformer", n, int(layer), value]
        for n, mse in zip(data["contexts"], data["layer_mse"], strict=True)
        for layer, value in zip(data["layers"], mse, strict=True)
    ]
    return [header[0], header[1], "step_or_layer", header[3]], layers + lines


# SimE heat maps -------------------------------------------------------------------------------------------------


def compute_sime(config: Data) -> Data:
    """SimE(l, t) of every solver at about a hundred steps, and the best step of every layer among all of them."""
    found = {}
    for solver, matched in matches(config["model"]).items():
        sime = matched.sime
        last = len(matched.steps) - 1
        shown = np.unique(np.geomspace(1, last + 1, 100).round().astype(int) - 1)
        best = sime.argmax(1)
        found[solver] = {
            "steps": matched.steps[shown].tolist(),
            "sime": sime[:, shown].tolist(),
            "best_step": matched.steps[best].tolist(),
            "best_sime": sime.amax(1).tolist(),
        }
    layers = next(iter(matches(config["model"]).values())).layers.tolist()
    return {"model": config["model"], "layers": layers, "solvers": found}


def draw_sime(data: Data) -> Figure:
    layers = np.array(data["layers"])
    with figure(12.5, 3.4) as fig:
        axes = fig.subplots(1, len(data["solvers"]))
        low = min(np.min(s["sime"]) for s in data["solvers"].values())
        for ax, (solver, found) in zip(axes, data["solvers"].items(), strict=True):
            steps = np.array(found["steps"]) + 1  # step 0 has its place on a logarithmic axis
            image = ax.pcolormesh(
                layers,
                steps,
                np.array(found["sime"]).T,
                cmap="cividis",
                vmin=low,
                vmax=1,
                shading="nearest",
                rasterized=True,
            )
            ax.plot(
                layers,
                np.array(found["best_step"]) + 1,
                "s",
                markersize=5,
                markerfacecolor="none",
                markeredgecolor="#D55E00",
                markeredgewidth=1.4,
            )
            ax.set(title=LABELS[solver], xlabel="layer", yscale="log")
            ticks = [t for t in (0, 1, 3, 10, 30, 100, 300, 1000) if t < steps[-1]]
            ax.set_yticks([t + 1 for t in ticks], [str(t) for t in ticks])
            ax.set_xticks(layers[:: max(1, len(layers) // 6)])
            ax.minorticks_off()
            ax.grid(False)
        axes[0].set_ylabel("solver step")
        fig.colorbar(image, ax=axes, label="SimE", shrink=0.9)
    return fig


def table_sime(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = [
        [solver, int(layer), int(step), value]
        for solver, found in data["solvers"].items()
        for layer, row in zip(data["layers"], found["sime"], strict=True)
        for step, value in zip(found["steps"], row, strict=True)
    ]
    return ["solver", "layer", "step", "sime"], lines


# Best-matching steps --------------------------------------------------------------------------------------------


def compute_steps(config: Data) -> Data:
    """Mean and s.d. over sequences of t*(l), the line through layers 2..10 (2..20 of 24), layers won."""
    found = matches(config["model"])
    deepest = int(next(iter(found.values())).layers[-1])
    first, last = 2, (20 if deepest == 24 else 10)
    solvers = {}
    for solver, matched in found.items():
        line = matched.line(first, last, seed=config["seed"])
        best = matched.best_step
        solvers[solver] = {
            "mean": best.mean(0).tolist(),
            "sd": best.std(0).tolist(),
            "at_cap": matched.at_cap.tolist(),
            "r2": line.r2,
            "r2_low": line.interval[0],
            "r2_high": line.interval[1],
            "slope": line.slope,
            "intercept": line.intercept,
            "r2_of_mean": matched.line(first, last, seed=config["seed"], resamples=1, of_mean=True).r2,
        }
    won = layers_won(found)
    low, high = _won_interval(found, config["seed"])
    return {
        "model": config["model"],
        "layers": next(iter(found.values())).layers.tolist(),
        "range": [first, last],
        "solvers": solvers,
        "won": won,
        "won_low": low,
        "won_high": high,
    }


def _won_interval(found: dict[str, Match], seed: int, resamples: int = 400) -> tuple[float, float]:
    """95 % range over resampled sequences of the number of layers Richardson wins."""
    count = next(iter(found.values())).cosine.shape[-1]
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    weights = torch.from_numpy(draws).double().T / count
    best = torch.stack([(matched.cosine @ weights).amax(1) for matched in found.values()])  # solver, layer, resample
    won = (best.argmax(0) == list(found).index("richardson")).sum(0).double()
    low, high = won.quantile(torch.tensor([0.025, 0.975], dtype=won.dtype)).tolist()
    return low, high


def rows_steps(data: Data) -> list[Row]:
    name, richardson = data["model"], data["solvers"]["richardson"]
    note = steps_note(name)
    rows = []
    if name in BEST_STEP_R2:
        rows.append(
            Row(
                quantity=f"R² of best Richardson step against layer, {TITLES[RUNS[name].setting]}",
                where="Figure 2b and text",
                paper=BEST_STEP_R2[name],
                ours=richardson["r2"],
                low=richardson["r2_low"],
                high=richardson["r2_high"],
                rounding=0.0005,
                note=note,
            )
        )
    if name in LAYERS_WON:
        rows.append(
            Row(
                quantity=f"layers of 12 where Richardson is most similar, {TITLES[RUNS[name].setting]}",
                where="text on the arc-cosine kernel",
                paper=LAYERS_WON[name],
                ours=data["won"]["richardson"],
                low=data["won_low"],
                high=data["won_high"],
                note=note,
            )
        )
    return rows


def draw_steps(data: Data) -> Figure:
    layers = np.array(data["layers"])
    inside = (layers >= data["range"][0]) & (layers <= data["range"][1])
    with figure(9.6, 3.4) as fig:
        ax = fig.subplots()
        for solver, found in data["solvers"].items():
            color, mean, sd = SOLVER_COLORS[solver], np.array(found["mean"]), np.array(found["sd"])
            ax.fill_between(layers, np.maximum(mean - sd, 0), mean + sd, color=color, alpha=0.12, linewidth=0)
            label = f"{LABELS[solver]}, R² = {found['r2']:.3f}"
            ax.plot(layers, mean, SOLVER_DASHES[solver], color=color, marker="o", markersize=3.5, label=label)
            ax.plot(layers[inside], found["intercept"] + found["slope"] * layers[inside], color=color, linewidth=0.8)
        ax.set(xlabel="layer", ylabel="best-matching step")
        ax.set_ylim(bottom=0)
        fig.legend(*ax.get_legend_handles_labels(), loc="outside right upper")
    return fig


def table_steps(data: Data) -> tuple[list[str], list[list[Any]]]:
    lines = [
        [solver, int(layer), *values]
        for solver, found in data["solvers"].items()
        for layer, *values in zip(data["layers"], found["mean"], found["sd"], found["at_cap"], strict=True)
    ]
    return ["solver", "layer", "mean_best_step", "sd_over_sequences", "share_at_last_step"], lines


def artefacts(name: str) -> tuple[Artefact, ...]:
    """The three figures of one trained model."""
    title = f"{TITLES[RUNS[name].setting]}, {RUNS[name].run.model.layers} layers ({name})"
    config = identity(name)
    return (
        Artefact(
            name=f"trained-{name}",
            title=f"Error by layer: {title}",
            caption=(
                "Mean squared error read off every layer by a linear probe, beside the solvers step by step, by "
                "context length n. The dashed line is the last layer at the longest context."
            ),
            config=config,
            compute=compute_convergence,
            draw=draw_convergence,
            table=table_convergence,
            rooms=ROOMS,
        ),
        Artefact(
            name=f"sime-{name}",
            title=f"Similarity of errors: {title}",
            caption=(
                "Mean cosine between the errors of a layer and those of a solver after a number of steps; the squares "
                "mark the most similar step. High values are not evidence by themselves: all good predictors share "
                "most of their error."
            ),
            config=config,
            compute=compute_sime,
            draw=draw_sime,
            table=table_sime,
            rooms=ROOMS,
        ),
        Artefact(
            name=f"steps-{name}",
            title=f"Best-matching step by layer: {title}",
            caption=(
                "Mean over sequences (band: one standard deviation) of the step most similar to each layer, within the "
                "paper's budget of 500 steps (100 for conjugate gradients), and the line through the inner layers."
            ),
            config=config | {"seed": 1},
            compute=compute_steps,
            draw=draw_steps,
            table=table_steps,
            rows=rows_steps,
            rooms=ROOMS,
        ),
    )
