"""What a verdict describes beside its claim: frozen values, each with its lines of text and its JSON.

A new description is a class here, or in a module of its own, with `of(residuals, overall, rule, seed)`; `identify`
asks those in `pipeline.DESCRIPTIONS`. None stands for: nothing to say about this model.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.crossfit import Residuals
from layerstep.measurement.identification.decision import IDENTIFIED, RangeResult, Rule, of_chosen
from layerstep.stats import interval, resamples

RESAMPLES = 100  # of the bootstrap behind a standard deviation or a support


class Description(ABC):
    """One thing measured beside the claim."""

    name: ClassVar[str]

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Lines of the verdict's text."""

    def cannot_say(self) -> Iterator[str]:
        """Claims that this leaves open."""
        yield from ()

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return as_json(self)


def as_json(value: Any) -> Any:
    """JSON values of tensors and dataclasses, internal fields left out; a number that is not finite is null."""
    if isinstance(value, Tensor):
        return as_json(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: as_json(getattr(value, f.name)) for f in fields(value) if not f.metadata.get("internal")}
    if isinstance(value, (tuple, list)):
        return [as_json(item) for item in value]
    return value


def _gaps(
    residuals: Residuals, overall: RangeResult, rule: Rule, seed: int, chosen: Sequence[tuple[int, int]]
) -> Iterator[tuple[float, float, float]]:
    """The scores of the other candidates above that of the first, with their 5 % and 95 % quantiles."""
    usable = torch.isin(residuals.layers, torch.tensor(overall.usable, dtype=torch.float64))
    assert overall.explainable is not None
    left, _ = of_chosen(residuals, torch.tensor([list(pair) for pair in chosen]))
    left = left[:, usable]
    draws = resamples(residuals.distance.shape[1], rule.resamples, seed)
    total = draws @ residuals.distance[usable].T
    for other in left[1:]:
        gap = ((draws @ (other - left[0]).T) / total / overall.explainable[usable]).mean(1)
        low, high = interval(gap, 0.9).tolist()
        yield float(gap.mean()), low, high


@dataclass(frozen=True, kw_only=True)
class RowSums(Description):
    """Within an identified class: does the trajectory use row sums? None: undecided, or not compared.

    difference = score without - score with, and its 5 % and 95 % quantiles.
    """

    name: ClassVar[str] = "row sums"

    row_sums: bool | None
    difference: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)

    @staticmethod
    def of(residuals: Residuals, overall: RangeResult, rule: Rule, seed: int) -> RowSums | None:
        """Asked only of an identified class that has both kinds of family."""
        families = {family.name: family for family in residuals.library.families}
        there = {fit.family: fit.candidates for fit in overall.fits}
        pairs = [(f.name, f.without_row_sums) for f in families.values() if f.without_row_sums]
        pairs = [(name, plain) for name, plain in pairs if families[name].kind == overall.solver]
        if not pairs:
            return None
        if not all(name in there for name in pairs[0]):
            return RowSums(row_sums=None)
        gap, low, high = next(_gaps(residuals, overall, rule, seed, [there[str(name)] for name in pairs[0]]))
        decided = low > 0 or high < 0
        return RowSums(row_sums=low > 0 if decided else None, difference=gap, interval=(low, high))

    @property
    def status(self) -> str:
        return {True: "row sums", False: "no row sums", None: "undecided"}[self.row_sums]

    def lines(self) -> Iterator[str]:
        if math.isfinite(self.difference):
            low, high = self.interval
            shown = f"score without - with: {self.difference:.4f} [{low:.4f}, {high:.4f}]"
            yield f"preconditioner: {self.status} ({shown})"

    def cannot_say(self) -> Iterator[str]:
        if self.row_sums is None:
            yield "whether row sums are used: uniform, gaussian or clustered inputs would tell better than the sphere"


@dataclass(frozen=True, kw_only=True)
class Variants(Description):
    """The variants of an identified class that the data allow, the best first: `gaps` has their scores above its own,
    with 5 % and 95 % quantiles. Decided when the first leaves less than every other in 95 % of the resamples."""

    name: ClassVar[str] = "variant"

    best: str
    gaps: dict[str, tuple[float, float, float]]
    decided: bool

    @staticmethod
    def of(residuals: Residuals, overall: RangeResult, rule: Rule, seed: int) -> Variants | None:
        """Asked only of an identified class that has variants."""
        families = {family.name: family for family in residuals.library.families}
        chosen = {}  # per variant its best family
        for fit in overall.fits:
            if fit.kind == overall.solver and (variant := families[fit.family].variant):
                chosen.setdefault(variant, fit.candidates)
        if overall.status != IDENTIFIED or len(chosen) < 2 or overall.explainable is None:
            return None
        best, *others = chosen
        gaps = dict(zip(others, _gaps(residuals, overall, rule, seed, list(chosen.values())), strict=True))
        return Variants(best=best, gaps=gaps, decided=all(low > 0 for _, low, _ in gaps.values()))

    def lines(self) -> Iterator[str]:
        near = [variant for variant, (_, low, _) in self.gaps.items() if low <= 0]
        if self.decided:
            rival = min(self.gaps, key=lambda variant: self.gaps[variant][1])
            gap, low, high = self.gaps[rival]
            yield f"variant: {self.best} ({rival} leaves {gap:.4f} [{low:.4f}, {high:.4f}] more)"
        else:
            yield f"variant: undecided between {' and '.join([self.best, *near])}"

    def cannot_say(self) -> Iterator[str]:
        if not self.decided:
            yield "which variant of its class it is: more sequences, or layers farther from KRR, would tell"


@dataclass(frozen=True, eq=False, kw_only=True)
class Slopes(Description):
    """g [L] = slope of log max(t*, .5) on log n, t*(l, n) the best step of preconditioned Richardson at that n alone.

    0 for a normalised iteration, about 1 for a fixed step or a ridge. A wrong bandwidth imitates the second, so g
    is given at the fitted v and at its neighbours on the grid: v [K], g [K, L], sd [K, L] by bootstrap.
    """

    name: ClassVar[str] = "slopes"

    fitted: float
    v: Float[Tensor, "K"]
    g: Float[Tensor, "K L"]
    sd: Float[Tensor, "K L"]

    @staticmethod
    def of(residuals: Residuals, overall: RangeResult, rule: Rule, seed: int) -> Slopes | None:
        """None with fewer than three long contexts, or without Richardson in the library."""
        library = residuals.library
        n = torch.tensor(library.contexts, dtype=torch.float64)
        long = n >= 0.15 * n[-1]
        fits = [fit for fit in overall.fits if fit.family == "richardson"]
        if not fits or int(long.sum()) < 3:
            return None
        centre = residuals.candidates[fits[0].candidates[0]]
        grid = sorted({c.v for c in library.candidates})
        place = grid.index(centre.v)
        ours = {c.v: c for c in library.candidates if c.family.name == "richardson" and c.lam == library.task.lam}
        near = [ours[v] for v in grid[max(place - 1, 0) : place + 2] if v in ours]
        log_n = n[long].log() - n[long].log().mean()
        away = (residuals.values - library.krr).float()
        draws = resamples(away.shape[1], RESAMPLES, seed).float()
        g, sd = [], []
        for candidate in near:
            steps = torch.tensor(candidate.steps, dtype=torch.float64).clamp_min(0.5).log()
            table = library.table[candidate.rows]
            loss = torch.stack([(layer - table).square()[..., long] for layer in away])  # [L, T, B, n]
            sums = torch.einsum("rb,ltbn->rltn", torch.cat([torch.ones_like(draws[:1]), draws]), loss)
            slope = steps[sums.argmin(2)] @ log_n / log_n.square().sum()  # [R, L]
            g.append(slope[0])
            sd.append(slope[1:].std(0))
        at = torch.tensor([candidate.v for candidate in near], dtype=torch.float64)
        return Slopes(fitted=centre.v, v=at, g=torch.stack(g), sd=torch.stack(sd))

    def lines(self) -> Iterator[str]:
        middle = self.g.shape[1] // 2
        shown = ", ".join(
            f"{g[middle]:.2f} ± {sd[middle]:.2f} at v = {v:.3g}"
            for v, g, sd in zip(self.v, self.g, self.sd, strict=True)
        )
        yield f"step against context, slope g at the middle layer: {shown} (0: normalised, 1: fixed step)"
