"""Whose steps are these? The instrument's verdict on every trained model, and on controls whose answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from layerstep.construction import construct
from layerstep.measurement import Instrument, Library, Verdict, identify, layers_won, match
from layerstep.measurement.library import default_contexts
from layerstep.measurement.record import read_record
from layerstep.measurement.words import headline
from layerstep.paper import trained
from layerstep.paper.artefact import Artefact, Data
from layerstep.paper.predictions import Predictions
from layerstep.paper.runs import RUNS
from layerstep.paper.settings import SETTINGS, evaluation_prompts
from layerstep.paper.style import figure
from layerstep.solvers import NadarayaWatson, RidgePath, solve
from layerstep.tasks import Path

ROOMS = ("tasks", "solvers", "construction", "measurement", "paper")


def _constructed(setting: str) -> Path:
    """A written transformer that runs the paper's iteration; every tenth block is taken for a layer."""
    task = SETTINGS[setting]
    network = construct(task.d, task.N, task.v, task.lam, scheme="exact", eta=1.0, L=120)
    stages = range(10, 121, 10)
    path = network.path(evaluation_prompts(setting), stages=stages, contexts=default_contexts(task.N))
    return Path(path.values, np.arange(1.0, 13), "constructed", path.contexts)


def _planted(solver, steps) -> Callable[[str], Path]:
    def path(setting: str) -> Path:
        found = solve(solver, evaluation_prompts(setting), SETTINGS[setting], steps)
        return Path(found.values, np.arange(1.0, 1 + len(found.values)), solver.label)

    return path


#: Controls: what they are, the right answer, and how to make their path.
CONTROLS: dict[str, tuple[str, str, Callable[[str], Path]]] = {
    "constructed transformer": ("runs preconditioned Richardson, 10 blocks a layer", "richardson", _constructed),
    "ridge path": (
        "solves exactly with a shrinking ridge: no iteration",
        "ridge",
        _planted(RidgePath(), [0.6 * i for i in range(1, 13)]),
    ),
    "kernel average": (
        "averages labels, sharper with depth: solves nothing",
        "nadaraya-watson",
        _planted(NadarayaWatson(), [0.25 * i for i in range(1, 13)]),
    ),
}


def compute(config: Data) -> Data:
    """Verdicts, and beside them the number of layers the paper's metric gives to Richardson."""
    subjects = [
        (
            name,
            RUNS[name].setting,
            _model_path(name),
            {"what": "trained transformer", "steps": RUNS[name].trained_steps},
        )
        for name in config["models"]
    ]
    subjects += [
        (name, "sphere", make("sphere"), {"what": what, "truth": truth})
        for name, (what, truth, make) in CONTROLS.items()
    ]
    instruments: dict[str, Instrument] = {}
    found = {}
    for name, setting, path, facts in sorted(subjects, key=lambda subject: subject[1]):
        task, prompts = SETTINGS[setting], evaluation_prompts(setting)
        if setting not in instruments:
            instruments = {setting: Instrument.prepare(Library.build(prompts, task, default_contexts(task.N)))}
        verdict = identify(path, prompts, task, instrument=instruments[setting], seed=config["seed"])
        found[name] = {**facts, "setting": setting, **_short(verdict), "won": _won(path, setting)}
    return {name: found[name] for name, *_ in subjects}


def _model_path(name: str) -> Path:
    path = Predictions.load(RUNS[name].folder).layers
    return Path(path.values[1:], path.stages[1:], name)


def _won(path: Path, setting: str) -> int:
    """Layers where Richardson has the largest SimE of the paper's four solvers."""
    columns = [n - 1 for n in path.contexts.tolist()]
    target = evaluation_prompts(setting).target[:, columns]
    references = {
        name: Path(p.values[..., columns], p.stages, p.label, path.contexts)
        for name, p in trained.references(setting).items()
    }
    return layers_won({name: match(path, p, target) for name, p in references.items()})["richardson"]


def _short(verdict: Verdict) -> Data:
    """The numbers the page shows; `layerstep identify --json` gives all of them."""
    overall, table = verdict.overall, verdict.table
    short = {
        "answer": verdict.answer,
        "solver": verdict.solver,
        "headline": headline(overall),
        "reason": overall.reason,
        "nearest": overall.nearest,
        "U": _number(overall.U),
        "V": _number(overall.V),
        "margin": _number(overall.margin),
        "rival": overall.rival,
        "text": str(verdict),
        "windows": [[[w.layers[0], w.layers[-1]], headline(w)] for w in verdict.ranges],
    }
    if table is not None:
        short |= {"families": list(table.families), "layers": table.layers.tolist(), "U_layer": table.U.tolist()}
    return short


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def draw(data: Data) -> Figure:
    """The unexplained fraction of every family on every layer: dark is close, and only a dark row is a candidate."""
    shown = {name: found for name, found in data.items() if "families" in found}
    names = sorted({family for found in shown.values() for family in found["families"]})
    columns = min(3, len(shown))
    lines = math.ceil(len(shown) / columns)
    with figure(3.9 * columns + 1.2, 3.3 * lines) as fig:
        scale = LogNorm(vmin=1e-3, vmax=1, clip=True)
        axes = np.atleast_1d(fig.subplots(lines, columns, sharey=True, squeeze=False)).flatten()
        for ax, (name, found) in zip(axes, shown.items(), strict=False):
            rows = [found["U_layer"][found["families"].index(f)] if f in found["families"] else None for f in names]
            table = np.array([np.full(len(found["layers"]), np.nan) if row is None else row for row in rows])
            layers = np.array(found["layers"])
            image = ax.pcolormesh(
                layers, np.arange(len(names)), table, cmap="cividis", norm=scale, shading="nearest", rasterized=True
            )
            ax.set_title(f"{name}\n{found['headline']}", fontsize=8.5)
            ax.set_yticks(np.arange(len(names)), names, fontsize=7)
            ax.set_xticks(layers[:: max(1, len(layers) // 6)])
            ax.set_xlabel("layer")
            ax.grid(False)
        for ax in axes[len(shown) :]:
            ax.remove()
        fig.colorbar(image, ax=list(axes[: len(shown)]), label="unexplained fraction U", shrink=0.9)
    return fig


def table(data: Data) -> tuple[list[str], list[list[Any]]]:
    keys = ["what", "setting", "answer", "solver", "nearest", "U", "V", "margin", "rival", "won"]
    return ["model", *keys], [[name, *(found[key] for key in keys)] for name, found in data.items()]


def summary(data: Data) -> tuple[list[str], list[list[str]]]:
    def digits(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    lines = [
        [
            name,
            found["what"],
            f"Richardson in {found['won']} of {len(found.get('layers', [])) or 12} layers",
            found["headline"],
        ]
        + [digits(found[key]) for key in ("U", "V", "margin")]
        for name, found in data.items()
    ]
    header = ["model", "what it is", "the paper's metric says", "the instrument says"]
    return [*header, "unexplained U", "structured V", "margin"], lines


def artefact(names: list[str]) -> Artefact:
    """Verdicts on these models and on the controls, by the calibrated rule."""
    rule = read_record()["rule"]
    return Artefact(
        name="verdicts",
        title="Whose steps? The verdict, with controls whose answer is known",
        caption=(
            "For every model the table shows what the paper's similarity metric says, and what the instrument says: a "
            f"solver is named only when next to nothing structured is left (V at most {rule['v_limit']:g}) and every "
            f"rival is farther by a margin ({rule['margin_limit']:g}). The figure shows the fraction of each layer's "
            "distance to exact kernel ridge regression that a family leaves unexplained (dark: little)."
        ),
        config={"models": names, "of": [trained.identity(name) for name in names], "seed": 0, "rule": rule},
        compute=compute,
        draw=draw,
        table=table,
        summary=summary,
        rooms=ROOMS,
    )
