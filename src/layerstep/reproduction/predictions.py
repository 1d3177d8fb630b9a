"""What a trained model answers on the evaluation prompts: enough for every figure, and a thousandth of its weights.

Needs the packages that training needs and no other, so that it can run where the model was trained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import FileError
from layerstep.files import provenance, read_tensors, write_tensors
from layerstep.measurement.reading.probes import Probes, probe_each
from layerstep.reproduction.settings import SETTINGS, SIGMA_TEST, evaluation_prompts
from layerstep.tasks import Prompts, Trajectory
from layerstep.training import GPT

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


@torch.no_grad()
def noise_sweep(model: GPT, setting: str, sequences: int, batch: int = 256) -> Float[Tensor, "level sequence"]:
    """The model's prediction at n = N: the same inputs, functions and noise draws, the draws scaled to each level."""
    prompts, sigma = evaluation_prompts(setting, sequences), SETTINGS[setting].sigma
    levels = []
    for level in SIGMA_TEST:
        scaled = prompts.scale_noise(level / sigma)
        levels.append(torch.cat([_last(model, scaled[i : i + batch]) for i in range(0, sequences, batch)]))
    return torch.stack(levels)


def _last(model: GPT, prompts: Prompts) -> Float[Tensor, "B"]:
    """The prediction at n = N alone: one forward pass whatever the mask."""
    return model(model.tokens(prompts))[:, -1].cpu()


@torch.no_grad()
def predict(
    model: GPT,
    setting: str,
    *,
    probes: Probes | None = None,
    prompts: int = 38_400,
    sequences: int = NOISE_SEQUENCES,
    last: bool = False,
    progress: Callable[[float], None] | None = None,
) -> tuple[Predictions, Probes]:
    """Fit probes on `prompts` fresh prompts (unless given) and read everything the figures need off `model`.

    last: fit probes on the last x token alone as well.
    """
    wanted = ["all"] * (probes is None) + ["last"] * last
    stream = {"prompts": prompts, "seed": 1, "label": "transformer", "progress": progress}
    fitted = probe_each(model, SETTINGS[setting], wanted, **stream) if wanted else []
    probes = probes or fitted[0]
    evaluation = evaluation_prompts(setting)
    facts = {"setting": setting, "probes": probes.facts, "provenance": provenance(str(model.read_in.weight.device))}
    return (
        Predictions(
            layers=probes.path(evaluation),
            head=model(evaluation)[:, 1:].cpu(),
            noise=noise_sweep(model, setting, sequences),
            facts=facts,
            last=fitted[-1].path(evaluation) if last else None,
        ),
        probes,
    )
