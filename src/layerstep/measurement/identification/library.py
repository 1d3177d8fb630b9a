"""The library: every family at every bandwidth and ridge of a grid, run on the prompts at hand.

The nuisances (v, lam) are unknown because a trained network need not use the task's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import partial
from itertools import compress
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.errors import require
from layerstep.files import digest
from layerstep.measurement.identification.cache import Tensors, kept, library_identity
from layerstep.measurement.identification.domains import Domain, at_length, domain_of
from layerstep.measurement.identification.families import NEEDS, Family, require_families, require_sound
from layerstep.reprs import brief
from layerstep.solvers import Solver
from layerstep.solvers.system import Batch
from layerstep.tasks import LinearRegression, Prompts, Task
from layerstep.tasks.prompts import BLOCK
from layerstep.tasks.trajectory import context_lengths
from layerstep.threads import one_per_worker

#: A candidate farther from KRR than this, in units of the root mean square label, diverges; the others stay below 10.
DIVERGED = 1e3


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A family at one bandwidth and ridge; `rows` are its steps in the library's table. parts: of one between the
    grid's ridges, the rows it is made of and their weights."""

    family: Family
    solver: Solver
    steps: tuple[float, ...]
    v: float
    lam: float
    rows: slice
    parts: tuple[tuple[slice, float], ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Library:
    """Every prediction of every candidate on the prompts at hand, as distances A_t - KRR: table [R, B, C], C contexts.

    krr [B, C] is the exact prediction of the task, or another anchor that was given: it enters only the unit that
    distances are measured in. weight [C], of at most 1, has multiplied both: where one context length would carry most
    of the distance, as n near d does on linear tasks, its share is brought down to the median one.
    The table is computed in float64 and kept in float32, whose rounding is four orders below the smallest distance that
    decides. Families whose needs these prompts do not meet are left out, and candidates that diverge on them (a fixed
    step too long for this kernel or ridge): `remarks` says which.
    Sequences are kept in the order `order`, which their content decides: the two halves of the cross-fitting are the
    first and the last of them, and a verdict does not depend on the order they came in.
    """

    task: Any
    prompts: Prompts
    order: Int[Tensor, "B"]
    contexts: tuple[int, ...]
    families: tuple[Family, ...]
    candidates: tuple[Candidate, ...]
    table: Float[Tensor, "R B C"]
    krr: Float[Tensor, "B C"]
    weight: Float[Tensor, "C"]
    hash: str  # two verdicts can be compared only when those of their libraries are equal
    remarks: tuple[str, ...] = ()

    __repr__ = brief

    def predictions(self, candidate: Candidate, steps: Any = slice(None)) -> Float[Tensor, "T B C"]:
        """A_t - KRR at these of its steps, by their places; all by default."""
        if not candidate.parts:
            return self.table[candidate.rows][steps]
        return torch.stack([weight * self.table[rows][steps] for rows, weight in candidate.parts]).sum(0)

    @property
    def domain(self) -> Domain:
        """The kind of task."""
        return domain_of(self.task)

    @staticmethod
    def build(
        prompts: Prompts,
        task: Any,
        contexts: Sequence[int] | None = None,
        progress: Callable[[float], None] | None = None,
        *,
        families: Sequence[Family] | None = None,
        bandwidths: Sequence[float] | None = None,
        ridges: Sequence[float] | None = None,
        anchor: Float[Tensor, "B C"] | None = None,
        cache: bool = False,
    ) -> Library:
        """Run all families on `prompts` in float64, the decompositions of one (v, lam) made once for all of them.

        anchor: in place of exact KRR. cache: take the table from the user's cache directory, or put it there.
        """
        order = canonical_order(prompts)
        prompts = prompts.to(torch.float64, "cpu")[order]
        domain, task = domain_of(task), at_length(task, prompts.N)
        settings = domain.settings(task, bandwidths, ridges)
        contexts = tuple(context_lengths(contexts or domain.contexts(task, prompts.N), prompts.N).tolist())
        size = float(prompts.y.square().mean().sqrt())
        allowed = "a root mean square from 1e-15 to 1e15, whose squares single precision holds"
        remedy = "Divide labels and predictions by it."
        require(size == 0 or 1e-15 <= size <= 1e15, "prompts.y", f"labels of size {size:.2g}", allowed, remedy)
        own = Batch.of(prompts, task)
        krr = torch.stack([own.system(n).exact for n in contexts], dim=-1) if anchor is None else anchor[order]
        met = own.meets
        for v in dict.fromkeys(v for v, _ in settings):
            met &= Batch.of(prompts, task, v).meets | {"unit diagonal"}
        lacking = " and ".join(NEEDS[need] for need in NEEDS if need not in met)
        known = domain.families(task)
        families = known if families is None else families
        require_families(families)
        for family in families:
            if family not in known and family.needs <= met:
                require_sound(family, prompts[:4], task)
        wanted = [family for family in families if family.needs <= met]
        require(len(wanted) > 0, "families", ", ".join(f.name for f in families), f"some that do not need {lacking}")
        grid = [
            [
                Candidate(family=family, solver=solver, steps=steps, v=v, lam=lam, rows=slice(0))
                for family in wanted
                if family.tried_at(v, lam, task)
                for solver, steps in [family.on(task)]
            ]
            for v, lam in settings
        ]
        run = partial(_run, prompts, task, contexts, krr, grid, DIVERGED * size, progress)
        tried = [candidate for part in grid for candidate in part]
        if cache and anchor is None and _is_ours(task) and all(candidate.family in known for candidate in tried):
            named = [[c.family.name, repr(c.solver), c.steps, c.v, c.lam] for c in tried]
            made = kept("library", library_identity(prompts, named, contexts, task.to_dict()), run)
        else:
            made = run()
        stayed, table = made["stayed"], made["table"]
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
        for kind in dict.fromkeys(family.kind for family in families if family not in known):
            remarks.append(f"rates unknown for class {kind}: the calibration suite has no planted model of it")
        grid_values = [[c.family.name, repr(c.solver), c.steps, c.v, c.lam] for c in candidates]
        weight = torch.ones(len(contexts), dtype=krr.dtype)
        if domain.even:
            weight = _evened(table)
            table = table * weight.float()
        facts = asdict(task) if is_dataclass(task) and not isinstance(task, type) else {"task": repr(task)}
        return Library(
            task=task,
            prompts=prompts,
            order=order,
            contexts=contexts,
            families=there,
            candidates=tuple(candidates),
            table=table,
            krr=krr * weight,
            weight=weight,
            hash=digest([grid_values, contexts, facts]),
            remarks=tuple(remarks),
        )


def _is_ours(task: Any) -> bool:
    """Whether names say all about it: a user's own task or kernel may change and keep its name."""
    return type(task) in (Task, LinearRegression) and not getattr(task, "fingerprints", None)


def _evened(table: Float[Tensor, "R B C"]) -> Float[Tensor, "C"]:
    """Per context length the root of the median share of the distance over its own share, of at most 1; shares are
    means over the library."""
    squares = table.square().mean(1).double()
    total = squares.sum(-1, keepdim=True)
    share = (squares / total)[total.squeeze(-1) > 0].mean(0)
    if not bool(share.isfinite().all()) or float(share.max()) <= 0:
        return torch.ones(table.shape[-1], dtype=torch.float64)
    return (share.median() / share.clamp_min(1e-300)).sqrt().clamp_max(1.0)


def _run(
    prompts: Prompts,
    task: Any,
    contexts: Sequence[int],
    krr: Float[Tensor, "B C"],
    grid: Sequence[Sequence[Candidate]],
    limit: float,
    progress: Callable[[float], None] | None,
) -> Tensors:
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
    return {"stayed": torch.tensor(stayed), "table": table[:row]}


def _distances(
    prompts: Prompts, task: Any, contexts: Sequence[int], krr: Float[Tensor, "B C"], candidates: Sequence[Candidate]
) -> list[Float[Tensor, "T B C"]]:
    """A_t - KRR of candidates at one (v, lam), the systems decomposed once."""
    if not candidates:
        return []
    v, lam = candidates[0].v, candidates[0].lam
    kinds = [torch.float64 if candidate.solver.continuous else torch.long for candidate in candidates]
    steps = [torch.tensor(candidate.steps, dtype=kind) for candidate, kind in zip(candidates, kinds, strict=True)]
    found = [krr.new_empty(len(numbers), *krr.shape) for numbers in steps]
    block = max(1, BLOCK // ((prompts.N + 1) * max(prompts.N + 1, *map(len, steps))))
    for start in range(0, prompts.B, block):
        rows = slice(start, start + block)
        batch = Batch.of(prompts[rows], task, v, lam)
        for column, n in enumerate(contexts):
            system = batch.system(n)
            for candidate, numbers, away in zip(candidates, steps, found, strict=True):
                away[:, rows, column] = candidate.solver.predictions(system, numbers).T - krr[rows, column]
    return found


def canonical_order(prompts: Prompts) -> Int[Tensor, "B"]:
    """Sequences ranked by sum_i y_i, every second one first: two halves that are alike and fixed by the content."""
    rank = prompts.y.double().sum(-1).cpu().argsort(stable=True)
    return torch.cat([rank[0::2], rank[1::2]])
