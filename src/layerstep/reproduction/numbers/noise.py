"""Noise that training did not see: kernel ridge regression with the training ridge and the best one, and models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from layerstep.reproduction.numbers.store import Store
from layerstep.reproduction.predictions import NOISE_SEQUENCES, load_predictions, model_identity
from layerstep.reproduction.runs import RUNS
from layerstep.reproduction.settings import (
    BOOTSTRAP_SEED,
    DISTRIBUTIONS,
    EVALUATION_SEQUENCES,
    SETTINGS,
    SIGMA_TEST,
    evaluation_prompts,
)
from layerstep.stats import interval, resampled
from layerstep.tasks.posterior import coefficients
from layerstep.threads import one_thread, pool

#: Prompts of the table; a model's errors are those on the first of them.
TABLE_SEQUENCES = 4096
TABLE_SETTINGS = (*DISTRIBUTIONS, "gaussian-1.0")


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio of mean squared errors by level of noise, its standard error, and its 95 % range on 256 prompts."""

    value: list[float]
    standard_error: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True, kw_only=True)
class RidgeNoise:
    """Encoded (EO: lam = sigma_train²) over Bayes-optimal (BO: lam = sigma_test²), and the error of the latter."""

    encoded_over_optimal: Ratio
    optimal: list[float]


@functools.lru_cache(maxsize=len(TABLE_SETTINGS))
def squared_errors(setting: str, sequences: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors [sigma_test, sequence] at n = N against the noiseless function: encoded and Bayes-optimal.

    The same inputs, functions and noise draws at every level, the draws scaled, so that every ratio is a paired
    comparison.
    """
    task = SETTINGS[setting]
    with one_thread():
        prompts = evaluation_prompts(setting, sequences)
        K = task.gram(prompts.x, prompts.x)
        k, K, f = K[:, -1:, :-1], K[:, :-1, :-1], prompts.noiseless_target[:, -1:]
        labels = torch.stack([prompts.scale_noise(sigma / task.sigma).y[:, :-1] for sigma in SIGMA_TEST], -1)

        def errors(y: torch.Tensor, lam: float) -> np.ndarray:  # y [sequence, n, level] -> [level, sequence]
            return ((k @ coefficients(K, y, lam)).squeeze(1) - f).square().T.numpy()

        optimal = [errors(labels[..., i : i + 1], sigma**2) for i, sigma in enumerate(SIGMA_TEST)]
        return errors(labels, task.lam), np.concatenate(optimal)


def ratio_with_range(
    numerator: np.ndarray, denominator: np.ndarray, draws: int, sample: int = EVALUATION_SEQUENCES
) -> Ratio:
    """Ratios of means [level], and the 95 % range such a ratio has on `sample` sequences (bootstrap)."""
    pick = resampled(numerator.shape[1], draws, BOOTSTRAP_SEED, sample).numpy()
    spread = numerator[:, pick].mean(-1) / denominator[:, pick].mean(-1)
    low, high = interval(torch.from_numpy(spread.T), 0.95)
    error = (numerator / numerator.mean(1, keepdims=True) - denominator / denominator.mean(1, keepdims=True)).std(1)
    value = numerator.mean(1) / denominator.mean(1)
    standard_error = value * error / np.sqrt(numerator.shape[1])
    return Ratio(value=value.tolist(), standard_error=standard_error.tolist(), low=low.tolist(), high=high.tolist())


def ridge_noise(store: Store, sequences: int = TABLE_SEQUENCES, draws: int = 2000) -> dict[str, RidgeNoise]:
    """By setting."""
    of = {"sequences": sequences, "draws": draws, "seed": BOOTSTRAP_SEED}
    return store.get("noise", dict[str, RidgeNoise], of, __name__, lambda: compute_ridge_noise(sequences, draws))


def compute_ridge_noise(sequences: int, draws: int) -> dict[str, RidgeNoise]:
    with pool(torch.device("cpu")) as workers:
        errors = list(workers.map(lambda setting: squared_errors(setting, sequences), TABLE_SETTINGS))
    return {
        setting: RidgeNoise(
            encoded_over_optimal=ratio_with_range(encoded, optimal, draws), optimal=optimal.mean(1).tolist()
        )
        for setting, (encoded, optimal) in zip(TABLE_SETTINGS, errors, strict=True)
    }


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
