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

from layerstep.errors import FileError, InputError, as_device, require_count, require_kind
from layerstep.files import provenance, read_json, write_json
from layerstep.folders.layout import CONFIG, EVALUATION, facts_of
from layerstep.folders.survey import Entry, find_runs
from layerstep.tasks import LinearRegression, Prompts, TaskProtocol, require_task, sample
from layerstep.training.config import Run
from layerstep.training.directory import Trained
from layerstep.training.gpt import GPT

PROMPTS = 2048


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Mean squared errors against the noiseless function, for n = 0..N examples, on the same B prompts.

    krr: of the task's best prediction, exact kernel ridge regression where f is Gaussian.
    """

    mse: Float[Tensor, "M"]
    krr: Float[Tensor, "M"]
    B: int
    seed: int

    def __repr__(self) -> str:
        N = len(self.mse) - 1
        ends = (
            f"error {float(self.mse[-1]):.4g} at n = {N}, {self.ratio:.3f} times exact KRR's {float(self.krr[-1]):.4g}"
        )
        return f"Evaluation({ends}; {self.B} prompts, seed {self.seed})"

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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Evaluation:
        errors = {name: torch.tensor(values[name], dtype=torch.float64) for name in ("mse", "krr")}
        return cls(B=values["B"], seed=values["seed"], **errors)


def evaluate_run(model: GPT, run: Run, folder: Path, *, B: int, facts: Mapping[str, Any]) -> Evaluation:
    """Write evaluation.json, unless it is there: errors on B prompts of the run's task, on streams that training never
    uses, and `facts` of the training."""
    file = folder / EVALUATION
    if (known := _known(file, run)) is not None:
        return known
    found = evaluate(model, run.task, B=B, seed=run.seed)
    device = str(next(model.parameters()).device)
    whole = {"identity": run.identity, "evaluation": found.to_dict(), **facts, "provenance": provenance(device)}
    write_json(file, whole)
    return found


def finished_runs(root: Path) -> list[Entry]:
    """The runs below `root` whose models are trained to their end; or the model in it, where a published one is."""
    found = [entry for entry in find_runs(root) if entry.state == "done"]
    if not found and (root / CONFIG).is_file():
        run = Trained.read(root).run
        found = [Entry(run.identity, run.to_dict(), root, state="done", name=root.name)]
    return found


def evaluate_entry(entry: Entry, *, prompts: int | None = None, device: str | None = None) -> Evaluation:
    """What evaluation.json says, which is made where it is missing; or an evaluation on so many prompts, not kept."""
    run = Run.from_dict(entry.run)
    if prompts is None and (known := _known(entry.folder / EVALUATION, run)) is not None:
        return known
    model = GPT.from_pretrained(entry.folder, device=as_device(device))
    if prompts is not None:
        return evaluate(model, run.task, B=prompts, seed=run.seed)
    unit = entry.unit or entry.folder
    return evaluate_run(model, run, entry.folder, B=PROMPTS, facts=facts_of(unit, {"folders": entry.beside}))


def _known(file: Path, run: Run) -> Evaluation | None:
    if not file.exists():
        return None
    with contextlib.suppress(FileError, KeyError, TypeError, ValueError):
        found = read_json(file)
        if found["identity"] == run.identity and found["evaluation"]["mse"][-1] >= 0:
            return Evaluation.from_dict(found["evaluation"])
    return None


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
