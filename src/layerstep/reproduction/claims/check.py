"""A check of a claim, and what decides it: limits, and how far another seed may move a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, nan, sqrt

from layerstep.reproduction.numbers import DISTRIBUTIONS, SEEDS, TITLES, ModelNumbers, Models
from layerstep.reproduction.reference import PAPER_STEPS, seed_variation

Measure = Callable[[ModelNumbers], float]


@dataclass(frozen=True, kw_only=True)
class Check:
    """What is seen of a model, and whether it is as claimed; None: another seed or other prompts might say otherwise.

    `value` was compared with `limit`; another seed moves it by up to `chance` (infinite: nobody knows by how much).
    NaN where a check is not of this kind.
    """

    of: str
    seen: str
    supported: bool | None
    value: float = nan
    limit: float = nan
    chance: float = nan

    @property
    def mark(self) -> str:
        return {True: "yes", False: "no", None: "unsure"}[self.supported]

    @property
    def sentence(self) -> str:
        return f"{self.of}: {self.seen}" if self.of else self.seen


def by_inputs(models: Models) -> list[ModelNumbers]:
    return [models[name] for name in DISTRIBUTIONS if name in models]


def title_of(model: ModelNumbers) -> str:
    return TITLES[model.setting] + length_words(model.trained_steps)


def length_words(steps: int) -> str:
    """How long a model was trained, where that is shorter than in the paper."""
    return f" ({steps:,} steps)" if steps < PAPER_STEPS else ""


def linearity(solver: str) -> Measure:
    return lambda model: model.solvers[solver].linearity


r2_of = linearity("richardson")


def share_won(model: ModelNumbers) -> float:
    return model.share_won


def over_krr(model: ModelNumbers) -> float:
    return model.over_krr


def above(value: float, limit: float, chance: float) -> bool | None:
    """Whether a value is above the limit; None where chance may have it on the other side."""
    return value > limit if abs(value - limit) > chance else None


def below(value: float, limit: float, chance: float) -> bool | None:
    return value <= limit if abs(value - limit) > chance else None


def every(supported: Sequence[bool | None]) -> bool | None:
    """Whether all are: one that is not decides, else one that is inconclusive."""
    return False if False in supported else None if None in supported else True


def two_runs(models: Models, of: Measure, comparisons: int = 1) -> float:
    """How far two runs may lie apart."""
    return seed_variation([of(models[name]) for name in SEEDS if name in models], comparisons)


def one_run(models: Models, of: Measure) -> float:
    """How far one run may lie from what runs have on average: t s, where two differ by up to t s √2."""
    return two_runs(models, of) / sqrt(2)


def limited(of: str, seen: str, value: float, limit: float, chance: float) -> Check:
    """Whether a value is above a limit, whatever the seed."""
    supported = above(value, limit, chance)
    return Check(of=of, seen=seen + moves(chance), supported=supported, value=value, limit=limit, chance=chance)


def less(title: str, seen: str, a: ModelNumbers, b: ModelNumbers, of: Measure, models: Models) -> Check:
    """Whether `of` is smaller for a than for b; None where two seeds may differ as much."""
    value, limit, chance = of(a), of(b), two_runs(models, of)
    seen += f"; two seeds differ by up to {chance:.3g}" if isfinite(chance) else "; how far two seeds differ is unknown"
    supported = limit > value if abs(limit - value) > chance else None
    return Check(of=title, seen=seen, supported=supported, value=value, limit=limit, chance=chance)


def moves(chance: float) -> str:
    return f"; a seed moves it by up to {chance:.3g}" if isfinite(chance) else "; how far a seed moves it is unknown"
