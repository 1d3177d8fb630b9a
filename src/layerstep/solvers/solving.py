"""Run solvers on every prefix of every sequence, keep every prediction asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral

import torch
from jaxtyping import Float, Num
from torch import Tensor

from layerstep.errors import quoted, require, require_callable, require_count, require_kind
from layerstep.memory import require_memory
from layerstep.solvers.base import Solver
from layerstep.solvers.system import Batch
from layerstep.tasks import Prompts, TaskProtocol, Trajectory, require_task
from layerstep.tasks.prompts import BLOCK, as_float_tensor
from layerstep.tasks.trajectory import context_lengths
from layerstep.threads import pool

Steps = int | Sequence[float] | Tensor


def solve(
    solver: Solver, prompts: Prompts, task: TaskProtocol, steps: Steps, *, contexts: Sequence[int] | None = None
) -> Trajectory:
    """Predictions of `solver` after each of `steps`, at x_{n+1} from the first n pairs, for n = 1..N.

    `steps`: an int for 0..steps, or increasing step numbers. `contexts`: only these n.
    The task gives kernel, bandwidth and ridge; to solve with others pass another task.
    """
    return solve_all({"one": (solver, steps)}, prompts, task, contexts=contexts)["one"]


def solve_all(
    solvers: Mapping[str, tuple[Solver, Steps]],
    prompts: Prompts,
    task: TaskProtocol,
    *,
    contexts: Sequence[int] | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Trajectory]:
    """Several solvers on the same prompts; the decompositions of a system are made once for all of them.

    `progress` is called with the fraction done.
    """
    _require_problem(prompts, task, "gram", "lam")
    chosen = list(range(1, prompts.N + 1)) if contexts is None else context_lengths(contexts, prompts.N).tolist()
    pairs = isinstance(solvers, Mapping) and all(isinstance(v, Sequence) and len(v) == 2 for v in solvers.values())
    allowed = "a dictionary of (solver, steps) by name, of at least one solver"
    require(pairs and len(solvers) > 0, "solvers", solvers, allowed, "Such as {'cg': (ls.ConjugateGradient(), 20)}.")
    if progress is not None:
        require_callable("progress", progress, "a function of the fraction done")
    numbers = {name: step_numbers(steps, solver) for name, (solver, steps) in solvers.items()}
    needed = sum(map(len, numbers.values())) * prompts.B * len(chosen) * prompts.y.element_size()
    remedy = "Ask for fewer steps, such as [10, 100, 1000], or fewer prompts."
    require_memory("steps", f"{max(map(len, numbers.values())):,} numbers", needed, remedy, prompts.y.device)
    # Context length first while they are filled, so that every solver writes one contiguous piece.
    values = {name: prompts.y.new_empty(len(chosen), prompts.B, len(steps)) for name, steps in numbers.items()}
    longest = max(len(steps) for steps in numbers.values())
    block = max(1, BLOCK // ((prompts.N + 1) * max(prompts.N + 1, longest)))
    with pool(prompts.y.device) as workers:
        for start in range(0, prompts.B, block):
            rows = slice(start, min(start + block, prompts.B))
            batch = Batch.of(prompts[rows], task)

            def fill(column: int, rows: slice = rows, batch: Batch = batch) -> None:
                system = batch.system(chosen[column])
                for name, (solver, _) in solvers.items():
                    values[name][column, rows] = solver.predictions(system, numbers[name].to(prompts.y.device))

            for done, _ in enumerate(workers.map(fill, reversed(range(len(chosen)))), start=1):
                if progress is not None:
                    progress((start + done / len(chosen) * (rows.stop - start)) / prompts.B)
    return {
        name: Trajectory(
            values.pop(name).permute(2, 1, 0).contiguous(), numbers[name].double(), solver.label, torch.tensor(chosen)
        )
        for name, (solver, _) in solvers.items()
    }


def exact(prompts: Prompts, task: TaskProtocol) -> Float[Tensor, "B N"]:
    """The best prediction for n = 1..N, the posterior mean of the task: k_n · (K_n + lam I)⁻¹ y where f is Gaussian,
    which is what every solver converges to."""
    _require_problem(prompts, task, "exact")
    return task.exact(prompts)  # type: ignore[attr-defined]


def _require_problem(prompts: object, task: object, *needs: str) -> None:
    """Raise InputError unless these are prompts and a task: they are easily given the other way round."""
    require_kind("prompts", prompts, Prompts, "They come before the task.")
    require_task(task, *needs, remedy="It comes after the prompts.")


def step_numbers(steps: Steps, solver: Solver) -> Num[Tensor, "T"]:
    """`steps` as an increasing tensor: integers, or real numbers for a solver that allows them."""
    ok = isinstance(solver, Solver)
    require(ok, "solver", quoted(solver), "a solver such as Richardson()", "By name: SOLVERS['richardson'].")
    if isinstance(steps, Integral):
        require_count(0, steps=steps)
        require_memory("steps", steps, 8 * int(steps), "Give step numbers, such as [10, 100, 1000].")
        numbers = torch.arange(int(steps) + 1)
    else:
        numbers = as_float_tensor("steps", steps, "T").to("cpu", torch.float64)
    require(len(numbers) > 0, "steps", steps, "an int or a list of at least one number")
    require(bool(((numbers >= 0) & (numbers < 2**53)).all()), "steps", steps, "0 or more, and below 2**53")
    most = f"at most {solver.most_steps:,} for {solver.label}, which takes one step after another"
    require(float(numbers[-1]) <= solver.most_steps, "steps", f"{float(numbers[-1]):,.0f}", most, "Ask for fewer.")
    require(bool((numbers.diff() > 0).all()), "steps", steps, "strictly increasing", "Sort them and drop repeats.")
    if solver.continuous:
        return numbers.double()
    require(bool((numbers == numbers.round()).all()), "steps", steps, f"whole numbers for {solver.label}")
    return numbers.long()
