"""The paper's training runs as values, and what of them is in the repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath

from layerstep.paper.settings import SETTINGS
from layerstep.training import PRESETS, Run

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
