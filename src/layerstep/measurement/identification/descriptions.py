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
from layerstep.measurement.identification.decision import AMBIGUOUS, IDENTIFIED, RangeResult, Rule, of_chosen
from layerstep.stats import interval, resamples

RESAMPLES = 100  # of the bootstrap behind a standard deviation or a support
# Of a schedule:
FEWEST_LAYERS = 4  # layers, for a line has two numbers
CLOSE = 0.15  # root mean square of the relative error of the steps, for a form to be named
SUPPORT = 0.95  # of the resamples must choose it


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Schedule(Description):
    """How many steps one layer takes: the second answer beside the filter.

    One filter runs on many schedules: Newton's iteration from a multiple of I is gradient descent at doubling steps.
    What class fits says nothing about how its steps grow with the layer; this does.

    t(l) of the best family, at layers where the step lies inside its grid: t = a + b l (linear), a + b l² (quadratic)
    or a b^l (geometric), the one with the least relative error.

    form: None when none fits to 15 %, or fewer than 95 % of the bootstrap's resamples choose it. rate: b of the nearest
    form, with its 5 % and 95 % quantiles. errors: per form the root mean square relative error.
    """

    name: ClassVar[str] = "schedule"

    family: str
    layers: Float[Tensor, "L"]
    steps: Float[Tensor, "L"]
    form: str | None
    nearest: str
    support: float
    rate: float
    interval: tuple[float, float]
    errors: dict[str, float]

    @staticmethod
    def of(residuals: Residuals, overall: RangeResult, rule: Rule, seed: int) -> Schedule | None:
        """Asked on linear tasks, of an identified class, or of the nearest of several that fit."""
        if overall.status not in (IDENTIFIED, AMBIGUOUS) or residuals.library.domain.name != "linear":
            return None
        library = residuals.library
        candidate = residuals.candidates[overall.fits[0].candidates[0]]
        usable = torch.isin(residuals.layers, torch.tensor(overall.usable, dtype=torch.float64))
        away = (residuals.values - library.krr)[usable].float()
        table = library.predictions(candidate)
        loss = (away.square().sum(-1)[:, None] - 2 * torch.einsum("lbc,tbc->ltb", away, table)) + table.square().sum(-1)
        draws = resamples(away.shape[1], RESAMPLES, seed).float()
        sums = torch.einsum("rb,ltb->rlt", torch.cat([torch.ones_like(draws[:1]), draws]), loss)
        grid = torch.tensor(candidate.steps, dtype=torch.float64)
        if candidate.family.name == "gd" and overall.nearest == "newton":  # the same filter at 2^t steps
            grid = torch.where(grid > 1, grid.log2(), 0)
        steps = grid[sums.argmin(-1)]  # [R, L], the first row of all sequences
        # The first and the last of the grid stand for anything beyond it.
        inside = (steps[0] > max(float(grid[0]), 0.0)) & (steps[0] < grid[-1])
        layers, steps = residuals.layers[usable][inside], steps[:, inside].clamp_min(float(grid[grid > 0][0]))
        if len(layers) < FEWEST_LAYERS:
            return None
        fits = {name: _fit(name, layers, steps) for name in ("linear", "quadratic", "geometric")}
        errors = torch.stack([error for error, _ in fits.values()])  # [forms, R]
        choice = errors.argmin(0)
        best = list(fits)[int(choice[0])]
        support = float((choice[1:] == choice[0]).double().mean())
        rates = fits[best][1]
        named = float(errors[choice[0], 0]) <= CLOSE and support >= SUPPORT
        low, high = interval(rates[1:], 0.9).tolist()
        return Schedule(
            family="newton" if overall.nearest == "newton" else candidate.family.name,
            layers=layers,
            steps=steps[0],
            form=best if named else None,
            nearest=best,
            support=support,
            rate=float(rates[0]),
            interval=(low, high),
            errors={name: float(error[0]) for name, (error, _) in fits.items()},
        )

    @property
    def words(self) -> str:
        """Such as: linear, 1.5 steps of newton per layer."""
        low, high = self.interval
        shown = f"{self.rate:.3g} [{low:.3g}, {high:.3g}]"
        if self.nearest == "geometric":
            twice = "doubling, " if low <= 2 <= high or abs(self.rate - 2) < 0.05 else ""
            return f"{twice}the steps of {self.family} grow {shown} times a layer"
        of = "layer" if self.nearest == "linear" else "squared layer"
        return f"{self.nearest}, {shown} steps of {self.family} per {of}"

    def lines(self) -> Iterator[str]:
        if self.form:
            yield f"schedule: {self.words}"
            return
        error = self.errors[self.nearest]
        yield f"schedule: none named; nearest {self.words}, off by {error:.0%}, support {self.support:.0%}"


def _fit(
    form: str, layers: Float[Tensor, "L"], steps: Float[Tensor, "R L"]
) -> tuple[Float[Tensor, "R"], Float[Tensor, "R"]]:
    """(root mean square relative error, rate b) of every row of steps."""
    if form == "geometric":
        X = torch.stack([torch.ones_like(layers), layers], dim=-1)
        ab = torch.linalg.lstsq(X, steps.log().T).solution
        return torch.expm1(X @ ab - steps.log().T).square().mean(0).sqrt(), ab[1].exp()
    X = torch.stack([torch.ones_like(layers), layers if form == "linear" else layers.square()], dim=-1)
    scaled = X / steps.unsqueeze(-1)  # relative errors
    ab = torch.linalg.lstsq(scaled, torch.ones_like(steps).unsqueeze(-1)).solution
    return (scaled @ ab - 1).square().mean((1, 2)).sqrt(), ab[:, 1, 0]
