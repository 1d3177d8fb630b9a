"""The result of the causal instrument: per site the nearest solver and the measured operator, and the claims."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from layerstep.measurement.interventions.candidates import ALL, UNCLAIMED, own_in_words
from layerstep.measurement.interventions.checks import Dose, Swap
from layerstep.measurement.interventions.operator import Operator
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.reprs import brief, cut


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One solver in one form at a site, scored on prompts it was not chosen on.

    unexplained: 1 - c² of the response rows. ratio: that, over what the nearest one leaves, the lower end of the 98 %
    interval of a paired bootstrap over prompts. bandwidth: of GD++ gamma / eta. eta: the size of its steps, on average
    over prompts; fitted: whether it is one number for all of them, fitted, and not the solver's own.
    """

    solver: str
    form: str
    bandwidth: float
    steps_left: int
    unexplained: float
    ratio: float
    eta: float = 1.0
    fitted: bool = False

    @property
    def name(self) -> str:
        return f"{self.solver}, {self.form}"

    @property
    def claimable(self) -> bool:
        return self.solver not in UNCLAIMED


@dataclass(frozen=True, kw_only=True)
class MatchResult:
    """All that was tried at a site, the nearest first, and how its state is read.

    channels: how many directions the writer was sought in. state_explained: R², beside the inputs, of the solver's
    state after read_step steps in these channels; gain: what is read of a unit written.
    """

    ranking: tuple[Contender, ...]
    channels: int
    read_step: int
    state_explained: float
    gain: float

    @property
    def nearest(self) -> Contender:
        return self.ranking[0]

    @property
    def solver(self) -> str:
        return self.nearest.solver

    @property
    def form(self) -> str:
        return self.nearest.form

    @property
    def bandwidth(self) -> float:
        return self.nearest.bandwidth

    @property
    def steps_left(self) -> int:
        return self.nearest.steps_left

    @property
    def unexplained(self) -> float:
        return self.nearest.unexplained


@dataclass(frozen=True, kw_only=True)
class LayerResult:
    """One site. `match` is None where nothing can be tested; `reason` says why."""

    site: str
    stage: float
    match: MatchResult | None
    reason: str = ""
    p_value: float | None = None
    doses: tuple[Dose, ...] = ()
    transition: float | None = None  # T1: share explained of the next site's state
    accumulate: float = 0.0  # T3: response of the output to the prediction written at the query
    swap: Swap | None = None
    to_output: Operator | None = None
    one_layer: Operator | None = None

    __repr__ = brief

    @property
    def dose(self) -> Dose | None:
        """Noise as large as the state."""
        return next((dose for dose in self.doses if dose.size == 1), None)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Sites `first` to `last` hold the state of `solver` in `form`, with so many steps left after each.

    eta: the size of the steps, on average; fitted: whether it is one number for all prompts, and not the solver's own.
    p_value: of the layer whose state is read worst beside those of other labels.
    """

    solver: str
    form: str
    first: str
    last: str
    bandwidth: float
    steps_left: tuple[int, ...]
    eta: float
    fitted: bool
    p_value: float

    def __str__(self) -> str:
        left = ", ".join(map(str, self.steps_left))
        size = f"{self.eta:.3g} on all prompts" if self.fitted else own_in_words(self.solver)
        known = ALL[self.solver]
        kernel = "" if len(known.shapes) == 1 else f", bandwidth {self.bandwidth:.2f}"
        kernel = f", gamma {self.bandwidth:.2g} of its step size" if known.changing else kernel
        return (
            f"{self.first} to {self.last}: {self.solver} in its {self.form} form{kernel}, step size {size}, "
            f"steps left {left}"
        )


@dataclass(frozen=True, kw_only=True)
class CausalResult:
    """Which solver the layers run, by interventions; `lines()` says it in words, `to_dict()` in JSON."""

    layers: tuple[LayerResult, ...]
    rule: CausalRule
    facts: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        tested = sum(layer.match is not None for layer in self.layers)
        said = "; ".join(map(str, self.claims)) or "no solver"
        return cut(f"CausalResult({said}; {tested} of {len(self.layers)} sites tested)")

    @property
    def claims(self) -> tuple[Claim, ...]:
        found = []
        for run in self.rule.ranges(self.layers):
            matches = [layer.match for layer in run if layer.match is not None]
            sizes = [match.nearest for match in matches if match.nearest.fitted] or [each.nearest for each in matches]
            found.append(
                Claim(
                    solver=matches[0].solver,
                    form=matches[0].form,
                    first=run[0].site,
                    last=run[-1].site,
                    bandwidth=sum(match.bandwidth for match in matches) / len(matches),
                    steps_left=tuple(match.steps_left for match in matches),
                    eta=sum(each.eta for each in sizes) / len(sizes),
                    fitted=sizes[0].fitted,
                    p_value=max(layer.p_value or 0.0 for layer in run),
                )
            )
        return tuple(found)

    @property
    def solver(self) -> str | None:
        """The solver of the longest claim, None without one."""
        longest = max(self.claims, key=lambda claim: len(claim.steps_left), default=None)
        return None if longest is None else longest.solver

    @property
    def form(self) -> str | None:
        longest = max(self.claims, key=lambda claim: len(claim.steps_left), default=None)
        return None if longest is None else longest.form

    @property
    def operator(self) -> dict[str, Operator]:
        """The measured operator of every site that has one: from its state to the prediction read one layer on."""
        return {layer.site: layer.one_layer for layer in self.layers if layer.one_layer is not None}

    def lines(self) -> list[str]:
        """The claims or why there is none, then a line per site."""
        claims = [str(claim) for claim in self.claims]
        tested = [layer for layer in self.layers if layer.match is not None]
        if not tested:
            reasons = "; ".join(sorted({layer.reason for layer in self.layers}))
            return [f"Interventions: cannot be tested, because {reasons}."]
        if not claims:
            claims = ["no layers follow one of the solvers tried."]
        return [f"Interventions: {claim}" for claim in claims] + [_line(layer, self.rule) for layer in self.layers]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    @staticmethod
    def from_dict(data: dict[str, Any], rule: CausalRule | None = None) -> CausalResult:
        """A result that `to_dict` gave, under its own rule or another."""
        layers = tuple(_layer(each) for each in data["layers"])
        return CausalResult(layers=layers, rule=rule or CausalRule(**data["rule"]), facts=data["facts"])

    def to_dict(self) -> dict[str, Any]:
        return {
            "solver": self.solver,
            "form": self.form,
            "claims": [dataclasses.asdict(claim) for claim in self.claims],
            "layers": [dataclasses.asdict(layer) for layer in self.layers],
            "rule": self.rule.to_dict(),
            "facts": self.facts,
        }


def _layer(data: dict[str, Any]) -> LayerResult:
    kinds = {"match": _match, "swap": Swap, "to_output": Operator, "one_layer": Operator}
    parts: dict[str, Any] = {name: None if data[name] is None else kind(**data[name]) for name, kind in kinds.items()}
    parts["doses"] = tuple(Dose(**each) for each in data["doses"])
    return LayerResult(**(data | parts))


def _match(ranking: Sequence[dict[str, Any]], **rest: Any) -> MatchResult:
    return MatchResult(ranking=tuple(Contender(**each) for each in ranking), **rest)


def _line(layer: LayerResult, rule: CausalRule) -> str:
    if layer.match is None:
        return f"  {layer.site}: cannot be tested, because {layer.reason}"
    match, against = layer.match, rule.refuses(layer)
    found = f"  {layer.site}: nearest {match.solver}, {match.form}, {match.steps_left} steps left"
    found += f", {1 - match.unexplained:.1%} of the response explained, gain {match.gain:.2f}"
    return found + (f"; no claim: {against}" if against else "")
