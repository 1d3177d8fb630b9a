"""Error against step of the four classical solvers."""

from __future__ import annotations

from dataclasses import dataclass

from layerstep.reproduction.compared import COMPARED
from layerstep.reproduction.numbers.store import Store
from layerstep.reproduction.settings import CURVE_CONTEXTS, EVALUATION_SEQUENCES, SETTINGS, evaluation_prompts
from layerstep.solvers import exact, solve_all

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
