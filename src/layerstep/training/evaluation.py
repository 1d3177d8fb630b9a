"""How good a model is: its error by context length beside exact kernel ridge regression on the same prompts."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import FileError, require_count, require_kind
from layerstep.files import provenance, read_json, write_json
from layerstep.tasks import Task, sample
from layerstep.tasks.posterior import posterior_means
from layerstep.training.config import Run
from layerstep.training.folders import EVALUATION
from layerstep.training.gpt import GPT


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Mean squared errors against the noiseless function, for n = 0..N examples, on the same B prompts."""

    mse: Float[Tensor, "M"]
    krr: Float[Tensor, "M"]
    B: int
    seed: int

    @property
    def ratio(self) -> float:
        """The model's error over exact KRR's at n = N; the paper's 500,000-step model has 1.15 on the sphere."""
        return float(self.mse[-1] / self.krr[-1])

    def to_dict(self) -> dict:
        return {
            "B": self.B,
            "seed": self.seed,
            "mse": self.mse.tolist(),
            "krr": self.krr.tolist(),
            "ratio": self.ratio,
        }


def evaluate_run(model: GPT, run: Run, folder: Path, *, B: int, facts: Mapping[str, Any]) -> None:
    """Write evaluation.json, unless it is there: errors on B prompts of the run's task, on streams that training never
    uses, and `facts` of the training."""
    file = folder / EVALUATION
    with contextlib.suppress(FileError, KeyError, TypeError):
        found = read_json(file)
        if found["identity"] == run.identity and found["evaluation"]["ratio"] >= 0:
            return
    found = evaluate(model, run.task, B=B, seed=run.seed)
    device = str(next(model.parameters()).device)
    whole = {"identity": run.identity, "evaluation": found.to_dict(), **facts, "provenance": provenance(device)}
    write_json(file, whole)


@torch.no_grad()
def evaluate(model: GPT, task: Task, *, B: int, seed: int, block: int = 512) -> Evaluation:
    """Errors of `model` and of exact KRR (float64) on B prompts of (seed, step 0), `block` prompts at a time."""
    require_kind("model", model, GPT, "Other models are measured with ls.probe.")
    require_kind("task", task, Task, "It comes after the model.")
    require_count(B=B, block=block)
    prompts = sample(task, B, seed)
    truth = prompts.f
    assert truth is not None
    predicted = torch.cat([model(prompts[i : i + block]).double().cpu() for i in range(0, B, block)])  # type: ignore[union-attr]
    exact = posterior_means(task.gram(prompts.x, prompts.x), prompts.y, task.lam)
    return Evaluation(mse=(predicted - truth).square().mean(0), krr=(exact - truth).square().mean(0), B=B, seed=seed)
