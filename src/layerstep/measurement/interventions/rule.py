"""The rule: when a site's match is a claim, and over which layers. Its limits come from the calibration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from layerstep.errors import require_positive

if TYPE_CHECKING:
    from layerstep.measurement.interventions.result import LayerResult


@dataclass(frozen=True, kw_only=True)
class CausalRule:
    """What a claim about a range of layers needs, at each of them, on prompts that nothing was chosen on.

    unexplained: the most of the response, 1 - c², that the match may leave, for rows and for noise of size 1.
    rival: how many times more the best other solver must leave, as must the other form; the lower end of the paired
    bootstrap's 98 % interval. gain: within [1/g, g]. p: against the baselines. accumulate: the gain of the
    prediction written at the query lies above it in the functional form, below it in the dual form. transition: the
    least share of T1 between neighbours. layers: the fewest in a row. width: the most the fitted bandwidths differ.
    """

    unexplained: float = 0.01
    rival: float = 25.0
    gain: float = 5.0
    p: float = 0.05
    accumulate: float = 0.3
    transition: float = 0.97
    layers: int = 2
    width: float = 1.15

    def __post_init__(self) -> None:
        require_positive(**dataclasses.asdict(self))

    def refuses(self, layer: LayerResult) -> str:
        """Why this site cannot be in a claim; empty where nothing speaks against it."""
        match = layer.match
        if match is None:
            return layer.reason
        if not 1 / self.gain <= match.gain <= self.gain:
            return f"the response is {match.gain:.2g} times that of the solver (1/{self.gain:g} to {self.gain:g})"
        if match.unexplained > self.unexplained:
            return f"{match.unexplained:.1%} of the response is not explained (at most {self.unexplained:.1%})"
        if match.rival_ratio < self.rival:
            return f"{match.rival} leaves only {match.rival_ratio:.2g} times as much (at least {self.rival:g})"
        if layer.p_value is not None and layer.p_value > self.p:
            return f"baselines score as well (p = {layer.p_value:.2f})"
        if layer.dose is not None and 1 - layer.dose.share > self.unexplained:
            return f"noise of size 1: {1 - layer.dose.share:.1%} is not explained"
        adds = layer.accumulate > self.accumulate
        if adds != (match.form == "functional"):
            return f"the prediction is {'added up' if adds else 'made anew'}, unlike the {match.form} form"
        return ""

    def joins(self, before: LayerResult, after: LayerResult) -> bool:
        """Whether two neighbours follow one solver: the same match, fewer steps left, and T1 between them."""
        a, b = before.match, after.match
        if a is None or b is None or (a.solver, a.form) != (b.solver, b.form) or not a.steps_left > b.steps_left:
            return False
        near = 1 / self.width <= a.bandwidth / b.bandwidth <= self.width
        return near and (before.transition is None or before.transition >= self.transition)

    def ranges(self, layers: Sequence[LayerResult]) -> list[list[LayerResult]]:
        """The claims: longest runs of neighbours that pass."""
        runs: list[list[LayerResult]] = []
        current: list[LayerResult] = []
        for layer in layers:
            passes = not self.refuses(layer)
            if passes and current and self.joins(current[-1], layer):
                current.append(layer)
                continue
            runs.append(current)
            current = [layer] if passes else []
        runs.append(current)
        return [run for run in runs if len(run) >= self.layers]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
