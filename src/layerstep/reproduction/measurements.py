"""What the figures need to know of one model: error by layer, SimE with every solver, best-matching steps.

Computed once per model into a result file; every figure that shows the model is drawn from there.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import numpy as np
import torch

from layerstep.errors import FileError, LayerstepError
from layerstep.files import read_json
from layerstep.measurement import Match, layers_won, match
from layerstep.measurement.similarity import winners
from layerstep.reproduction.figures.noise import squared_errors
from layerstep.reproduction.predictions import FILE, NOISE_SEQUENCES, Predictions
from layerstep.reproduction.reference import SIGMA_TEST
from layerstep.reproduction.result import Data, kept
from layerstep.reproduction.runs import RUNS
from layerstep.reproduction.settings import CONTEXTS, EVALUATION_SEQUENCES, SETTINGS, evaluation_prompts
from layerstep.solvers import PAPER_SOLVERS, SOLVERS, ConjugateGradient, exact, solve_all
from layerstep.stats import interval, resamples
from layerstep.tasks import Trajectory

ROOMS = ("tasks", "solvers", "measurement", "reproduction")
#: Steps shown in a heat map: about this many, dense at first.
SHOWN = 80
#: Steps the paper gives its solvers (three times as many at v = 2), and conjugate gradients.
BUDGET, CG_BUDGET = 500, 100
SEED = 1  # of the bootstrap over prompts


def usable() -> tuple[list[str], dict[str, str]]:
    """Names of the runs whose predictions are here and whole, in the order of the list; reasons for the others that
    have a folder."""
    found, reasons = [], {}
    for name, run in RUNS.items():
        held = run.held
        if held.usable:
            try:
                predictions(name)
                found.append(name)
            except LayerstepError as error:
                reasons[name] = str(error)
        elif held.state != "missing":
            reasons[name] = held.words
    return found, reasons


def predictions(name: str) -> Predictions:
    """The model's predictions on the evaluation prompts, checked: they have the run's shape and are numbers."""
    run = RUNS[name]
    found = Predictions.load(run.folder)
    B, N = EVALUATION_SEQUENCES, run.run.task.N
    shapes = {
        "layers": (tuple(found.layers.values.shape), (run.run.model.layers + 1, B, N)),
        "head": (tuple(found.head.shape), (B, N)),
        "noise": (tuple(found.noise.shape), (len(SIGMA_TEST), NOISE_SEQUENCES)),
    }
    if found.last:
        shapes["last"] = (tuple(found.last.values.shape), shapes["layers"][1])
    for part, (shape, expected) in shapes.items():
        if shape != expected:
            raise FileError(f"{run.folder / FILE}: {part} has shape {shape}, expected {expected}. Probe it again.")
    parts = [path.values for path in (found.layers, found.last) if path] + [found.head, found.noise]
    if not all(bool(part.isfinite().all()) for part in parts):
        raise FileError(f"{run.folder / FILE}: holds values that are no numbers. Probe the model again.")
    return found


def identity(name: str) -> Data:
    """What a model's numbers depend on: the run its folder holds, its predictions and the errors on its card."""
    run = RUNS[name]
    sha = hashlib.sha256((run.folder / FILE).read_bytes()).hexdigest()[:12]
    about = read_json(run.folder / "config.json")["about"]["run"]
    return {"model": name, "run": about, "predictions": sha, "over_krr": _card(name)}


def _card(name: str) -> float | None:
    """Error at n = N over that of exact KRR as the model's card has it: noiseless targets, 2,048 prompts. None where
    the card does not say; the list of runs tells what is wrong with it, and `_over_krr` computes it."""
    try:
        return float(read_json(RUNS[name].folder / "evaluation.json")["evaluation"]["ratio"])
    except (FileError, KeyError, TypeError, ValueError):
        return None


def _over_krr(found: Predictions, setting: str) -> float:
    """The number of the card, on the prompts of the noise sweep: noiseless targets and as many, drawn anew."""
    level = SIGMA_TEST.index(SETTINGS[setting].sigma)
    exact_errors = squared_errors(setting, NOISE_SEQUENCES)[0][level]
    truth = evaluation_prompts(setting, NOISE_SEQUENCES).noiseless_target[:, -1]
    return float((found.noise[level] - truth).square().mean() / exact_errors.mean())


def measure(name: str, folder: Path) -> Data:
    """The numbers of one model, from `folder` if they are there."""
    return kept(folder / "measured" / f"{name}.json", identity(name), ROOMS, lambda: compute(name))[0]["data"]


def compute(name: str) -> Data:
    run, found = RUNS[name], predictions(name)
    return {
        "model": name,
        "setting": run.setting,
        "held": run.held.words,
        "trained_steps": run.held.steps,
        **errors(found.layers, run.setting),
        "over_krr": _card(name) or _over_krr(found, run.setting),
        **similarity(_inner(found.layers), run.setting),
        **({"last": similarity(_inner(found.last), run.setting)} if found.last else {}),
    }


def _inner(path: Trajectory) -> Trajectory:
    """The layers without the embedding."""
    return Trajectory(path.values[1:], path.stages[1:], path.label)


def errors(path: Trajectory, setting: str) -> Data:
    """Mean squared error against the noisy label by context length and stage, and that of exact KRR."""
    prompts = evaluation_prompts(setting)
    columns = [n - 1 for n in CONTEXTS]
    krr = (exact(prompts, SETTINGS[setting]) - prompts.target).square().mean(0)
    return {
        "contexts": list(CONTEXTS),
        "layers": path.stages.tolist(),
        "layer_mse": path.mse(prompts.target)[:, columns].T.tolist(),
        "krr": krr[columns].tolist(),
    }


@functools.lru_cache(maxsize=1)
def references(setting: str) -> dict[str, Trajectory]:
    """Paths of the paper's four solvers with the paper's budgets: 500 steps, 1,500 at v = 2, 100 for CG."""
    budget = 3 * BUDGET if setting == "sphere-v2" else BUDGET
    steps = {"richardson": budget, "cg": CG_BUDGET, "gd": budget, "nesterov": budget}
    chosen = {**SOLVERS, "cg": ConjugateGradient(reorthogonalize=True)}
    prompts = evaluation_prompts(setting)
    return solve_all({name: (chosen[name], steps[name]) for name in PAPER_SOLVERS}, prompts, SETTINGS[setting])


def similarity(path: Trajectory, setting: str, seed: int = SEED) -> Data:
    """SimE of layers 1..L with every step of the four solvers, best steps, the line through layers 2..10 (2..20 of
    24), layers won."""
    prompts = evaluation_prompts(setting)
    found = {solver: match(path, steps, prompts) for solver, steps in references(setting).items()}
    deepest = int(path.stages[-1])
    first, last = 2, (20 if deepest == 24 else 10)
    low, high = _won_interval(found, seed)
    return {
        "range": [first, last],
        "solvers": {solver: _solver(matched, first, last, seed) for solver, matched in found.items()},
        "won": layers_won(found),
        "won_low": low,
        "won_high": high,
    }


def _solver(matched: Match, first: int, last: int, seed: int) -> Data:
    sime, best = matched.sime, matched.best_step
    line = matched.line(first, last, seed=seed)
    shown = np.unique(np.geomspace(1, len(matched.steps), SHOWN).round().astype(int) - 1)
    return {
        "steps": matched.steps[shown].tolist(),
        "sime": sime[:, shown].tolist(),
        "best_step": matched.steps[sime.argmax(1)].tolist(),
        "best_sime": sime.amax(1).tolist(),
        "mean": best.mean(0).tolist(),
        "sd": best.std(0).tolist(),
        "at_cap": matched.at_cap.tolist(),
        "r2": line.r2,
        "r2_low": line.interval[0],
        "r2_high": line.interval[1],
        "slope": line.slope,
        "intercept": line.intercept,
    }


def _won_interval(found: dict[str, Match], seed: int, draws: int = 400) -> tuple[float, float]:
    """95 % range over resampled sequences of the number of layers Richardson wins."""
    count = next(iter(found.values())).cosine.shape[-1]
    weights = resamples(count, draws, seed).T / count
    best = torch.stack([(matched.cosine @ weights).amax(1) for matched in found.values()])  # solver, layer, resample
    won = winners(best)[list(found).index("richardson")].sum(0).double()
    low, high = interval(won, 0.95).tolist()
    return low, high
