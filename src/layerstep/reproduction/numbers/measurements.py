"""Measures a model by the paper's metrics: error by layer, SimE with every solver, best-matching steps."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from layerstep.measurement.similarity import Match, layers_won, match, winners
from layerstep.reproduction.numbers.model import COMPARED, Alignment, ModelNumbers, SolverMatch
from layerstep.reproduction.numbers.noise import squared_errors
from layerstep.reproduction.numbers.store import Store
from layerstep.reproduction.predictions import (
    NOISE_SEQUENCES,
    Predictions,
    card_error,
    load_predictions,
    model_identity,
)
from layerstep.reproduction.runs import RUNS
from layerstep.reproduction.settings import (
    BOOTSTRAP_SEED,
    CURVE_CONTEXTS,
    SETTINGS,
    SIGMA_TEST,
    evaluation_prompts,
)
from layerstep.reproduction.status import run_status
from layerstep.solvers import exact, solve_all
from layerstep.stats import interval, resamples
from layerstep.tasks import Trajectory

#: Steps shown in a heat map: about this many, dense at first.
SHOWN = 80
#: Steps the paper gives its solvers (three times as many at v = 2), and conjugate gradients.
MATCH_STEPS, CG_MATCH_STEPS = 500, 100


def layers_after_blocks(name: str) -> Trajectory:
    """What was read off every block; the embedding, stage 0, is left out."""
    path = load_predictions(name).layers
    return Trajectory(path.values[1:], path.stages[1:], name)


def _over_krr(found: Predictions, setting: str) -> float:
    """The number of the card, on the prompts of the noise sweep: noiseless targets and as many, drawn anew."""
    level = SIGMA_TEST.index(SETTINGS[setting].sigma)
    exact_errors = squared_errors(setting, NOISE_SEQUENCES)[0][level]
    truth = evaluation_prompts(setting, NOISE_SEQUENCES).noiseless_target[:, -1]
    return float((found.noise[level] - truth).square().mean() / exact_errors.mean())


def measure(store: Store, name: str) -> ModelNumbers:
    """The numbers of one trained model."""
    return store.get(name, ModelNumbers, model_identity(name), __name__, lambda: compute_model(name))


def compute_model(name: str) -> ModelNumbers:
    run, found = RUNS[name], load_predictions(name)
    status = run_status(run)
    return ModelNumbers(
        name=name,
        label=f"{name} ({status.steps:,} steps)",
        setting=run.setting,
        training=status.words,
        trained_steps=status.steps or 0,
        over_krr=card_error(run.folder) or _over_krr(found, run.setting),
        alignment=alignment(found.layers, run.setting),
        last_token=alignment(found.last, run.setting) if found.last else None,
        **errors_by_layer(found.layers, run.setting),
    )


def errors_by_layer(path: Trajectory, setting: str) -> dict[str, Any]:
    """Mean squared error against the noisy label by context length and stage, and that of exact KRR."""
    prompts = evaluation_prompts(setting)
    columns = [n - 1 for n in CURVE_CONTEXTS]
    krr = (exact(prompts, SETTINGS[setting]) - prompts.target).square().mean(0)
    return {
        "contexts": list(CURVE_CONTEXTS),
        "layers": path.stages.tolist(),
        "layer_mse": path.mse(prompts.target)[:, columns].T.tolist(),
        "krr": krr[columns].tolist(),
    }


@functools.lru_cache(maxsize=1)
def references(setting: str) -> dict[str, Trajectory]:
    """Paths of the paper's four solvers with the paper's budgets: 500 steps, 1,500 at v = 2, 100 for CG."""
    budget = 3 * MATCH_STEPS if setting == "sphere-v2" else MATCH_STEPS
    steps = {"richardson": budget, "cg": CG_MATCH_STEPS, "gd": budget, "nesterov": budget}
    prompts = evaluation_prompts(setting)
    wanted = {name: (solver, steps[name]) for name, solver in COMPARED.items()}
    return solve_all(wanted, prompts, SETTINGS[setting])


def alignment(path: Trajectory, setting: str) -> Alignment:
    """SimE of layers 1..L (stage 0 is the embedding) with every step of the four solvers, best steps, the line through
    layers 2..10 (2..20 of 24), layers won."""
    prompts, layers = evaluation_prompts(setting), Trajectory(path.values[1:], path.stages[1:], path.label)
    found = {solver: match(layers, steps, prompts) for solver, steps in references(setting).items()}
    first, last = 2, (20 if int(path.stages[-1]) == 24 else 10)
    low, high = _won_interval(found)
    return Alignment(
        first=first,
        last=last,
        solvers={solver: _solver_match(matched, first, last) for solver, matched in found.items()},
        won=layers_won(found),
        won_low=low,
        won_high=high,
    )


def _solver_match(matched: Match, first: int, last: int) -> SolverMatch:
    sime, best = matched.sime, matched.best_step
    line = matched.line(first, last, seed=BOOTSTRAP_SEED)
    shown = np.unique(np.geomspace(1, len(matched.steps), SHOWN).round().astype(int) - 1)
    return SolverMatch(
        steps=matched.steps[shown].tolist(),
        sime=sime[:, shown].tolist(),
        best_step=matched.steps[sime.argmax(1)].tolist(),
        best_sime=sime.amax(1).tolist(),
        mean=best.mean(0).tolist(),
        sd=best.std(0).tolist(),
        at_cap=matched.at_cap.tolist(),
        r2=line.r2,
        r2_low=line.interval[0],
        r2_high=line.interval[1],
        slope=line.slope,
        intercept=line.intercept,
    )


def _won_interval(found: dict[str, Match], draws: int = 400) -> tuple[float, float]:
    """95 % range over resampled sequences of the number of layers Richardson wins."""
    count = next(iter(found.values())).cosine.shape[-1]
    weights = resamples(count, draws, BOOTSTRAP_SEED).T / count
    best = torch.stack([(matched.cosine @ weights).amax(1) for matched in found.values()])  # solver, layer, resample
    won = winners(best)[list(found).index("richardson")].sum(0).double()
    low, high = interval(won, 0.95).tolist()
    return low, high
