"""What a trained model answers on the evaluation prompts: enough for every figure, and a thousandth of its weights."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import FileError, LayerstepError
from layerstep.files import read_tensors, write_tensors
from layerstep.reproduction.runs import RUNS
from layerstep.reproduction.settings import EVALUATION_SEQUENCES, SIGMA_TEST
from layerstep.reproduction.status import Card, run_status
from layerstep.tasks import Trajectory

FILE = "predictions.safetensors"
#: Sequences of the noise sweep: with 256 the ratio at the largest noise has a standard deviation of 0.7.
NOISE_SEQUENCES = 2048


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """layers: the trajectory of the probes on the 256 evaluation prompts; head: the model's own prediction on them;
    noise: the head at n = N for every level of SIGMA_TEST on 2,048 prompts; last: the trajectory of probes that were
    fitted on the last x token alone, where there are such."""

    layers: Trajectory
    head: Float[Tensor, "B N"]
    noise: Float[Tensor, "level sequence"]
    facts: dict[str, Any]
    last: Trajectory | None = None

    def save(self, folder: Path) -> Path:
        tensors = {name: value.float() for name, value in self.tensors().items()}
        return write_tensors(folder / FILE, tensors, {"layerstep": self.facts})

    def tensors(self) -> dict[str, Tensor]:
        found = {"layers": self.layers.values, "head": self.head, "noise": self.noise}
        return found | ({"last": self.last.values} if self.last else {})

    @staticmethod
    def load(folder: Path) -> Predictions:
        tensors, header = read_tensors(folder / FILE)
        try:
            layers, head, noise = (tensors[name].double() for name in ("layers", "head", "noise"))
            last = tensors["last"].double() if "last" in tensors else None
            facts = header["layerstep"]
        except KeyError as error:
            raise FileError(f"{folder / FILE} holds no predictions (no {error}). Delete it.") from error
        if any(values is not None and values.ndim != 3 for values in (layers, last)):
            raise FileError(f"{folder / FILE}: readings of layers are not of shape [layer, prompt, n]. Delete it.")
        last = None if last is None else _trajectory(last)
        return Predictions(layers=_trajectory(layers), head=head, noise=noise, facts=facts, last=last)


def _trajectory(values: Float[Tensor, "S B N"]) -> Trajectory:
    return Trajectory(values, torch.arange(len(values)).double(), "transformer")


def usable_models() -> tuple[list[str], dict[str, str]]:
    """Names of the runs whose predictions are here and whole, in the order of the list; reasons for the others that
    have a directory."""
    found, reasons = [], {}
    for name, run in RUNS.items():
        status = run_status(run)
        if status.usable:
            try:
                load_predictions(name)
                found.append(name)
            except LayerstepError as error:
                reasons[name] = str(error)
        elif status.state != "missing":
            reasons[name] = status.words
    return found, reasons


def load_predictions(name: str) -> Predictions:
    """The model's predictions on the evaluation prompts, checked: they have the run's shape and are finite."""
    run = RUNS[name]
    found = Predictions.load(run.folder)
    B, N = EVALUATION_SEQUENCES, run.run.task.N
    by_layer = (run.run.model.layers + 1, B, N)
    expected = {"layers": by_layer, "head": (B, N), "noise": (len(SIGMA_TEST), NOISE_SEQUENCES), "last": by_layer}
    for part, tensor in found.tensors().items():
        shape = tuple(tensor.shape)
        if shape != expected[part]:
            raise FileError(f"{run.folder / FILE}: {part} has shape {shape}, not {expected[part]}. Probe it again.")
        if not tensor.isfinite().all():
            raise FileError(f"{run.folder / FILE}: {part} has values that are not finite. Probe the model again.")
    return found


def model_identity(name: str) -> dict[str, Any]:
    """What a model's numbers depend on: the run its directory holds, its predictions and the errors on its card."""
    run = RUNS[name]
    sha = hashlib.sha256((run.folder / FILE).read_bytes()).hexdigest()[:12]
    status = run_status(run)
    about = {"steps": status.steps, "training": status.words}
    return {"model": name, "run": run.run.to_dict(), **about, "predictions": sha, "over_krr": card_error(run.folder)}


def card_error(folder: Path) -> float | None:
    """Error at n = N over that of exact KRR as the model's card has it: noiseless targets, 2,048 prompts. None where
    the card does not say; the list of runs tells what is wrong with it."""
    with contextlib.suppress(FileError):
        ratio = Card.read(folder).ratio
        return ratio if ratio > 0 else None
    return None
