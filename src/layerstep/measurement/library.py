"""The library: families of predictors, each a path in its own parameter t, at every bandwidth and ridge of a grid.

Families of one class are one answer ("richardson" with or without row sums); the nuisances (v, lam) are unknown
because a trained network need not use the task's. The nulls solve nothing, or solve exactly with a changing ridge,
and also improve smoothly with depth: a claim must beat them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.errors import require_choice
from layerstep.files import digest
from layerstep.solvers import SOLVERS, Chebyshev, Richardson, Solver, exact, solve_all
from layerstep.solvers.chebyshev import chebyshev_ratio
from layerstep.solvers.system import System
from layerstep.tasks import Prompts, Task

#: Where predictions are compared, for N = 40: short contexts must not dominate, as they do in SimE over all n.
CONTEXTS = (3, 6, 10, 15, 20, 25, 30, 35, 40)
#: Bandwidths and ridges tried, as multiples of the task's: all v at its lam, and the other lam at its v.
BANDWIDTHS = (0.7, 0.75, *(1.025**k for k in range(-9, 10)), 1.3, 1.36, 1.43, 1.5)
RIDGES = (0.25, 3.0, 8.0)


@dataclass(frozen=True, kw_only=True)
class GuaranteedChebyshev(Chebyshev):
    """Chebyshev on the interval that holds every spectrum of up to N points: [lam / (lam + N), 1], or
    [lam, lam + N] without row sums. What a network runs whose weights cannot depend on the prompt."""

    row_sums: bool = True

    def predictions(self, system: System, steps: Int[Tensor, "T"]) -> Float[Tensor, "B T"]:
        N, lam = system.batch.y.shape[1] - 1, system.lam
        spectrum = system.row_sum if self.row_sums else system.plain
        s = spectrum.values if self.row_sums else spectrum.values + lam
        scale = N + lam if self.row_sums else 1.0
        lo, hi = lam / scale, (N + lam) / scale
        theta, delta = (hi + lo) / 2, (hi - lo) / 2
        # Such networks divide by D + lam, whose spectrum ends at 1; that of D passes it by lam / D and would diverge.
        error = chebyshev_ratio((theta - s.clamp_max(hi)) / delta, torch.full_like(s[:, :1], theta / delta), steps)
        return spectrum.sum((1 - error) / s.unsqueeze(-1))


@dataclass(frozen=True, kw_only=True)
class Family:
    """One path A_t: a solver and the steps t it is tried at; `uses_lam` is False when no ridge enters."""

    name: str
    kind: str  # its class: the answer it stands for
    solver: Solver
    steps: tuple[float, ...]
    uses_lam: bool = True


def families(N: int, lam: float) -> tuple[Family, ...]:
    """The families for contexts up to N. Steps are dense first, then log-spaced, as far as the path still moves."""
    one_step = Richardson(preconditioner="none", eta=1 / (N + lam))  # safe for every prompt: eig_max <= N + lam
    # Error polynomials of odd and even degree differ in sign: both are needed at every scale.
    pairs = [t + odd for t in _whole(50, 1000, 28) for odd in (0, 1)]
    dense = sorted({*range(50), *pairs})
    entries: list[tuple[str, str, Solver, Sequence[float], bool]] = [
        ("richardson", "richardson", SOLVERS["richardson"], _whole(1, 1e4, 90), True),
        ("richardson-plain", "richardson", SOLVERS["richardson-plain"], _whole(1, 1e4, 90), True),
        ("richardson-slow", "richardson", Richardson(eta=0.25), _whole(1, 4e4, 90), True),
        ("richardson-fixed", "richardson-fixed", SOLVERS["richardson-fixed"], _whole(1, 1e4, 90), True),
        ("richardson-one-step", "richardson-fixed", one_step, _whole(1, 4e4, 90), True),
        ("gd", "gd", SOLVERS["gd"], _whole(1, 1e7, 110), True),
        ("nesterov", "nesterov", SOLVERS["nesterov"], _whole(40, 3e3, 50, dense=40), True),
        ("cg", "cg", SOLVERS["cg"], range(31), True),
        ("cg-row-sum", "cg", SOLVERS["cg-row-sum"], range(31), True),
        ("chebyshev", "chebyshev", SOLVERS["chebyshev"], range(1, 100), True),
        ("chebyshev-interval", "chebyshev", GuaranteedChebyshev(), dense, True),
        ("chebyshev-plain", "chebyshev", GuaranteedChebyshev(row_sums=False), dense, True),
        ("ridge", "ridge", SOLVERS["ridge"], [0, *_log(1 / 300, 1e4, 90)], False),
        ("shrink", "shrink", SOLVERS["shrink"], [100 * k / 60 for k in range(61)], True),
        ("nadaraya-watson", "nadaraya-watson", SOLVERS["nadaraya-watson"], _log(0.01, 32, 60), False),
        ("knn", "knn", SOLVERS["knn"], range(N + 1), True),
        ("boost", "boost", SOLVERS["boost"], _whole(1, 200, 45), False),
        ("causal-richardson", "causal-richardson", SOLVERS["causal-richardson"], _whole(1, 60, 30), True),
        ("causal-boost", "causal-boost", SOLVERS["causal-boost"], _whole(1, 60, 30), False),
    ]
    return tuple(
        Family(name=name, kind=kind, solver=solver, steps=tuple(steps), uses_lam=uses_lam)
        for name, kind, solver, steps, uses_lam in entries
    )


def _log(first: float, last: float, count: int) -> list[float]:
    return [first * (last / first) ** (k / (count - 1)) for k in range(count)]


def _whole(first: float, last: float, count: int, dense: int = 0) -> list[int]:
    """0..dense, then about `count` log-spaced whole numbers from first to last."""
    return sorted({*range(dense + 1), *(round(t) for t in _log(first, last, count))})


#: The classes, in the order of the tables.
CLASSES = tuple(dict.fromkeys(family.kind for family in families(40, 0.0025)))


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A family at one bandwidth and ridge; `rows` are its steps in the library's table."""

    family: Family
    v: float
    lam: float
    rows: slice


@dataclass(frozen=True, eq=False, kw_only=True)
class Library:
    """Every prediction of every candidate on the judged prompts, as distances A_t - KRR: table [R, B, C], C contexts.

    krr [B, C] is the exact prediction of the task. The table is computed in float64 and kept in float32, whose rounding
    is four orders below the smallest distance that decides. Sequences are kept
    in the order `order`, which their content decides: the two halves of the cross-fitting are the first and the last
    of them, and a verdict does not depend on the order they came in.
    """

    task: Task
    prompts: Prompts
    order: Int[Tensor, "B"]
    contexts: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    table: Float[Tensor, "R B C"]
    krr: Float[Tensor, "B C"]

    @staticmethod
    def build(
        prompts: Prompts,
        task: Task,
        contexts: Sequence[int] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Library:
        """Run all families on `prompts` in float64, the decompositions of one (v, lam) made once for all of them."""
        order = canonical_order(prompts)
        prompts = prompts.to(torch.float64, "cpu")[order]
        contexts = tuple(contexts or default_contexts(prompts.N))
        wanted = families(prompts.N, task.lam)
        settings = [(v * task.v, task.lam) for v in BANDWIDTHS] + [(task.v, lam * task.lam) for lam in RIDGES]
        rows = sum(len(f.steps) for f in wanted for _, lam in settings if f.uses_lam or lam == task.lam)
        table = torch.empty(rows, prompts.B, len(contexts))
        krr = exact(prompts, task)[:, [n - 1 for n in contexts]]
        candidates: list[Candidate] = []
        row = 0
        for done, (v, lam) in enumerate(settings):
            chosen = [f for f in wanted if f.uses_lam or lam == task.lam]
            paths = solve_all(
                {f.name: (f.solver, f.steps) for f in chosen},
                prompts,
                replace(task, v=v, sigma=math.sqrt(lam)),
                contexts=contexts,
            )
            for family in chosen:
                candidates.append(Candidate(family=family, v=v, lam=lam, rows=slice(row, row + len(family.steps))))
                table[candidates[-1].rows] = (paths[family.name].values - krr).float()
                row += len(family.steps)
            if progress is not None:
                progress((done + 1) / len(settings))
        return Library(
            task=task,
            prompts=prompts,
            order=order,
            contexts=contexts,
            candidates=tuple(candidates),
            table=table,
            krr=krr,
        )

    @property
    def families(self) -> tuple[Family, ...]:
        return tuple(dict.fromkeys(candidate.family for candidate in self.candidates))

    @property
    def target(self) -> Float[Tensor, "B C"]:
        return self.prompts.target[:, [n - 1 for n in self.contexts]]

    def find(self, name: str, v: float, lam: float | None = None) -> Candidate:
        """The candidate of a family whose (v, lam) is nearest in ratio."""
        require_choice("family", name, [family.name for family in self.families])
        lam = self.task.lam if lam is None else lam

        def distance(candidate: Candidate) -> float:
            return abs(math.log(candidate.v / v)) + abs(math.log(candidate.lam / lam))

        return min((c for c in self.candidates if c.family.name == name), key=distance)

    @property
    def hash(self) -> str:
        """Two verdicts can be compared only when their libraries have the same hash."""
        grid = [[c.family.name, repr(c.family.solver), c.family.steps, c.v, c.lam] for c in self.candidates]
        return digest([grid, self.contexts, self.task.to_dict()])


def canonical_order(prompts: Prompts) -> Int[Tensor, "B"]:
    """Sequences ranked by sum_i y_i, every second one first: two halves that are alike and fixed by the content."""
    rank = prompts.y.double().sum(-1).cpu().argsort(stable=True)
    return torch.cat([rank[0::2], rank[1::2]])


def default_contexts(N: int) -> list[int]:
    """The nine context lengths for N = 40, in proportion for other N."""
    return sorted({max(1, round(n * N / CONTEXTS[-1])) for n in CONTEXTS})
