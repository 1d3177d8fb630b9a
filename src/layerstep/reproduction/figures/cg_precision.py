"""Conjugate gradients in three precisions: which bumps are the method and which are rounding."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure

from layerstep.plotting import BLUE, GREEN, INK, ORANGE, figure
from layerstep.reproduction.figures.convergence import error_axis, name_exact
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.settings import SETTINGS, evaluation_prompts
from layerstep.solvers import ConjugateGradient, exact, solve


def compute(config: Data) -> Data:
    task, prompts = SETTINGS["sphere"], evaluation_prompts("sphere", config["sequences"])
    target = prompts.noiseless_target[:, -1:]
    variants = {
        "exact (reorthogonalized)": (ConjugateGradient(reorthogonalize=True), torch.float64),
        "float64 recursion": (ConjugateGradient(), torch.float64),
        "float32 recursion": (ConjugateGradient(), torch.float32),
    }
    curves = {}
    for name, (solver, dtype) in variants.items():
        path = solve(solver, prompts.to(dtype), task, config["steps"], contexts=[task.N])
        curves[name] = (path.values.double() - target).square().mean((1, 2)).tolist()
    krr = (exact(prompts, task)[:, -1:] - target).square().mean().item()
    return {"steps": list(range(config["steps"] + 1)), "curves": curves, "krr": krr}


def draw(data: Data) -> Figure:
    with figure(6.2, 3.0) as fig:
        ax = fig.subplots()
        looks = [(BLUE, "-", "o"), (ORANGE, "--", "s"), (GREEN, ":", "^")]
        for (name, mse), (color, dash, marker) in zip(data["curves"].items(), looks, strict=True):
            ax.plot(data["steps"], mse, dash, color=color, marker=marker, markersize=3.5, label=name)
        ax.axhline(data["krr"], color=INK, linestyle="--", linewidth=1)
        error_axis(ax)
        name_exact(ax, data["krr"])
        ax.set(xlabel="step", ylabel="mean squared error, n = 40")
        ax.legend()
    return fig


def table(data: Data) -> tuple[list[str], list[list[Any]]]:
    return ["step", *data["curves"]], [list(line) for line in zip(data["steps"], *data["curves"].values(), strict=True)]


ARTEFACT = Artefact(
    name="cg-precision",
    title="Conjugate gradients: method or rounding?",
    caption=(
        "Conjugate gradients on the same 1,000 prompts (sphere) in exact arithmetic (by reorthogonalization), in "
        "float64 and in float32; errors are against the noiseless function, so that they lie below those of the other "
        "figures. A bump that the first curve does not have is rounding, not the method."
    ),
    config={"sequences": 1000, "steps": 24},
    compute=compute,
    draw=draw,
    table=table,
)
