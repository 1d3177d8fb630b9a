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

from layerstep.errors import require, require_choice
from layerstep.files import digest
from layerstep.solvers import SOLVERS, Chebyshev, Richardson, Solver, exact, solve_all
from layerstep.solvers.chebyshev import chebyshev_sums
from layerstep.solvers.system import Batch, System
from layerstep.tasks import Prompts, Task, Trajectory
from layerstep.threads import one_per_worker

#: Where predictions are compared, for N = 40: short contexts must not dominate, as they do in SimE over all n.
CONTEXTS = (3, 6, 10, 15, 20, 25, 30, 35, 40)
#: Bandwidths and ridges tried, as multiples of the task's: all v at its lam, and the other lam at its v.
BANDWIDTHS = (0.7, 0.75, *(1.025**k for k in range(-9, 10)), 1.3, 1.36, 1.43, 1.5)
RIDGES = (0.25, 0.4, 0.63, 1.6, 2.5, 4.0, 6.5)
#: A candidate farther from KRR than this, in units of the root mean square label, diverges; the others stay below 10.
DIVERGED = 1e3


@dataclass(frozen=True, kw_only=True)
class GuaranteedChebyshev(Chebyshev):
    """Chebyshev on the interval that holds every spectrum of up to N points: [lam / (lam + N), 1], or
    [lam, lam + N] without row sums. What a network runs whose weights cannot depend on the prompt."""

    row_sums: bool = True

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


@dataclass(frozen=True, kw_only=True)
class Family:
    """One path A_t: a solver and the steps t it is tried at.

    settings: the (v, lam) it is tried at: all of them, "bandwidths" when no ridge enters, or "own", the task's alone.
    """

    name: str
    kind: str  # its class: the answer it stands for
    solver: Solver
    steps: tuple[float, ...]
    settings: str = "all"

    def tried_at(self, v: float, lam: float, task: Task) -> bool:
        return {"all": True, "bandwidths": lam == task.lam, "own": lam == task.lam and v == task.v}[self.settings]


def families(N: int, lam: float) -> tuple[Family, ...]:
    """The families for contexts up to N. Steps are dense first, then log-spaced, as far as the path still moves."""
    one_step = Richardson(preconditioner="none", eta=1 / (N + lam))  # safe for every prompt: eig_max <= N + lam
    # Error polynomials of odd and even degree differ in sign: both are needed at every scale.
    pairs = [t + odd for t in _whole(150, 1000, 28) for odd in (0, 1)]
    dense = sorted({*range(150), *pairs})
    entries: list[tuple[str, str, Solver, Sequence[float], str]] = [
        ("richardson", "richardson", SOLVERS["richardson"], _whole(1, 1e4, 90), "all"),
        ("richardson-plain", "richardson", SOLVERS["richardson-plain"], _whole(1, 1e4, 90), "all"),
        ("richardson-slow", "richardson", Richardson(eta=0.25), _whole(1, 4e4, 90), "all"),
        ("richardson-fixed", "richardson-fixed", SOLVERS["richardson-fixed"], _whole(1, 1e4, 90), "all"),
        ("richardson-one-step", "richardson-fixed", one_step, _whole(1, 4e4, 90), "all"),
        ("gd", "gd", SOLVERS["gd"], _whole(1, 1e7, 110), "all"),
        ("nesterov", "nesterov", SOLVERS["nesterov"], _whole(40, 3e3, 50, dense=40), "all"),
        ("cg", "cg", SOLVERS["cg"], range(31), "all"),
        ("cg-row-sum", "cg", SOLVERS["cg-row-sum"], range(31), "all"),
        ("chebyshev", "chebyshev", SOLVERS["chebyshev"], range(1, 100), "all"),
        ("chebyshev-interval", "chebyshev", GuaranteedChebyshev(), dense, "own"),
        ("chebyshev-plain", "chebyshev", GuaranteedChebyshev(row_sums=False), dense, "own"),
        ("ridge", "ridge", SOLVERS["ridge"], [0, *_log(1 / 300, 1e4, 90)], "bandwidths"),
        ("shrink", "shrink", SOLVERS["shrink"], [100 * k / 60 for k in range(61)], "all"),
        ("nadaraya-watson", "nadaraya-watson", SOLVERS["nadaraya-watson"], _log(0.01, 32, 60), "bandwidths"),
        ("knn", "knn", SOLVERS["knn"], range(N + 1), "all"),
        ("boost", "boost", SOLVERS["boost"], _whole(1, 200, 45), "bandwidths"),
        ("causal-richardson", "causal-richardson", SOLVERS["causal-richardson"], _whole(1, 60, 30), "all"),
        ("causal-boost", "causal-boost", SOLVERS["causal-boost"], _whole(1, 60, 30), "bandwidths"),
    ]
    return tuple(
        Family(name=name, kind=kind, solver=solver, steps=tuple(steps), settings=settings)
        for name, kind, solver, steps, settings in entries
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
    is four orders below the smallest distance that decides. Candidates that diverge on these prompts (a fixed step too
    long for this kernel or ridge) are left out. Sequences are kept in the order `order`, which their content decides:
    the two halves of the cross-fitting are the first and the last of them, and a verdict does not depend on the order
    they came in.
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
        *,
        bandwidths: Sequence[float] = BANDWIDTHS,
        ridges: Sequence[float] = RIDGES,
    ) -> Library:
        """Run all families on `prompts` in float64, the decompositions of one (v, lam) made once for all of them."""
        order = canonical_order(prompts)
        prompts = prompts.to(torch.float64, "cpu")[order]
        contexts = tuple(contexts or default_contexts(prompts.N))
        wanted = families(prompts.N, task.lam)
        for v in bandwidths:
            _require_weights(prompts, replace(task, v=v * task.v))
        settings = [(v * task.v, task.lam) for v in bandwidths] + [(task.v, lam * task.lam) for lam in ridges]
        rows = sum(len(f.steps) for f in wanted for v, lam in settings if f.tried_at(v, lam, task))
        table = torch.empty(rows, prompts.B, len(contexts))
        krr = exact(prompts, task)[:, [n - 1 for n in contexts]]
        size = float(prompts.y.square().mean().sqrt())
        allowed = "a root mean square from 1e-15 to 1e15, whose squares single precision holds"
        remedy = "Divide labels and predictions by it."
        require(size == 0 or 1e-15 <= size <= 1e15, "prompts.y", f"labels of size {size:.2g}", allowed, remedy)
        farthest = DIVERGED * size
        candidates: list[Candidate] = []
        row = 0

        def tried(setting: tuple[float, float]) -> dict[Family, Trajectory]:
            v, lam = setting
            chosen = [family for family in wanted if family.tried_at(v, lam, task)]
            solvers = {family.name: (family.solver, family.steps) for family in chosen}
            paths = solve_all(solvers, prompts, replace(task, v=v, sigma=math.sqrt(lam)), contexts=contexts)
            return {family: paths[family.name] for family in chosen}

        # One setting a core: workers that share the prefixes of one would wait for each other at its end.
        with one_per_worker(tried, settings) as found:
            for done, ((v, lam), paths) in enumerate(zip(settings, found, strict=True)):
                for family, path in paths.items():
                    away = path.values - krr
                    if not bool(away.abs().amax() <= farthest):  # nor where it is NaN
                        continue
                    candidates.append(Candidate(family=family, v=v, lam=lam, rows=slice(row, row + len(family.steps))))
                    table[candidates[-1].rows] = away.float()
                    row += len(family.steps)
                if progress is not None:
                    progress((done + 1) / len(settings))
        return Library(
            task=task,
            prompts=prompts,
            order=order,
            contexts=contexts,
            candidates=tuple(candidates),
            table=table[:row],
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


def _require_weights(prompts: Prompts, task: Task) -> None:
    """Raise InputError unless the kernel values on these prompts can be weights of averages."""
    batch = Batch.of(prompts, task)
    value, total = batch.least_value, batch.least_row_sum
    require(
        value >= 0 and total > 0,
        f"kernel {task.kernel!r}",
        f"values from {value:.3g} and row sums from {total:.3g} on these prompts",
        "values of 0 or more with row sums above 0: half of the library divides by such sums",
        "Use another kernel, or leave out points where it is 0. Single solvers that need no row sums, such as "
        "ls.GradientDescent(), are compared with ls.match.",
    )


def canonical_order(prompts: Prompts) -> Int[Tensor, "B"]:
    """Sequences ranked by sum_i y_i, every second one first: two halves that are alike and fixed by the content."""
    rank = prompts.y.double().sum(-1).cpu().argsort(stable=True)
    return torch.cat([rank[0::2], rank[1::2]])


def default_contexts(N: int) -> list[int]:
    """The nine context lengths for N = 40, in proportion for other N."""
    return sorted({max(1, round(n * N / CONTEXTS[-1])) for n in CONTEXTS})
