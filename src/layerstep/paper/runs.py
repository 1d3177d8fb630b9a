"""The paper's training runs as values, and what of them is in the repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from layerstep.errors import FileError
from layerstep.files import read_json
from layerstep.paper.settings import SETTINGS
from layerstep.tasks import Task
from layerstep.training import PRESETS, Model, Run

#: Where trained models, their probes and their predictions are kept: in the clone, beside the code.
MODELS = FilePath(__file__).parents[3] / "results" / "models"


@dataclass(frozen=True, kw_only=True)
class PaperRun:
    """One training run: its place in the paper, its setting, and how it differs from the default run."""

    name: str
    setting: str
    shows: str
    run: Run

    @property
    def folder(self) -> FilePath:
        return MODELS / self.name

    @property
    def command(self) -> str:
        """What trains it at the paper's length."""
        default = {**Task().to_dict(), **Model().to_dict(), "seed": 0}
        mine = {**self.run.task.to_dict(), **self.run.model.to_dict(), "seed": self.run.seed}
        changes = [f"{name}={value}" for name, value in mine.items() if value != default[name]]
        return f"layerstep train paper --out results/models/{self.name}" + (
            f" --set {' '.join(changes)}" if changes else ""
        )

    @property
    def work(self) -> float:
        """Arithmetic of a step relative to the default model: matrix products and attention of every layer."""
        model, tokens = self.run.model, 2 * (self.run.task.N + 1)
        default = Model()
        return _layer(model.width, tokens) * model.layers / (_layer(default.width, tokens) * default.layers)

    @property
    def trained_steps(self) -> int | None:
        """Steps of the model in the repository, if there is one."""
        try:
            return int(read_json(self.folder / "config.json")["about"]["run"]["steps"])
        except (FileError, KeyError, TypeError):
            return None


def _layer(width: int, tokens: int) -> float:
    return 24 * width**2 + 4 * tokens * width


def seconds_per_step() -> float | None:
    """Measured time of one step of one default model, trained beside others on one GPU: read from a shipped model."""
    try:
        facts = read_json(RUNS["sphere"].folder / "evaluation.json")
        return facts["seconds"] / (
            len(facts["stack"]) * read_json(RUNS["sphere"].folder / "config.json")["about"]["step"]
        )
    except (FileError, KeyError, TypeError):
        return None


def _run(name: str, setting: str, shows: str, **changes) -> PaperRun:
    task = SETTINGS[setting].to_dict()
    return PaperRun(name=name, setting=setting, shows=shows, run=PRESETS["paper"].override(**task, **changes))


_ALL = [
    _run("sphere", "sphere", "Figures 1, 2, 5, 9, 10; noise table"),
    _run("uniform", "uniform", "Figures 2c, 3, 4, 5, 10; noise table"),
    _run("gaussian", "gaussian", "Figures 2c, 3, 4, 5, 10; noise table"),
    _run("sphere-24", "sphere", "Figures 6a, 7", layers=24),
    _run("sphere-24-v2", "sphere-v2", "Figures 6b, 7", layers=24),
    *(_run(f"linear-{law}", law, "Figure 8", attention="linear") for law in ("uniform", "gaussian", "sphere")),
    _run("arccos1", "arccos1", "section on the arc-cosine kernel"),
    *(_run(f"heads-{heads}", "sphere", "Figure 9a", heads=heads) for heads in (1, 2, 4)),
    *(_run(f"width-{width}", "sphere", "Figure 9b", width=width) for width in (32, 64, 128, 512)),
    # Ours: without other seeds no number of a single run has an error bar.
    _run("gaussian-1.0", "gaussian-1.0", "noise table, the Gaussian column at s.d. 1.0"),
    *(_run(f"sphere-seed-{seed}", "sphere", "spread over seeds", seed=seed) for seed in (1, 2)),
    *(
        _run(f"linear-mean-{law}", law, "linear attention divided by the visible keys", attention="linear-mean")
        for law in ("uniform", "gaussian", "sphere")
    ),
]
RUNS: dict[str, PaperRun] = {run.name: run for run in _ALL}


def listing() -> list[dict[str, Any]]:
    """Every run: what it shows, the steps trained so far, the command and the GPU minutes for the paper's length."""
    seconds = seconds_per_step()
    return [
        {
            "name": run.name,
            "shows": run.shows,
            "identity": run.run.identity,
            "trained_steps": run.trained_steps,
            "command": run.command,
            "gpu_minutes": None if seconds is None else run.work * seconds * run.run.steps / 60,
        }
        for run in RUNS.values()
    ]
