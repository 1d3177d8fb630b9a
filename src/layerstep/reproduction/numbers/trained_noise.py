"""Trained models under noise that training did not see, on the prompts of the noise table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerstep.reproduction.numbers.measurements import load_predictions, model_identity
from layerstep.reproduction.numbers.noise import TABLE_SEQUENCES, Ratio, ratio_with_range, squared_errors
from layerstep.reproduction.numbers.store import Store
from layerstep.reproduction.predictions import NOISE_SEQUENCES
from layerstep.reproduction.runs import RUNS
from layerstep.reproduction.settings import BOOTSTRAP_SEED, evaluation_prompts


@dataclass(frozen=True, kw_only=True)
class ModelNoise:
    """The model's error at n = N (TF) over the Bayes-optimal one (BO) and over the encoded one (EO)."""

    over_optimal: Ratio
    encoded_over_optimal: Ratio
    over_encoded: Ratio


def model_noise(store: Store, names: Sequence[str], draws: int = 2000) -> dict[str, ModelNoise]:
    """By model."""
    if not names:
        return {}
    of = {"models": {name: model_identity(name) for name in names}, "draws": draws, "seed": BOOTSTRAP_SEED}
    kind = dict[str, ModelNoise]
    compute = lambda: {name: compute_model_noise(name, draws) for name in names}  # noqa: E731
    return store.get("noise-trained", kind, of, __name__, compute)


def compute_model_noise(name: str, draws: int) -> ModelNoise:
    setting = RUNS[name].setting
    # The first sequences of the larger table: the same prompts, solved once.
    encoded, optimal = (part[:, :NOISE_SEQUENCES] for part in squared_errors(setting, TABLE_SEQUENCES))
    truth = evaluation_prompts(setting, NOISE_SEQUENCES).noiseless_target[:, -1]
    model = (load_predictions(name).noise - truth).square().numpy()
    return ModelNoise(
        over_optimal=ratio_with_range(model, optimal, draws),
        encoded_over_optimal=ratio_with_range(encoded, optimal, draws),
        over_encoded=ratio_with_range(model, encoded, draws),
    )
