"""From a trained model to its predictions on the evaluation prompts.

Needs the packages that training needs and no other, so that it can run where the model was trained.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.files import provenance
from layerstep.measurement.reading.probes import Probes, probe_each
from layerstep.reproduction.predictions import NOISE_SEQUENCES, Predictions
from layerstep.reproduction.settings import SETTINGS, SIGMA_TEST, evaluation_prompts
from layerstep.tasks import Prompts
from layerstep.training import GPT


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
