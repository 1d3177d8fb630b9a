"""Folders of planted models: their layers are steps of a solver, so every figure's answer is known."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import layerstep as ls
from layerstep.files import write_json
from layerstep.reproduction import predictions, runs
from layerstep.reproduction.numbers import measurements
from layerstep.reproduction.predictions import Predictions
from layerstep.reproduction.settings import SETTINGS, SIGMA_TEST, evaluation_prompts
from layerstep.training import Run

Plant = Callable[..., Path]


def write_config(folder: Path, run: Run, step: int | None = None) -> None:
    """The config.json that training writes, without weights beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"run": run.to_dict(), "step": run.steps if step is None else step}
    write_json(folder / "config.json", {"model_type": "layerstep-gpt", "model": run.model.to_dict(), "about": about})


@pytest.fixture(scope="session")
def plant() -> Plant:
    """plant(name): layer l of the run's folder is Richardson after `stride` l steps; its head is exact KRR."""
    known: dict[tuple[str, int, int], Predictions] = {}

    def make(name: str, *, stride: int = 10, **changes) -> Path:
        listed = runs.RUNS[name]
        run = listed.run.override(**changes)
        key = (listed.setting, run.model.layers, stride)
        if key not in known:
            known[key] = _predictions(*key)
        write_config(listed.folder, run)
        known[key].save(listed.folder)
        return listed.folder

    return make


def _predictions(setting: str, layers: int, stride: int) -> Predictions:
    task, prompts = SETTINGS[setting], evaluation_prompts(setting)
    path = ls.solve(ls.Richardson(), prompts, task, range(0, stride * layers + 1, stride))
    wide = evaluation_prompts(setting, predictions.NOISE_SEQUENCES)
    K = task.gram(wide.x, wide.x)
    labels = [wide.scale_noise(sigma / task.sigma).y[:, :-1] for sigma in SIGMA_TEST]
    w = torch.linalg.solve(K[:, :-1, :-1] + task.lam * torch.eye(task.N).double(), torch.stack(labels, -1))
    noise = (K[:, -1:, :-1] @ w)[:, 0].T
    return Predictions(
        layers=ls.Trajectory(path.values, np.arange(1.0 + layers)),
        head=ls.exact(prompts, task),
        noise=noise,
        facts={"setting": setting},
    )


@pytest.fixture
def models(tmp_path, monkeypatch) -> Path:
    """An empty folder of models in place of the repository's."""
    monkeypatch.setattr(runs, "MODELS", tmp_path / "models")
    return tmp_path / "models"


@pytest.fixture(autouse=True, scope="session")
def short_budget():
    """Solvers of a third of the paper's steps: the planted models take no more, and it is a third of the time."""
    patch = pytest.MonkeyPatch()
    patch.setattr(measurements, "MATCH_STEPS", 150)
    patch.setattr(measurements, "CG_MATCH_STEPS", 40)
    measurements.references.cache_clear()
    yield
    patch.undo()
    measurements.references.cache_clear()
