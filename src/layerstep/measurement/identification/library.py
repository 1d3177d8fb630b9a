"""The library: every family at every bandwidth and ridge of a grid, run on the prompts at hand.

The nuisances (v, lam) are unknown because a trained network need not use the task's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import compress

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.errors import require, require_positive
from layerstep.files import digest
from layerstep.measurement.identification.cache import Kept, kept, library_identity
from layerstep.measurement.identification.families import FAMILIES, NEEDS, Family, require_families, require_sound
from layerstep.reprs import brief
from layerstep.solvers import Solver
from layerstep.solvers.system import Batch
from layerstep.tasks import Prompts, Task
from layerstep.tasks.prompts import BLOCK, as_float_tensor
from layerstep.tasks.trajectory import context_lengths
from layerstep.threads import one_per_worker

#: Where predictions are compared, for N = 40: short contexts must not dominate, as they do in SimE over all n.
CONTEXTS = (3, 6, 10, 15, 20, 25, 30, 35, 40)
#: Bandwidths and ridges tried, as multiples of the task's: all v at its lam, and the other lam at its v.
BANDWIDTHS = (0.7, 0.75, *(1.025**k for k in range(-9, 10)), 1.3, 1.36, 1.43, 1.5)
RIDGES = (0.25, 0.4, 0.63, 1.6, 2.5, 4.0, 6.5)
#: A candidate farther from KRR than this, in units of the root mean square label, diverges; the others stay below 10.
DIVERGED = 1e3


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A family at one bandwidth and ridge; `rows` are its steps in the library's table."""

    family: Family
    solver: Solver
    steps: tuple[float, ...]
    v: float
    lam: float
    rows: slice


@dataclass(frozen=True, eq=False, kw_only=True)
class Library:
    """Every prediction of every candidate on the prompts at hand, as distances A_t - KRR: table [R, B, C], C contexts.

    krr [B, C] is the exact prediction of the task. The table is computed in float64 and kept in float32, whose rounding
    is four orders below the smallest distance that decides. Families whose needs these prompts do not meet are left
    out, and candidates that diverge on them (a fixed step too long for this kernel or ridge): `remarks` says which.
    Sequences are kept in the order `order`, which their content decides: the two halves of the cross-fitting are the
    first and the last of them, and a verdict does not depend on the order they came in.
    """

    task: Task
    prompts: Prompts
    order: Int[Tensor, "B"]
    contexts: tuple[int, ...]
    families: tuple[Family, ...]
    candidates: tuple[Candidate, ...]
    table: Float[Tensor, "R B C"]
    krr: Float[Tensor, "B C"]
    hash: str  # two verdicts can be compared only when those of their libraries are equal
    remarks: tuple[str, ...] = ()

    __repr__ = brief

    @staticmethod
    def build(
        prompts: Prompts,
        task: Task,
        contexts: Sequence[int] | None = None,
        progress: Callable[[float], None] | None = None,
        *,
        families: Sequence[Family] = FAMILIES,
        bandwidths: Sequence[float] = BANDWIDTHS,
        ridges: Sequence[float] = RIDGES,
        cache: bool = False,
    ) -> Library:
        """Run all families on `prompts` in float64, the decompositions of one (v, lam) made once for all of them.

        cache: take the table from the user's cache directory, or put it there.
        """
        order = canonical_order(prompts)
        prompts = prompts.to(torch.float64, "cpu")[order]
        bandwidths, ridges = _multiples("bandwidths", bandwidths), _multiples("ridges", ridges)
        require(len(bandwidths) > 0, "bandwidths", "[]", "at least one multiple of the task's")
        given = default_contexts(prompts.N) if contexts is None else contexts
        contexts = tuple(context_lengths(given, prompts.N).tolist())
        size = float(prompts.y.square().mean().sqrt())
        allowed = "a root mean square from 1e-15 to 1e15, whose squares single precision holds"
        remedy = "Divide labels and predictions by it."
        require(size == 0 or 1e-15 <= size <= 1e15, "prompts.y", f"labels of size {size:.2g}", allowed, remedy)
        own = Batch.of(prompts, task)
        krr = torch.stack([own.system(n).exact for n in contexts], dim=-1)
        met = own.meets
        for v in bandwidths:
            met &= Batch.of(prompts, replace(task, v=v * task.v)).meets | {"unit diagonal"}
        lacking = " and ".join(NEEDS[need] for need in NEEDS if need not in met)
        require_families(families)
        for family in families:
            if family not in FAMILIES and family.needs <= met:
                require_sound(family, prompts[:4], replace(task, N=prompts.N))
        wanted = [family for family in families if family.needs <= met]
        require(len(wanted) > 0, "families", ", ".join(f.name for f in families), f"some that do not need {lacking}")
        settings = [(v * task.v, task.lam) for v in bandwidths] + [(task.v, lam * task.lam) for lam in ridges]
        grid = [
            [
                Candidate(family=family, solver=solver, steps=steps, v=v, lam=lam, rows=slice(0))
                for family in wanted
                if family.tried_at(v, lam, task)
                for solver, steps in [family.on(replace(task, N=prompts.N))]
            ]
            for v, lam in settings
        ]
        run = partial(_run, prompts, task, contexts, krr, grid, DIVERGED * size, progress)
        tried = [candidate for part in grid for candidate in part]
        # A user's own solver or kernel may change and keep its name.
        if cache and not task.fingerprints and all(candidate.family in FAMILIES for candidate in tried):
            named = [[c.family.name, repr(c.solver), c.steps, c.v, c.lam] for c in tried]
            stayed, table = kept(library_identity(prompts, named, contexts, task.to_dict()), run)
        else:
            stayed, table = run()
        candidates: list[Candidate] = []
        row = 0
        for candidate in compress(tried, stayed.tolist()):
            candidates.append(replace(candidate, rows=slice(row, row := row + len(candidate.steps))))
        there = tuple({candidate.family.name: candidate.family for candidate in candidates}.values())
        remarks = []
        if diverged := [family.name for family in wanted if family not in there]:
            remarks.append(f"{', '.join(diverged)} diverge on these prompts: not in the library, so never the answer")
        if barred := [family.name for family in families if family not in wanted]:
            remarks.append(f"{', '.join(barred)}: not in the library, for they need {lacking}, which is not so here")
        for kind in dict.fromkeys(family.kind for family in families if family not in FAMILIES):
            remarks.append(f"rates unknown for class {kind}: the calibration suite has no planted model of it")
        grid_values = [[c.family.name, repr(c.solver), c.steps, c.v, c.lam] for c in candidates]
        return Library(
            task=task,
            prompts=prompts,
            order=order,
            contexts=contexts,
            families=there,
            candidates=tuple(candidates),
            table=table,
            krr=krr,
            hash=digest([grid_values, contexts, asdict(task)]),
            remarks=tuple(remarks),
        )


def _run(
    prompts: Prompts,
    task: Task,
    contexts: Sequence[int],
    krr: Float[Tensor, "B C"],
    grid: Sequence[Sequence[Candidate]],
    limit: float,
    progress: Callable[[float], None] | None,
) -> Kept:
    """Which candidates of the grid stay within `limit` of KRR, and the table of those."""
    table = torch.empty(sum(len(candidate.steps) for tried in grid for candidate in tried), *krr.shape)
    stayed: list[bool] = []
    row = 0
    # One setting a core: workers that share the prefixes of one would wait for each other at its end.
    with one_per_worker(partial(_distances, prompts, task, contexts, krr), grid) as found:
        for done, parts in enumerate(found, start=1):
            for away in parts:
                stayed.append(bool(away.abs().amax() <= limit))  # not where it is NaN
                if stayed[-1]:
                    table[row : row + len(away)] = away.float()
                    row += len(away)
            if progress is not None:
                progress(done / len(grid))
    return torch.tensor(stayed), table[:row]


def _distances(
    prompts: Prompts, task: Task, contexts: Sequence[int], krr: Float[Tensor, "B C"], candidates: Sequence[Candidate]
) -> list[Float[Tensor, "T B C"]]:
    """A_t - KRR of candidates at one (v, lam), the systems decomposed once."""
    if not candidates:
        return []
    task = replace(task, v=candidates[0].v, sigma=math.sqrt(candidates[0].lam))
    kinds = [torch.float64 if candidate.solver.continuous else torch.long for candidate in candidates]
    steps = [torch.tensor(candidate.steps, dtype=kind) for candidate, kind in zip(candidates, kinds, strict=True)]
    found = [krr.new_empty(len(numbers), *krr.shape) for numbers in steps]
    block = max(1, BLOCK // ((prompts.N + 1) * max(prompts.N + 1, *map(len, steps))))
    for start in range(0, prompts.B, block):
        rows = slice(start, start + block)
        batch = Batch.of(prompts[rows], task)
        for column, n in enumerate(contexts):
            system = batch.system(n)
            for candidate, numbers, away in zip(candidates, steps, found, strict=True):
                away[:, rows, column] = candidate.solver.predictions(system, numbers).T - krr[rows, column]
    return found


def _multiples(argument: str, given: Sequence[float]) -> list[float]:
    """`given` as a list of finite numbers above 0."""
    numbers = as_float_tensor(argument, given, 1).tolist()
    for number in numbers:
        require_positive(**{argument: number})
    return numbers


def canonical_order(prompts: Prompts) -> Int[Tensor, "B"]:
    """Sequences ranked by sum_i y_i, every second one first: two halves that are alike and fixed by the content."""
    rank = prompts.y.double().sum(-1).cpu().argsort(stable=True)
    return torch.cat([rank[0::2], rank[1::2]])


def default_contexts(N: int) -> list[int]:
    """The nine context lengths for N = 40, in proportion for other N."""
    return sorted({max(1, round(n * N / CONTEXTS[-1])) for n in CONTEXTS})
