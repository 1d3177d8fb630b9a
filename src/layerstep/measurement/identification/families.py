"""Families of predictors: each a trajectory A_t in its own parameter t, and the class that it stands for.

Families of one class are one answer ("richardson" with or without row sums). Baselines solve nothing, or solve exactly
with a changing ridge, and also improve smoothly with depth: a claim must beat them. A class is added here, by a row of
`FAMILIES`, and in the calibration suite; a solver of your own enters one verdict by `identify(..., families=...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.errors import InputError, LayerstepError, require, require_choice, require_kind
from layerstep.solvers import SOLVERS, Chebyshev, Richardson, Solver
from layerstep.solvers.chebyshev import chebyshev_sums
from layerstep.solvers.solving import Steps, step_numbers
from layerstep.solvers.system import Batch, System
from layerstep.tasks import Prompts, Task

#: What a family may need of the kernel on the prompts, in words.
NEEDS = {
    "row sums": "row sums of K above 0",
    "K >= 0": "kernel values of 0 or more",
    "unit diagonal": "K(x, x) of at most 1",
}


def bandwidth_of(task: Any) -> float:
    """v of the task; 1 where its kernel has none."""
    return getattr(task, "v", 1.0)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A solver, the steps t it is tried at, and the bandwidths and ridges (v, lam) it is tried with.

    solver, steps: or functions of the task, where they depend on its N or lam. settings: "all" of the grid,
    "bandwidths" when no ridge enters, or "own", the task's alone. needs: of `NEEDS`, beyond those of its solver.
    linear: its predictions are linear in the labels. without_row_sums: the family of its class that differs in nothing
    but the row sums. variant: what tells it apart from others of its class, in words; which of them it is, is a second
    answer.
    """

    name: str
    kind: str  # its class: the answer it stands for
    solver: Solver | Callable[[Task], Solver]
    steps: Steps | Callable[[Task], Sequence[float]] = field(repr=False)
    settings: Literal["all", "bandwidths", "own"] = field(default="all", repr=False)
    needs: frozenset[str] = field(default=frozenset(), repr=False)
    linear: bool = field(default=True, repr=False)
    without_row_sums: str | None = field(default=None, repr=False)
    variant: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for argument in ("name", "kind"):
            require_kind(argument, getattr(self, argument), str)
        require_choice("settings", self.settings, ["all", "bandwidths", "own"])
        try:
            solver = self.solver(Task()) if callable(self.solver) else self.solver
            steps = self.steps(Task()) if callable(self.steps) else self.steps
        except Exception as error:
            raise InputError(f"{self.name}: its function of the task raised {type(error).__name__}: {error}") from error
        numbers = step_numbers(steps, solver)
        if not callable(self.steps):
            plain = isinstance(self.steps, (list, tuple, range))
            object.__setattr__(self, "steps", tuple(self.steps if plain else numbers.tolist()))  # type: ignore[arg-type]
        require_kind("needs", self.needs, (set, frozenset))
        for need in self.needs | solver.needs:
            require_choice("needs", need, NEEDS)
        object.__setattr__(self, "needs", frozenset(self.needs) | solver.needs)

    def on(self, task: Any) -> tuple[Solver, tuple[float, ...]]:
        """The solver and its steps for this task."""
        solver = self.solver(task) if callable(self.solver) else self.solver
        return solver, tuple(self.steps(task) if callable(self.steps) else self.steps)  # type: ignore[arg-type]

    def tried_at(self, v: float, lam: float, task: Any) -> bool:
        own = {"bandwidths": lam == task.lam, "own": lam == task.lam and v == bandwidth_of(task)}
        return own.get(self.settings, True)


@dataclass(frozen=True, kw_only=True)
class GuaranteedChebyshev(Chebyshev):
    """Chebyshev on the interval that holds every spectrum of up to N points: [lam / (lam + N), 1], or
    [lam, lam + N] without row sums. What a network runs whose weights cannot depend on the prompt."""

    row_sums: bool = True

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"row sums", "unit diagonal"} if self.row_sums else {"unit diagonal"})

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        N, lam = system.batch.y.shape[1] - 1, system.lam
        spectrum = system.row_sum if self.row_sums else system.ridged
        s = spectrum.values
        scale = N + lam if self.row_sums else 1.0
        lo, hi = lam / scale, (N + lam) / scale
        # Such networks divide by D + lam, whose spectrum ends at 1; that of D passes it by lam / D and would diverge.
        bounds = (torch.full_like(s[:, :1], lo), torch.full_like(s[:, :1], hi))
        g = spectrum.weights / s
        return g.sum(-1, keepdim=True) - chebyshev_sums(g, s.clamp_max(hi), *bounds, steps)


def _safe_richardson(task: Task) -> Richardson:
    """One step for every prompt: eig_max <= N + lam where K(x, x) <= 1."""
    return Richardson(preconditioner="none", eta=1 / (task.N + task.lam))


def log_steps(first: float, last: float, count: int) -> list[float]:
    return [first * (last / first) ** (k / (count - 1)) for k in range(count)]


def whole_steps(first: float, last: float, count: int, dense: int = 0) -> list[int]:
    """0..dense, then about `count` log-spaced whole numbers from first to last."""
    return sorted({*range(dense + 1), *(round(t) for t in log_steps(first, last, count))})


def _family(name: str, kind: str, steps: Steps | Callable[[Task], Sequence[float]], solver=None, **more) -> Family:
    return Family(name=name, kind=kind, solver=solver or SOLVERS[name], steps=steps, **more)


_UNIT = frozenset({"unit diagonal"})
# Error polynomials of odd and even degree differ in sign: both are needed at every scale.
_BOTH = sorted({*range(150), *(t + odd for t in whole_steps(150, 1000, 28) for odd in (0, 1))})
_FREE = GuaranteedChebyshev(row_sums=False)
#: The families, class by class. Steps are dense first, then log-spaced, as far as the trajectory still moves.
FAMILIES = (
    _family("richardson", "richardson", whole_steps(1, 1e4, 90), without_row_sums="richardson-plain"),
    _family("richardson-plain", "richardson", whole_steps(1, 1e4, 90)),
    _family("richardson-slow", "richardson", whole_steps(1, 4e4, 90), Richardson(eta=0.25)),
    _family("richardson-fixed", "richardson-fixed", whole_steps(1, 1e4, 90)),
    _family("richardson-one-step", "richardson-fixed", whole_steps(1, 4e4, 90), _safe_richardson, needs=_UNIT),
    _family("gd", "gd", whole_steps(1, 1e7, 110)),
    _family("nesterov", "nesterov", whole_steps(40, 3e3, 50, dense=40)),
    _family("cg", "cg", range(31), linear=False),
    _family("cg-row-sum", "cg", range(31), linear=False, without_row_sums="cg"),
    _family("chebyshev", "chebyshev", range(1, 100)),
    _family("chebyshev-interval", "chebyshev", _BOTH, GuaranteedChebyshev(), settings="own"),
    _family("chebyshev-plain", "chebyshev", _BOTH, _FREE, settings="own"),
    _family("ridge", "ridge", [0, *log_steps(1 / 300, 1e4, 90)], settings="bandwidths"),
    _family("shrink", "shrink", [100 * k / 60 for k in range(61)]),
    _family("nadaraya-watson", "nadaraya-watson", log_steps(0.01, 32, 60), settings="bandwidths"),
    _family("knn", "knn", lambda task: range(task.N + 1)),
    _family("boost", "boost", whole_steps(1, 200, 45), settings="bandwidths"),
    _family("causal-richardson", "causal-richardson", whole_steps(1, 60, 30)),
    _family("causal-boost", "causal-boost", whole_steps(1, 60, 30), settings="bandwidths"),
)
#: The classes of the library, in the order of the tables.
CLASSES = tuple(dict.fromkeys(family.kind for family in FAMILIES))


def require_families(families: object) -> None:
    """Raise InputError unless these are families, each name once."""
    remedy = "Yours beside the library's: [*ls.FAMILIES, ls.Family(name=..., kind=..., solver=..., steps=...)]."
    require(isinstance(families, Sequence), "families", f"a {type(families).__name__}", "a list of Family", remedy)
    for family in families:  # type: ignore[attr-defined]
        require_kind("families", family, Family, remedy)
    names = [family.name for family in families]  # type: ignore[attr-defined]
    require(len(set(names)) == len(names) > 0, "families", ", ".join(names), "one or more, of different names", remedy)


def require_sound(family: Family, prompts: Prompts, task: Any) -> None:
    """Raise InputError unless a solver of the user's predicts [B, T] and does not see the label it is to predict."""
    solver, steps = family.on(task)
    numbers = step_numbers(steps, solver)
    n = max(1, prompts.N // 2)
    later = Prompts(prompts.x, torch.cat([prompts.y[:, :n], 1 + 2 * prompts.y[:, n:]], dim=1))
    systems = [Batch.of(given, task).system(n) for given in (prompts, later)]
    try:
        found, blind = (solver.predictions(system, numbers) for system in systems)
    except LayerstepError:
        raise
    except Exception as error:
        raise InputError(f"{family.name}: its solver raised {type(error).__name__}: {error}") from error
    shape = [prompts.B, len(numbers)]
    right = isinstance(found, Tensor) and list(found.shape) == shape
    require(right, f"{family.name}: predictions", found, f"a tensor of shape {shape}, sequences by steps")
    same = torch.equal(found.nan_to_num(), blind.nan_to_num())
    remedy = "Use system.y and system.K, not those of system.batch."
    require(same, f"{family.name}: predictions", "changed by y_{n+1} or a later label", "made from n examples", remedy)
