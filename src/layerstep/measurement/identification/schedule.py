"""How many steps one layer takes: the second answer beside the filter.

One filter runs on many schedules: Newton's iteration from a multiple of I is gradient descent at doubling steps. What
class fits says nothing about how its steps grow with the layer; this does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.crossfit import Residuals
from layerstep.measurement.identification.decision import AMBIGUOUS, IDENTIFIED, RangeResult, Rule
from layerstep.measurement.identification.descriptions import RESAMPLES, Description
from layerstep.stats import interval, resamples

FEWEST = 4  # layers, for a line has two numbers
CLOSE = 0.15  # root mean square of the relative error of the steps, for a form to be named
SUPPORT = 0.95  # of the resamples must choose it


@dataclass(frozen=True, eq=False, kw_only=True)
class Schedule(Description):
    """t(l) of the best family, at layers where the step lies inside its grid: t = a + b l (linear), a + b l²
    (quadratic) or a b^l (geometric), the one with the least relative error.

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
        if len(layers) < FEWEST:
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
