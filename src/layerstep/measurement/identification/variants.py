"""Which of the families of one class it is, where that can be told: a second answer, apart from the claim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from layerstep.measurement.identification.crossfit import Residuals
from layerstep.measurement.identification.decision import IDENTIFIED, RangeResult, Rule, of_chosen
from layerstep.measurement.identification.descriptions import Description
from layerstep.stats import interval, resamples


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
        usable = torch.isin(residuals.layers, torch.tensor(overall.usable, dtype=torch.float64))
        E = overall.explainable[usable]
        left, _ = of_chosen(residuals, torch.tensor([list(pair) for pair in chosen.values()]))
        left = left[:, usable]
        draws = resamples(residuals.distance.shape[1], rule.resamples, seed)
        unit = (draws @ residuals.distance[usable].T) * E
        best, *others = chosen
        gaps = {}
        for k, variant in enumerate(others, start=1):
            gap = ((draws @ (left[k] - left[0]).T) / unit).mean(1)
            low, high = interval(gap, 0.9).tolist()
            gaps[variant] = (float(gap.mean()), low, high)
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
