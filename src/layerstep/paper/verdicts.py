"""Whose steps are these? The instrument's verdict on every trained model, and on controls whose answer is known."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from layerstep.construction import construct
from layerstep.errors import LayerstepError
from layerstep.files import digest
from layerstep.measurement import Instrument, Library, Verdict, identify, layers_won, match
from layerstep.measurement.library import default_contexts
from layerstep.measurement.record import read_record
from layerstep.measurement.words import headline
from layerstep.paper.artefact import Artefact, Data, kept, result_in
from layerstep.paper.measured import identity, predictions, references
from layerstep.paper.settings import EVALUATION_SEED, SETTINGS, evaluation_prompts
from layerstep.paper.style import figure
from layerstep.solvers import NadarayaWatson, RidgePath, solve
from layerstep.tasks import Path
from layerstep.threads import pool

ROOMS = ("tasks", "solvers", "construction", "measurement", "paper")
SEED = EVALUATION_SEED  # of the bootstrap behind a verdict: `layerstep identify` says the same of a model


class Subject(NamedTuple):
    """Whatever is judged: its setting, what its verdict depends on, how to make its path, and what is known of it."""

    setting: str
    identity: Data
    path: Callable[[], Path]
    facts: Data


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


def judge(
    models: Mapping[str, Data], folder: FilePath, progress: Callable[[str], None] = lambda name: None
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
    setting: str, subjects: Mapping[str, Subject], folder: FilePath, progress: Callable[[str], None]
) -> dict[str, Data | LayerstepError]:
    """Verdicts on subjects of one setting, one a core, by one instrument, made if a verdict is missing."""
    rule = read_record()["rule"]
    files = {name: folder / f"verdict-{name.replace(' ', '-')}.json" for name in subjects}
    made_from = {name: {**subject.identity, "seed": SEED, "rule": rule} for name, subject in subjects.items()}
    missing = [name for name in subjects if result_in(files[name], made_from[name], ROOMS) is None]
    if missing:
        progress(f"verdicts on {', '.join(missing)}")
    instrument = _instrument(setting) if missing else None

    def one(name: str) -> Data | LayerstepError:
        compute = functools.partial(_judge, subjects[name], instrument)
        try:
            return kept(files[name], made_from[name], ROOMS, compute)[0]["data"]
        except LayerstepError as error:
            return error

    with pool(torch.device("cpu")) as workers, closing(workers.map(one, subjects)) as results:  # type: ignore[type-var]
        return dict(zip(subjects, results, strict=True))


def _judge(subject: Subject, instrument: Instrument | None) -> Data:
    task, prompts = SETTINGS[subject.setting], evaluation_prompts(subject.setting)
    path = subject.path()
    verdict = identify(path, prompts, task, instrument=instrument, seed=SEED)
    won = {} if "won" in subject.facts else {"won": _won(path, subject.setting)}
    return {**subject.facts, **won, "setting": subject.setting, "depth": len(path.stages), **_short(verdict)}


def _instrument(setting: str) -> Instrument:
    task = SETTINGS[setting]
    return Instrument.prepare(Library.build(evaluation_prompts(setting), task, default_contexts(task.N)))


def _model_path(name: str) -> Path:
    path = predictions(name).layers
    return Path(path.values[1:], path.stages[1:], name)


def _won(path: Path, setting: str) -> int:
    """Layers where Richardson has the largest SimE of the paper's four solvers."""
    columns = [n - 1 for n in path.contexts.tolist()]
    target = evaluation_prompts(setting).target[:, columns]
    solvers = {
        name: Path(p.values[..., columns], p.stages, p.label, path.contexts) for name, p in references(setting).items()
    }
    return layers_won({name: match(path, p, target) for name, p in solvers.items()})["richardson"]


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
    columns = min(4, len(shown))
    lines = math.ceil(len(shown) / columns)
    with figure(2.3 * columns + 1.6, 2.9 * lines) as fig:
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
            ax.set_yticks(np.arange(len(names)), names, fontsize=6.5)
            ax.set_xticks(layers[:: max(1, len(layers) // 6)])
            ax.grid(False)
        for ax in axes[len(shown) :]:
            ax.remove()
        fig.supxlabel("layer", fontsize=9)
        place = {"location": "top", "aspect": 60, "shrink": 0.6, "pad": 0.07 / lines}
        fig.colorbar(image, ax=list(axes[: len(shown)]), label="unexplained fraction U", **place)
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
            f"least {rule['margin_limit']:g}. The figure shows U for every layer and every family, a class's members "
            "(dark: little is left)."
        ),
        config={"judged": digest(judged)},
        compute=lambda _: dict(judged),
        draw=draw,
        table=table,
        summary=summary,
        rooms=ROOMS,
    )
