"""How good a model is: its error by context length beside exact kernel ridge regression on the same prompts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import FileError, InputError, require_count, require_kind
from layerstep.files import provenance, read_json, write_json
from layerstep.tasks import LinearRegression, Prompts, TaskProtocol, require_task, sample
from layerstep.training.config import Run
from layerstep.training.folders import EVALUATION
from layerstep.training.gpt import GPT


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Mean squared errors against the noiseless function, for n = 0..N examples, on the same B prompts.

    krr: of the task's best prediction, exact kernel ridge regression where f is Gaussian.
    """

    mse: Float[Tensor, "M"]
    krr: Float[Tensor, "M"]
    B: int
    seed: int

    @property
    def ratio(self) -> float:
        """The model's error over exact KRR's at n = N; the paper's 500,000-step model has 1.15 on the sphere.

        Infinite where the best prediction has no error, without noise.
        """
        best = float(self.krr[-1])
        return float(self.mse[-1]) / best if best > 1e-20 * float(self.krr[0]) else math.inf

    def to_dict(self) -> dict:
        return {
            "B": self.B,
            "seed": self.seed,
            "mse": self.mse.tolist(),
            "krr": self.krr.tolist(),
            "ratio": self.ratio if math.isfinite(self.ratio) else None,
        }


def evaluate_run(model: GPT, run: Run, folder: Path, *, B: int, facts: Mapping[str, Any]) -> None:
    """Write evaluation.json, unless it is there: errors on B prompts of the run's task, on streams that training never
    uses, and `facts` of the training."""
    file = folder / EVALUATION
    with contextlib.suppress(FileError, KeyError, TypeError):
        found = read_json(file)
        if found["identity"] == run.identity and found["evaluation"]["mse"][-1] >= 0:
            return
    found = evaluate(model, run.task, B=B, seed=run.seed)
    device = str(next(model.parameters()).device)
    whole = {"identity": run.identity, "evaluation": found.to_dict(), **facts, "provenance": provenance(device)}
    write_json(file, whole)


@torch.no_grad()
def evaluate(model: GPT, task: TaskProtocol, *, B: int, seed: int, block: int = 512) -> Evaluation:
    """Errors of `model` and of exact KRR (float64) on B prompts of (seed, step 0), `block` prompts at a time."""
    require_kind("model", model, GPT, "Other models are measured with ls.probe.")
    require_task(task, "sample", "exact", remedy="It comes after the model.")
    require_count(B=B, block=block)
    prompts = sample(task, B, seed)
    truth = prompts.y if prompts.f is None else prompts.f
    predicted = torch.cat([model(prompts[i : i + block]).double().cpu() for i in range(0, B, block)])  # type: ignore[union-attr]
    best = torch.nn.functional.pad(exact(prompts, task), (1, 0))  # nothing is known without examples
    return Evaluation(mse=(predicted - truth).square().mean(0), krr=(best - truth).square().mean(0), B=B, seed=seed)


def exact(prompts: Prompts, task: TaskProtocol) -> Float[Tensor, "B N"]:
    """The task's best prediction; ridge regression where it would sum over too many supports of sparse weights."""
    try:
        return task.exact(prompts)  # type: ignore[attr-defined]
    except InputError:
        if not isinstance(task, LinearRegression):
            raise
        return replace(task, prior="gaussian").exact(prompts)
