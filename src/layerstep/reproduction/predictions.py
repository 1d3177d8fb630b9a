"""What a trained model answers on the evaluation prompts: enough for every figure, and a thousandth of its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import FileError
from layerstep.files import read_tensors, write_tensors
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
