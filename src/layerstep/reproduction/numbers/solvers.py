"""The classical solvers alone: their error by step, the condition of their systems, conjugate gradients' precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from layerstep.reproduction.numbers.model import COMPARED
from layerstep.reproduction.numbers.store import Store
from layerstep.reproduction.settings import (
    BOOTSTRAP_SEED,
    CURVE_CONTEXTS,
    EVALUATION_SEQUENCES,
    SETTINGS,
    SPHERE,
    evaluation_prompts,
)
from layerstep.solvers import ConjugateGradient, exact, solve, solve_all
from layerstep.solvers.system import Batch
from layerstep.stats import interval, resampled

CURVE_STEPS, CG_CURVE_STEPS = 200, 40


@dataclass(frozen=True, kw_only=True)
class SolverCurve:
    """`mse` [context, step] against the noisy label."""

    label: str
    steps: list[float]
    mse: list[list[float]]


@dataclass(frozen=True, kw_only=True)
class SolverCurves:
    """The solvers' curves in one setting, and the errors of exact KRR by context length."""

    setting: str
    contexts: list[int]
    krr: list[float]
    solvers: dict[str, SolverCurve]


def solver_curves(
    store: Store, setting: str, steps: int = CURVE_STEPS, sequences: int = EVALUATION_SEQUENCES
) -> SolverCurves:
    of = {"setting": setting, "steps": steps, "sequences": sequences}
    name = f"curves-{setting}-{steps}"
    return store.get(name, SolverCurves, of, __name__, lambda: compute_curves(setting, steps, sequences))


def compute_curves(setting: str, most: int, sequences: int) -> SolverCurves:
    task, prompts = SETTINGS[setting], evaluation_prompts(setting, sequences)
    shown = sorted({*range(min(most, 50) + 1), *range(0, most + 1, max(1, most // 200)), most})
    steps = {name: list(range(CG_CURVE_STEPS + 1)) if name == "cg" else shown for name in COMPARED}
    wanted = {name: (solver, steps[name]) for name, solver in COMPARED.items()}
    paths = solve_all(wanted, prompts, task, contexts=CURVE_CONTEXTS)
    columns = [n - 1 for n in CURVE_CONTEXTS]
    target = prompts.target[:, columns]
    return SolverCurves(
        setting=setting,
        contexts=list(CURVE_CONTEXTS),
        krr=(exact(prompts, task)[:, columns] - target).square().mean(0).tolist(),
        solvers={
            name: SolverCurve(label=path.label, steps=path.stages.tolist(), mse=path.mse(target).T.tolist())
            for name, path in paths.items()
        },
    )


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Median, the 5-95 % range over sequences, and the 95 % range of a median over 256 sequences."""

    median: float
    p5: float
    p95: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Conditioning:
    """Condition numbers of K + lam I and of D^-1/2 (K + lam I) D^-1/2 at n = N, the inverse of the largest eigenvalue
    of the latter, and the variation of the row sums."""

    kappa: Spread
    kappa_row_sum: Spread
    eta: Spread
    row_sum_variation: Spread


def conditioning(store: Store, sequences: int = 1000, resamples: int = 2000) -> dict[str, Conditioning]:
    """By setting."""
    of = {"sequences": sequences, "resamples": resamples, "seed": BOOTSTRAP_SEED}
    kind = dict[str, Conditioning]
    return store.get("conditioning", kind, of, __name__, lambda: compute_conditioning(sequences, resamples))


def compute_conditioning(sequences: int, resamples: int) -> dict[str, Conditioning]:
    found = {}
    for setting, task in SETTINGS.items():
        system = Batch.of(evaluation_prompts(setting, sequences), task).system(task.N)
        plain, row_sum = system.plain.values + system.lam, system.row_sum.values
        found[setting] = Conditioning(
            kappa=_spread(plain[:, -1] / plain[:, 0], resamples),
            kappa_row_sum=_spread(row_sum[:, -1] / row_sum[:, 0], resamples),
            eta=_spread(1 / row_sum[:, -1], resamples),
            row_sum_variation=_spread(system.D.std(-1, correction=0) / system.D.mean(-1), resamples),
        )
    return found


def _spread(values: torch.Tensor, resamples: int) -> Spread:
    numbers = values.numpy()
    pick = resampled(len(numbers), resamples, BOOTSTRAP_SEED, 256).numpy()
    low, high = interval(torch.from_numpy(np.median(numbers[pick], axis=1)), 0.95).tolist()
    p5, p95 = np.quantile(numbers, [0.05, 0.95]).tolist()
    return Spread(median=float(np.median(numbers)), p5=p5, p95=p95, low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Mean squared error against the noiseless function by step, for variants of conjugate gradients."""

    steps: list[int]
    curves: dict[str, list[float]]
    krr: float


def cg_precision(store: Store, sequences: int = 1000, steps: int = 24) -> Precision:
    of = {"sequences": sequences, "steps": steps}
    return store.get("cg-precision", Precision, of, __name__, lambda: compute_precision(sequences, steps))


def compute_precision(sequences: int, steps: int) -> Precision:
    task, prompts = SPHERE, evaluation_prompts("sphere", sequences)
    target = prompts.noiseless_target[:, -1:]
    variants = {
        "exact (reorthogonalized)": (ConjugateGradient(reorthogonalize=True), torch.float64),
        "float64 recursion": (ConjugateGradient(), torch.float64),
        "float32 recursion": (ConjugateGradient(), torch.float32),
    }
    curves = {}
    for name, (solver, dtype) in variants.items():
        path = solve(solver, prompts.to(dtype), task, steps, contexts=[task.N])
        curves[name] = (path.values.double() - target).square().mean((1, 2)).tolist()
    krr = (exact(prompts, task)[:, -1:] - target).square().mean().item()
    return Precision(steps=list(range(steps + 1)), curves=curves, krr=krr)
