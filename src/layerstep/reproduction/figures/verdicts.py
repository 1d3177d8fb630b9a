"""Whose steps are these? The instrument's verdict on every trained model, and on controls whose answer is known."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from layerstep.construction import construct
from layerstep.errors import LayerstepError
from layerstep.files import digest
from layerstep.measurement import CLASSES, Instrument, Verdict, identify, layers_won, match
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.identification.library import default_contexts
from layerstep.measurement.identification.report import headline
from layerstep.plotting import ORANGE, figure
from layerstep.reproduction.measurements import identity, predictions, references
from layerstep.reproduction.result import Artefact, Data, kept, result_in
from layerstep.reproduction.runs import LAWS
from layerstep.reproduction.settings import EVALUATION_SEED, SETTINGS, evaluation_prompts
from layerstep.solvers import NadarayaWatson, RidgePath, solve
from layerstep.tasks import Trajectory
from layerstep.threads import one_per_worker

ROOMS = ("tasks", "solvers", "construction", "measurement", "reproduction")
SEED = EVALUATION_SEED  # of the bootstrap behind a verdict: `layerstep identify` says the same of a model


class Subject(NamedTuple):
    """Whatever is judged: its setting, what its verdict depends on, how to make its path, and what is known of it."""

    setting: str
    identity: Data
    path: Callable[[], Trajectory]
    facts: Data


def _constructed(setting: str) -> Trajectory:
    """A written transformer that runs the paper's iteration; every tenth block is taken for a layer."""
    task = SETTINGS[setting]
    network = construct(task.d, task.N, task.v, task.lam, scheme="exact", eta=1.0, L=120)
    stages = range(10, 121, 10)
    path = network.path(evaluation_prompts(setting), stages=stages, contexts=default_contexts(task.N))
    return Trajectory(path.values, np.arange(1.0, 13), "constructed", path.contexts)


def _planted(solver, steps) -> Callable[[str], Trajectory]:
    def path(setting: str) -> Trajectory:
        found = solve(solver, evaluation_prompts(setting), SETTINGS[setting], steps)
        return Trajectory(found.values, np.arange(1.0, 1 + len(found.values)), solver.label)

    return path


#: Controls: what they are, the right answer, and how to make their path.
CONTROLS: dict[str, tuple[str, str, Callable[[str], Trajectory]]] = {
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


def judge(
    models: Mapping[str, Data], folder: Path, progress: Callable[[str], None] = lambda name: None
) -> tuple[dict[str, Data], dict[str, str]]:
    """Verdicts on these models (by name, with their numbers) and on the controls, from `folder` where they are there;
    reasons where one failed."""
    subjects: dict[str, Subject] = {
        name: Subject(
            found["setting"],
            identity(name),
            functools.partial(_model_path, name),
            {"what": found["held"], "steps": found["trained_steps"], "won": found["won"]["richardson"]},
        )
        for name, found in _distinct(models).items()
    }
    subjects |= {
        name: Subject("sphere", {"control": name}, functools.partial(make, "sphere"), {"what": what, "truth": truth})
        for name, (what, truth, make) in CONTROLS.items()
    }
    results: dict[str, Data | LayerstepError] = {}
    for setting in sorted({subject.setting for subject in subjects.values()}):
        alike = {name: subject for name, subject in subjects.items() if subject.setting == setting}
        results |= _judge_alike(setting, alike, folder / "measured", progress)
    found, failed = {}, {}
    for name in subjects:
        result = results[name]
        if isinstance(result, LayerstepError):
            failed[f"verdict on {name}"] = str(result)
        else:
            found[name] = result
    return found, failed


def _distinct(models: Mapping[str, Data]) -> dict[str, Data]:
    """The models but for those whose predictions another one before them has too: one model in two folders."""
    first: dict[str, str] = {}
    for name in models:
        first.setdefault(identity(name)["predictions"], name)
    return {name: models[name] for name in first.values()}


def _judge_alike(
    setting: str, subjects: Mapping[str, Subject], folder: Path, progress: Callable[[str], None]
) -> dict[str, Data | LayerstepError]:
    """Verdicts on subjects of one setting, one a core, by one instrument, made if a verdict is missing."""
    rule = read_record()["rule"]
    files = {name: folder / f"verdict-{name.replace(' ', '-')}.json" for name in subjects}
    made_from = {name: {**subject.identity, "seed": SEED, "rule": rule} for name, subject in subjects.items()}
    there = {name: result_in(files[name], made_from[name], ROOMS) for name in subjects}
    results: dict[str, Data | LayerstepError] = {name: found["data"] for name, found in there.items() if found}
    missing = [name for name in subjects if name not in results]
    if not missing:
        return results
    progress(f"verdicts on {', '.join(missing)}")
    instrument = _instrument(setting)

    def one(name: str) -> Data | LayerstepError:
        compute = functools.partial(_judge, subjects[name], instrument)
        try:
            return kept(files[name], made_from[name], ROOMS, compute)[0]["data"]
        except LayerstepError as error:
            return error

    with one_per_worker(one, missing) as judged:
        return results | dict(zip(missing, judged, strict=True))


def _judge(subject: Subject, instrument: Instrument) -> Data:
    task, prompts = SETTINGS[subject.setting], evaluation_prompts(subject.setting)
    path = subject.path()
    verdict = identify(path, prompts, task, instrument=instrument, seed=SEED)
    won = {} if "won" in subject.facts else {"won": _won(path, subject.setting)}
    return {**subject.facts, **won, "setting": subject.setting, "depth": len(path.stages), **_short(verdict)}


def _instrument(setting: str) -> Instrument:
    task = SETTINGS[setting]
    return Instrument.prepare(evaluation_prompts(setting), task, default_contexts(task.N))


def _model_path(name: str) -> Trajectory:
    path = predictions(name).layers
    return Trajectory(path.values[1:], path.stages[1:], name)


def _won(path: Trajectory, setting: str) -> int:
    """Layers where Richardson has the largest SimE of the paper's four solvers."""
    columns = [n - 1 for n in path.contexts.tolist()]
    target = evaluation_prompts(setting).target[:, columns]
    solvers = {
        name: Trajectory(p.values[..., columns], p.stages, p.label, path.contexts)
        for name, p in references(setting).items()
    }
    return layers_won({name: match(path, p, target) for name, p in solvers.items()})["richardson"]


def _short(verdict: Verdict) -> Data:
    """The numbers the page shows; `layerstep identify --json` gives all of them."""
    overall, table = verdict.overall, verdict.table
    short = {
        "answer": verdict.status,
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
        usable = torch.isin(table.layers, torch.tensor(overall.usable, dtype=table.layers.dtype))
        classes: dict[str, float] = {}
        for fit in overall.fits:  # the best first: its class's value is that of its nearest family
            classes.setdefault(fit.kind, float(fit.U_layer[usable].mean()))
        short |= {"classes": classes}
        short |= {"families": list(table.families), "layers": table.layers.tolist(), "U_layer": table.U.tolist()}
    return short


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def draw(data: Data) -> Figure:
    """What every class leaves of every model, and by layer what every family leaves of a few: dark is close."""
    judged = {name: found for name, found in data.items() if "classes" in found}
    few = {name: found for name, found in judged.items() if name in LAWS or name in CONTROLS}
    lines = math.ceil(len(few) / 3)
    heights = [1.2 + 0.2 * len(judged), 2.9 * lines]
    with figure(9.2, sum(heights)) as fig:
        parts = fig.subfigures(2 if few else 1, 1, height_ratios=heights[: 2 if few else 1], squeeze=False)[:, 0]
        if judged:
            _draw_classes(parts[0].subplots(), judged)
        if few:
            _draw_layers(parts[1], parts[1].subplots(lines, 3, sharey=True, squeeze=False).flatten(), few)
    return fig


def _draw_classes(ax: Axes, judged: Mapping[str, Data]) -> None:
    """U of every class on every model, the nearest in a box."""
    kinds = [kind for kind in CLASSES if any(kind in found["classes"] for found in judged.values())]
    table = np.array([[found["classes"].get(kind, math.nan) for kind in kinds] for found in judged.values()])
    ax.imshow(table, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (line, column), value in np.ndenumerate(table):
        words, color = ("–", "black") if math.isnan(value) else (f"{value:.2f}", "white" if value < 0.5 else "black")
        ax.text(column, line, words, ha="center", va="center", fontsize=6.5, color=color)
    for line, found in enumerate(judged.values()):
        corner = (kinds.index(found["nearest"]) - 0.5, line - 0.5)
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=ORANGE, linewidth=1.6))
    ax.set_xticks(range(len(kinds)), kinds, rotation=40, ha="right", fontsize=7.5)
    ax.set_yticks(range(len(judged)), [f"{name}: {found['headline']}" for name, found in judged.items()], fontsize=7.5)
    ax.set_title("unexplained fraction U by class, mean over layers; the nearest in a box")
    ax.grid(False)


def _draw_layers(fig: SubFigure, axes: np.ndarray, few: Mapping[str, Data]) -> None:
    """U of every family on every layer."""
    names = sorted({family for found in few.values() for family in found["families"]})
    for ax, (name, found) in zip(axes, few.items(), strict=False):
        empty = [math.nan] * len(found["layers"])
        by_family = dict(zip(found["families"], found["U_layer"], strict=True))
        table = np.array([by_family.get(family, empty) for family in names])
        scale = LogNorm(vmin=1e-3, vmax=1, clip=True)
        image = ax.pcolormesh(
            found["layers"], range(len(names)), table, cmap="cividis", norm=scale, shading="nearest", rasterized=True
        )
        ax.set_title(name)
        ax.set_yticks(range(len(names)), names, fontsize=6.5)
        ax.set_xticks(found["layers"][:: max(1, len(found["layers"]) // 6)])
        ax.set_xlabel("layer")
        ax.grid(False)
    for ax in axes[len(few) :]:
        ax.remove()
    fig.colorbar(image, ax=list(axes[: len(few)]), label="unexplained fraction U by layer", aspect=40)


def table(data: Data) -> tuple[list[str], list[list[Any]]]:
    keys = ["what", "setting", "answer", "solver", "nearest", "U", "V", "margin", "rival", "won"]
    lines = [
        [name, *(found[key] for key in keys), *(found.get("classes", {}).get(kind) for kind in CLASSES)]
        for name, found in data.items()
    ]
    return ["model", *keys, *(f"U of {kind}" for kind in CLASSES)], lines


def summary(data: Data) -> tuple[list[str], list[list[str]]]:
    def digits(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    lines = [
        [
            name,
            found["what"],
            f"Richardson in {found['won']} of {found['depth']} layers",
            found["headline"],
        ]
        + [digits(found[key]) for key in ("U", "V", "margin")]
        for name, found in data.items()
    ]
    header = ["model", "what it is", "the paper's metric says", "the instrument says"]
    return [*header, "unexplained U", "structured V", "margin"], lines


def artefact(judged: Mapping[str, Data]) -> Artefact:
    """Verdicts on the models and the controls, by the calibrated rule."""
    rule = read_record()["rule"]
    return Artefact(
        name="verdicts",
        title="Whose steps? The verdict, with controls whose answer is known",
        caption=(
            "For every model the table shows what the paper's similarity metric says, and what the instrument says. U "
            "is the fraction of the layers' distance to exact kernel ridge regression that the nearest class leaves "
            "unexplained, V the part of it that has a pattern, the margin how much farther every other class is in 99 "
            "of 100 resamples of the prompts (below 0: another class is nearer in some). A "
            f"class is named only if V is at most {rule['v_limit']:g}, U at most {rule['u_limit']:g} and the margin at "
            f"least {rule['margin_limit']:g}. The figure shows U of every class for every model (the nearest has "
            "the least U over the share of a layer that anything explains), and for the three laws and the "
            "controls U of every family, a class's members, on every layer (dark: little is left; –: diverges)."
        ),
        config={"judged": digest(judged)},
        compute=lambda _: dict(judged),
        draw=draw,
        table=table,
        summary=summary,
        rooms=ROOMS,
    )
