"""The rule: when a site's match is a claim, and over which layers. Its limits come from the calibration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from layerstep.errors import require_positive
from layerstep.measurement.interventions.candidates import ALL, LINEAR

if TYPE_CHECKING:
    from layerstep.measurement.interventions.result import Contender, LayerResult, MatchResult


@dataclass(frozen=True, kw_only=True)
class CausalRule:
    """What a claim about a range of layers needs, at each of them, on prompts that nothing was chosen on.

    unexplained: the most of the response rows, 1 - c², that the nearest may leave; noise: the same of noise as large as
    the state. rival: how many times more each other solver must leave, as must the other form; the lower end of the
    paired bootstrap's 98 % interval. between: the same of what lies half-way between two solvers. gain: what is read
    of a unit written lies within [1/g, g]. readable: the least R² of the state beside the inputs. shift: the most that
    noise as large as the state moves a token, in natural units. p: against states of other labels. adds, replaces: the
    gain of the prediction written at the query, at least in the functional form, at most in the dual form.
    transition: the least share of T1 between neighbours. layers: the fewest in a row, each with fewer steps left than
    the one before; where a step takes several layers, some have as many. width: the most the fitted bandwidths and
    sizes of steps differ.
    """

    unexplained: float = 0.002
    noise: float = 0.05
    rival: float = 2.0
    between: float = 1.0
    gain: float = 3.0
    readable: float = 0.98
    shift: float = 5.0
    p: float = 0.05
    adds: float = 0.9
    replaces: float = 0.8
    transition: float = 0.99
    layers: int = 2
    width: float = 1.15

    def __post_init__(self) -> None:
        require_positive(**dataclasses.asdict(self))

    def refuses(self, layer: LayerResult) -> str:
        """Why this site cannot be in a claim; empty where nothing speaks against it."""
        match = layer.match
        if match is None:
            return layer.reason
        if match.unexplained > self.unexplained:
            return f"{match.unexplained:.1%} of the response is not explained (at most {self.unexplained:.1%})"
        if not match.nearest.claimable:
            return f"it is half-way between two solvers ({match.nearest.name})"
        between, needed = self.closest(layer, claimable=False)
        if between is not None and between.ratio < needed:
            return f"what lies half-way to another solver leaves as little ({between.ratio:.2g} times)"
        rival, needed = self.closest(layer, claimable=True)
        if rival is not None and rival.ratio < needed:
            return f"{rival.name} leaves only {rival.ratio:.2g} times as much (at least {needed:g})"
        if match.state_explained < self.readable:
            return f"only {match.state_explained:.0%} of the state can be read (at least {self.readable:.0%})"
        if not 1 / self.gain <= match.gain <= self.gain:
            return f"of a unit written {match.gain:.2g} are read (1/{self.gain:g} to {self.gain:g})"
        if layer.p_value is not None and layer.p_value > self.p:
            return f"states of other labels are read as well (p = {layer.p_value:.2f})"
        dose = layer.dose
        if dose is not None and 1 - dose.share > self.noise:
            return f"noise of size 1: {1 - dose.share:.1%} is not explained (at most {self.noise:.1%})"
        if dose is not None and dose.shift > self.shift:
            return f"noise of size 1 lies {dose.shift:.2g} times as far as a natural state (at most {self.shift:g})"
        if match.form == "functional" and layer.accumulate < self.adds:
            return f"the prediction is made anew, unlike the functional form (gain {layer.accumulate:.2f})"
        if match.form == "dual" and layer.accumulate > self.replaces:
            return f"the prediction is added up, unlike the dual form (gain {layer.accumulate:.2f})"
        return ""

    def closest(self, layer: LayerResult, *, claimable: bool) -> tuple[Contender | None, float]:
        """Of the other solvers and forms, or of what lies between two, the one that refutes the match most nearly,
        and how many times as much it must leave. One in a form that T3 excludes must not leave much less."""
        match = layer.match
        assert match is not None
        excluded = {"functional"} if layer.accumulate <= self.replaces else set()
        excluded |= {"dual"} if layer.accumulate >= self.adds else set()
        least = self.rival if claimable else self.between
        others = [each for each in match.ranking if each.claimable == claimable and each.name != match.nearest.name]
        others = [each for each in others if ALL[each.solver].special != match.solver]  # it holds the match itself
        needed = {each: 1 / self.rival if each.form in excluded else least for each in others}
        found = min(others, key=lambda each: each.ratio / needed[each], default=None)
        return found, least if found is None else needed[found]

    def joins(self, before: LayerResult, after: LayerResult) -> bool:
        """Whether two neighbours follow one solver: the same match, no more steps left, and T1 between them."""
        a, b = before.match, after.match
        if a is None or b is None or _name(a) != _name(b) or a.steps_left < b.steps_left:
            return False
        near = all(1 / self.width <= ratio <= self.width for ratio in (a.bandwidth / b.bandwidth, _eta(a) / _eta(b)))
        return near and before.transition is not None and before.transition >= self.transition

    def ranges(self, layers: Sequence[LayerResult]) -> list[list[LayerResult]]:
        """The claims: longest runs of neighbours that pass.

        Where two neighbours pass with the same solver and do not join, the layers between take other steps than it
        does, and neither side is claimed.
        """
        runs: list[list[LayerResult]] = [[]]
        broken: set[str] = set()
        for layer in layers:
            before = runs[-1][-1] if runs[-1] else None
            if self.refuses(layer):
                runs.append([])
            elif before is None or self.joins(before, layer):
                runs[-1].append(layer)
            else:
                if before.match and layer.match and _name(before.match) == _name(layer.match):
                    broken |= {before.site, layer.site}
                runs.append([layer])
        whole = [run for run in runs if not any(layer.site in broken for layer in run)]
        return [run for run in whole if _steps(run) >= max(self.layers, _fewest(run))]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def _steps(run: Sequence[LayerResult]) -> int:
    """How many numbers of steps left there are: between two halves of a step it is the same."""
    return len({layer.match.steps_left for layer in run if layer.match is not None})


def _fewest(run: Sequence[LayerResult]) -> int:
    """On linear tasks, where the size of the steps is fitted, three in the functional form: 1 - (1 - as)(1 - bs) is, up
    to its gain, two steps of one size, whatever a and b are."""
    first = run[0].match if run else None
    if first is None or first.solver not in LINEAR:
        return 0
    return 3 if first.nearest.fitted and first.form == "functional" else 0


def _eta(match: MatchResult) -> float:
    return match.nearest.eta


def _name(match: MatchResult) -> tuple[str, str]:
    return match.solver, match.form
