"""The paper's training runs, and ours, as values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerstep.reproduction.reference import PAPER_STEPS, PROTOCOL
from layerstep.reproduction.settings import DISTRIBUTIONS, SETTINGS, TITLES
from layerstep.tasks import Task
from layerstep.training import PRESETS, Model, Run

_CLONE = Path(__file__).parents[3]
_HOME = _CLONE if (_CLONE / "src" / "layerstep").is_dir() else Path()
#: Where trained models, their probes and their predictions are kept: in the clone, or where layerstep was installed
#: without one, in the current directory.
MODELS = _HOME / "results" / "models"


@contextlib.contextmanager
def models_in(folder: Path | None) -> Iterator[None]:
    """Models are looked for in another directory; None changes nothing."""
    global MODELS
    before = MODELS
    MODELS = before if folder is None else folder
    try:
        yield
    finally:
        MODELS = before


def models_folder() -> Path:
    return MODELS


def results_folder() -> Path:
    """What is kept of these models beside them: numbers, interventions, models with an open mask."""
    return MODELS.parent


def shipped_numbers() -> Path:
    """Where the numbers of these models are kept; `make numbers` makes them anew."""
    return results_folder() / "numbers"


@dataclass(frozen=True, kw_only=True)
class PaperRun:
    """One training run: its place in the paper (or among ours), its setting, and its every number."""

    name: str
    setting: str
    shows: str
    run: Run
    preset: str = "paper"
    ours: bool = False

    @property
    def folder(self) -> Path:
        return MODELS / self.name

    @property
    def command(self) -> str:
        """What trains it and puts its results in place."""
        return f"layerstep sweep {self.name} --publish"

    @property
    def training(self) -> str:
        """What trains it in its own directory."""
        base, mine = flat(PRESETS[self.preset]), flat(self.run)
        changes = [f"{name}={value}" for name, value in mine.items() if value != base[name]]
        words = ["layerstep", "train", self.preset, "--out", f"results/models/{self.name}"]
        return " ".join([*words, *(["--set", *changes] if changes else [])])


def flat(run: Run) -> dict[str, Any]:
    """Every number of a run by its name."""
    values = run.to_dict()
    return {**values.pop("task"), **values.pop("model"), **values}


def preset_of(run: Run) -> str | None:
    """The preset whose schedule a run follows, whatever its task, its shape and its seed."""
    return next((name for name, each in PRESETS.items() if _schedule(each) == _schedule(run)), None)


def _schedule(run: Run) -> Run:
    """The run on the default task, model and seed: two are equal when their schedules are."""
    return replace(run, task=Task(), model=Model(), seed=0)


def _run(name: str, setting: str, shows: str, preset: str = "paper", ours: bool = False, **changes) -> PaperRun:
    run = PRESETS[preset].override(**SETTINGS[setting].to_dict(), **changes)
    return PaperRun(name=name, setting=setting, shows=shows, run=run, preset=preset, ours=ours)


#: Models of 24 layers.
DEEP = ("sphere-24", "sphere-24-v2")
_ALL = [
    _run("sphere", "sphere", "Figures 1, 2, 5, 10; noise table"),
    _run("uniform", "uniform", "Figures 2c, 3, 4, 5, 10; noise table"),
    _run("gaussian", "gaussian", "Figures 2c, 3, 4, 5, 10; noise table"),
    _run("sphere-24", "sphere", "Figures 6a, 7", layers=24),
    _run("sphere-24-v2", "sphere-v2", "Figures 6b, 7", layers=24),
    *(_run(f"linear-{inputs}", inputs, "Figure 8", attention="linear") for inputs in ("uniform", "gaussian", "sphere")),
    _run("arccos1", "arccos1", "section on the arc-cosine kernel"),
    *(_run(f"heads-{heads}", "sphere", "Figure 9a", heads=heads) for heads in (1, 2, 4)),
    *(_run(f"width-{width}", "sphere", "Figure 9b", width=width) for width in (32, 64, 128, 512)),
    # Ours: without other seeds no number of a single run has an error bar.
    _run("gaussian-1.0", "gaussian-1.0", "noise table, the Gaussian column at s.d. 1.0", ours=True),
    *(
        _run(f"{inputs}-fast", inputs, "beside other models of the short schedule", "fast", True)
        for inputs in DISTRIBUTIONS
    ),
    *(
        _run(f"sphere-fast-seed-{seed}", "sphere", "seed-to-seed variation, short schedule", "fast", True, seed=seed)
        for seed in (1, 2, 3, 4)
    ),
    *(
        _run(
            f"linear-mean-{inputs}", inputs, "Figure 8, divided by the visible keys", ours=True, attention="linear-mean"
        )
        for inputs in ("uniform", "gaussian", "sphere")
    ),
]
RUNS: dict[str, PaperRun] = {run.name: run for run in _ALL}
SEEDS = tuple(name for name in RUNS if name.startswith("sphere-fast"))


def human_name(name: str) -> str:
    """A run for people, by what it is; other names as they are."""
    if name not in RUNS:
        return name
    run, default = RUNS[name].run, PRESETS[RUNS[name].preset].model
    shape = run.model
    words = [TITLES[RUNS[name].setting]]
    words += [f"{shape.layers} layers"] if shape.layers != default.layers else []
    words += [f"width {shape.width}"] if shape.width != default.width else []
    words += [f"{shape.heads} head{'s' * (shape.heads > 1)}"] if shape.heads != default.heads else []
    words += {"linear": ["linear attention"], "linear-mean": ["averaged linear attention"]}.get(shape.attention, [])
    words += [f"{run.steps:,} steps"] if run.steps < PAPER_STEPS else []
    words += [f"seed {run.seed}"] if run.seed != PRESETS[RUNS[name].preset].seed else []
    return ", ".join(words)


def protocol() -> list[tuple[str, float, float]]:
    """The paper's tables of hyperparameters: what, the paper's value, and that of our preset `paper`."""
    ours = flat(PRESETS["paper"])
    return [(words, paper, ours[name]) for name, (words, paper) in PROTOCOL.items()]
