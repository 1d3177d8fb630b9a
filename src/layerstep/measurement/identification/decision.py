"""The decision rule: which class do these layers follow, or none.

For a range of layers and a family A, with the bandwidth and ridge of A chosen on the other half of the sequences:

    U_l = |M_l - A_t|² / |M_l - KRR|²        the unexplained fraction: 0 the same predictions, 1 no better than KRR
    V_l = <r, r^> / |M_l - KRR|²             the structured remainder: what features still predict of r = M_l - A_t
    E_l = 1 - min_A (U_l - V_l)              the explainable share; a layer is usable when live and E_l > .1
    score_A = mean_l U_l / E_l,  V_A = mean_l V_l / E_l    over usable layers
    margin = the smallest 1st percentile of score_B - score_A over classes B, by a paired bootstrap of sequences

identified: V_A <= v_limit, margin >= margin_limit, mean U <= u_limit. U alone cannot decide: a true solver plus noise
leaves more than a false one fitted to a noiseless model. V does: a wrong family leaves a pattern, noise leaves none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerstep.errors import as_float, quoted, require, require_choice, require_count
from layerstep.measurement.identification.crossfit import LIVE, Residuals
from layerstep.reprs import brief
from layerstep.stats import interval, resamples

#: A layer whose fitted step is below this share of an earlier layer's goes back.
FALL = 0.85
IDENTIFIED, AMBIGUOUS, RESEMBLES, NONE, NOTHING = "identified", "ambiguous", "resembles", "none", "nothing to identify"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The thresholds, set on one seed of the calibration suite and tested on others (see the calibration record)."""

    v_limit: float = 0.015
    ridge_limit: float = 0.005  # of V for class ridge: the ridge path of another kernel comes nearer than v_limit
    v_resembles: float = 0.05
    margin_limit: float = 0.01
    u_limit: float = 0.8
    live: float = LIVE  # mean squared distance to KRR, in units of the mean square label
    explainable: float = 0.1
    label_share: float = 0.05  # of a layer's variance predicted from the labels; below it the layer ignores them
    resamples: int = 400

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            require(math.isfinite(as_float(value)), each.name, quoted(value), "a finite number")
        require_count(100, 10**6, resamples=self.resamples)

    def limit_of(self, kind: str | None) -> float:
        """The largest V at which this class may be claimed."""
        return min(self.v_limit, self.ridge_limit) if kind == "ridge" else self.v_limit


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One family on one range: bandwidth and ridge chosen on each half, and per layer what it leaves."""

    family: str
    kind: str
    v: tuple[float, float]
    lam: tuple[float, float]
    score: float
    V: float
    score_interval: tuple[float, float]
    V_interval: tuple[float, float]
    step: Float[Tensor, "L"]  # mean over the two halves of the chosen t
    at_cap: Bool[Tensor, "L"]  # the last t of the grid was chosen
    U_layer: Float[Tensor, "L"]
    V_layer: Float[Tensor, "L"]
    candidates: tuple[int, int] = field(metadata={"internal": True})  # their places among the candidates

    __repr__ = brief


@dataclass(frozen=True, kw_only=True)
class RangeResult:
    """The result on one range of layers. `solver` is a class only when the status is "identified"."""

    status: str
    solver: str | None
    layers: tuple[float, ...]
    usable: tuple[float, ...]
    reason: str
    nearest: str | None = None
    family: str | None = None
    U: float = float("nan")
    V: float = float("nan")
    margin: float = float("nan")
    rival: str | None = None
    tied: tuple[str, ...] = ()
    explainable: Float[Tensor, "L"] | None = None
    linear: bool = field(default=True, metadata={"internal": True})  # is the nearest class, in the labels?
    fits: tuple[Fit, ...] = ()  # best first

    __repr__ = brief

    def fit(self, family: str) -> Fit:
        """The fit of one family."""
        found = {fit.family: fit for fit in self.fits}
        require_choice("family", family, found)
        return found[family]

    def withdrawn(self, reason: str) -> RangeResult:
        """The same numbers, without the claim."""
        return replace(self, status=NONE, solver=None, reason=reason)


def live_layers(residuals: Residuals, rule: Rule) -> Bool[Tensor, "L"]:
    """Layers far enough from KRR, and that see the labels, to say anything about the way there."""
    unit = residuals.library.prompts.y.square().mean() * len(residuals.library.contexts)
    return (residuals.distance.mean(1) > rule.live * unit) & (residuals.label_share > rule.label_share)


def left_out(residuals: Residuals, rule: Rule) -> Iterator[str]:
    """Words on the layers that cannot be tested."""
    blind = residuals.label_share <= rule.label_share
    near = ~live_layers(residuals, rule) & ~blind
    if blind.any():
        yield f"{numbered(residuals.layers[blind])} ignore the labels, as far as a linear reading can see: left out"
    if near.any():
        yield f"{numbered(residuals.layers[near])} are at exact KRR: nothing to tell solvers apart"


def out_of_order(residuals: Residuals, overall: RangeResult) -> Iterator[str]:
    """Words on usable layers that a solver run in depth would not make: steps that fall, predictions that repeat."""
    usable = torch.isin(residuals.layers, torch.tensor(overall.usable, dtype=torch.float64))
    if overall.status not in (IDENTIFIED, AMBIGUOUS) or int(usable.sum()) < 2:
        return
    layers, best = residuals.layers[usable], overall.fits[0]
    falls = torch.ones_like(layers, dtype=torch.bool)
    for h, q in enumerate(best.candidates):  # on both halves of the sequences, or it may be chance
        steps = torch.tensor(residuals.candidates[q].steps, dtype=torch.float64)
        step = steps[residuals.place[q, usable, h]]
        falls &= step < FALL * step.cummax(0).values
    if falls.any():
        yield f"the fitted steps fall at {numbered(layers[falls])}: not the order of a solver's steps"
    values, size = residuals.values[usable].flatten(1), residuals.distance[usable].sum(1)
    repeats = ((values[1:] - values[:-1]).square().sum(1) <= 1e-9 * size[1:]).nonzero().flatten() + 1
    if len(repeats):
        yield f"{numbered(layers[repeats])} predict what the layer before does: one step is counted more than once"


def numbered(layers: Float[Tensor, "K"]) -> str:
    """layers 1, 2, 5"""
    shown = ", ".join(f"{layer:g}" for layer in layers[:8].tolist())
    return f"layers {shown}{', ...' if len(layers) > 8 else ''}"


def result_on(
    residuals: Residuals,
    rule: Rule,
    *,
    layers: Sequence[int] | None = None,
    without: Collection[str] = (),
    seed: int,
) -> RangeResult:
    """The result on the layers with these indices (all by default), with the classes in `without` left out."""
    asked = torch.zeros(len(residuals.layers), dtype=torch.bool)
    asked[list(range(len(residuals.layers)) if layers is None else layers)] = True
    numbers = tuple(residuals.layers[asked].tolist())
    live = asked & live_layers(residuals, rule)
    if not live.any():
        reason = "no layer is far enough from exact KRR, or none depends on the labels"
        return RangeResult(status=NOTHING, solver=None, layers=numbers, usable=(), reason=reason)

    families = [f for f in residuals.library.families if f.kind not in without]
    kinds = [family.kind for family in families]
    chosen = torch.tensor([_choose(residuals, family.name, live) for family in families])  # [A, 2]
    left, structured = of_chosen(residuals, chosen)  # [A, L, B]
    total = residuals.distance.sum(1)
    U, V = left.sum(-1) / total, structured.sum(-1) / total
    E = 1 - (U - V).amin(0)
    usable = live & (rule.explainable < E)
    if not usable.any():
        reason = "what separates the layers from exact KRR has no pattern that the library or the features predict"
        return RangeResult(status=NOTHING, solver=None, layers=numbers, usable=(), reason=reason, explainable=E)

    draws = resamples(residuals.distance.shape[1], rule.resamples, seed)  # [R, B]
    share = (E[usable] * (draws @ residuals.distance[usable].T)).reciprocal()  # [R, L]
    scores = torch.einsum("alb,rb,rl->ar", left[:, usable], draws, share) / int(usable.sum())
    remainders = torch.einsum("alb,rb,rl->ar", structured[:, usable], draws, share) / int(usable.sum())
    score = (U / E)[:, usable].mean(1)
    remainder = (V / E)[:, usable].mean(1)
    score_range, remainder_range = interval(scores.T, 0.9).T, interval(remainders.T, 0.9).T

    order = score.argsort().tolist()
    best = order[0]
    nearest = kinds[best]
    gaps = {}  # per rival class: the 1st percentile of its best family's score minus the winner's
    for index in order:
        if kinds[index] != nearest and kinds[index] not in gaps:
            gaps[kinds[index]] = float(torch.quantile(scores[index] - scores[best], 0.01))
    rival = min(gaps, key=lambda kind: gaps[kind]) if gaps else None
    margin = gaps[rival] if rival is not None else float("inf")
    mean_U = float(U[best, usable].mean())
    tied = tuple(kind for kind, gap in gaps.items() if gap < rule.margin_limit)

    def fit(a: int) -> Fit:
        pair = tuple(residuals.candidates[q] for q in chosen[a].tolist())
        places = torch.stack([residuals.place[chosen[a, h], :, h] for h in (0, 1)])
        steps = torch.tensor(pair[0].steps, dtype=torch.float64)
        return Fit(
            family=families[a].name,
            kind=kinds[a],
            v=(pair[0].v, pair[1].v),
            lam=(pair[0].lam, pair[1].lam),
            score=float(score[a]),
            V=float(remainder[a]),
            score_interval=tuple(score_range[a].tolist()),
            V_interval=tuple(remainder_range[a].tolist()),
            step=steps[places].mean(0),
            at_cap=(places == len(steps) - 1).any(0),
            U_layer=U[a],
            V_layer=V[a],
            candidates=tuple(chosen[a].tolist()),
        )

    status = decide(float(remainder[best]), margin, mean_U, rule, nearest)
    return RangeResult(
        status=status,
        solver=nearest if status == IDENTIFIED else None,
        layers=numbers,
        usable=tuple(residuals.layers[usable].tolist()),
        reason=_reason(status, nearest, tied, mean_U, float(remainder[best]), rule),
        nearest=nearest,
        family=families[best].name,
        U=mean_U,
        V=float(remainder[best]),
        margin=margin,
        rival=rival,
        tied=tied,
        explainable=E,
        linear=all(family.linear for family in families if family.kind == nearest),
        fits=tuple(fit(a) for a in order),
    )


def decide(V: float, margin: float, U: float, rule: Rule, nearest: str = "") -> str:
    """The status from three numbers of the nearest family, and its class."""
    clean = rule.limit_of(nearest) >= V
    apart = margin >= rule.margin_limit
    if clean and apart:
        return IDENTIFIED if rule.u_limit >= U else NONE
    if clean:
        return AMBIGUOUS
    return RESEMBLES if rule.v_resembles >= V and apart else NONE


def _reason(status: str, nearest: str, tied: tuple[str, ...], U: float, V: float, rule: Rule) -> str:
    if status == IDENTIFIED:
        return f"{nearest} leaves nothing that the residual features predict, and every other class leaves more"
    if status == AMBIGUOUS:
        return f"{nearest} fits, and so does {' and '.join(tied)}, within the margin"
    if rule.limit_of(nearest) >= V:
        return f"nearest {nearest}, but it leaves {U:.2f} of the distance (limit {rule.u_limit:g})"
    left = f"nearest {nearest}, but a pattern is left: V = {V:.3f} (limit {rule.limit_of(nearest):g})"
    return left + ("; a description, not a claim" if status == RESEMBLES else "")


def _choose(residuals: Residuals, name: str, live: Bool[Tensor, "L"]) -> tuple[int, int]:
    """For each half the candidate of a family with the least mean_l U_l on that half, over live layers."""
    numbers = [q for q, c in enumerate(residuals.candidates) if c.family.name == name]
    pick = []
    for h, rows in enumerate(residuals.halves):
        U = residuals.fitted[numbers][:, live, h] / residuals.distance[live][:, rows].mean(1)
        pick.append(numbers[int(U.mean(1).argmin())])
    return pick[0], pick[1]


def of_chosen(
    residuals: Residuals, chosen: Int[Tensor, "A 2"]
) -> tuple[Float[Tensor, "A L B"], Float[Tensor, "A L B"]]:
    """left and structured with the candidate chosen on the half that a sequence is not in."""
    first, second = residuals.halves
    return tuple(
        torch.cat([of[chosen[:, 1]][:, :, first], of[chosen[:, 0]][:, :, second]], dim=-1)
        for of in (residuals.left, residuals.structured)
    )  # type: ignore[return-value]
