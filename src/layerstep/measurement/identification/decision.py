"""The decision rule: which class do these layers follow, or none.

For a range of layers and a family A, with the bandwidth and ridge of A chosen on the other half of the sequences:

    U_l = |M_l - A_t|² / |M_l - KRR|²        the unexplained fraction: 0 the same predictions, 1 no better than KRR
    V_l = <r, r^> / |M_l - KRR|²             the structured remainder: what a dictionary still predicts of r = M_l - A_t
    E_l = 1 - min_A (U_l - V_l)              the explainable share; a layer is usable when live and E_l > .1
    score_A = mean_l U_l / E_l,  V_A = mean_l V_l / E_l    over usable layers
    margin = the smallest 1st percentile of score_B - score_A over classes B, by a paired bootstrap of sequences

identified: V_A <= v_limit, margin >= margin_limit, mean U <= u_limit. U alone cannot decide: a true solver plus noise
leaves more than a false one fitted to a noiseless model. V does: a wrong family leaves a pattern, noise leaves none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerstep.measurement.identification.crossfit import Evidence
from layerstep.stats import interval, resamples

IDENTIFIED, AMBIGUOUS, RESEMBLES, NONE, NOTHING = "identified", "ambiguous", "resembles", "none", "nothing to identify"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The thresholds, set on one seed of the panel and tested on others (see the calibration record)."""

    v_limit: float = 0.015
    v_resembles: float = 0.05
    margin_limit: float = 0.01
    u_limit: float = 0.8
    live: float = 1e-3  # mean squared distance to KRR, in units of the mean square label
    explainable: float = 0.1
    label_share: float = 0.05  # of a layer's variance predicted from the labels; below it the layer ignores them
    resamples: int = 400


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
    candidates: tuple[int, int] = field(metadata={"internal": True})  # their places in the library


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The answer on one range of layers. `solver` is a class only when the answer is "identified"."""

    answer: str
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
    fits: tuple[Fit, ...] = ()  # best first

    def fit(self, family: str) -> Fit:
        return next(fit for fit in self.fits if fit.family == family)


def live_layers(evidence: Evidence, rule: Rule) -> Bool[Tensor, "L"]:
    """Layers far enough from KRR, and that see the labels, to say anything about the way there."""
    unit = evidence.library.prompts.y.square().mean() * len(evidence.library.contexts)
    return (evidence.distance.mean(1) > rule.live * unit) & (evidence.label_share > rule.label_share)


def judge(
    evidence: Evidence,
    rule: Rule,
    *,
    layers: Sequence[int] | None = None,
    without: Collection[str] = (),
    seed: int,
) -> Judgement:
    """The answer on the layers with these indices (all by default), with the classes in `without` left out."""
    asked = torch.zeros(len(evidence.layers), dtype=torch.bool)
    asked[list(range(len(evidence.layers)) if layers is None else layers)] = True
    numbers = tuple(evidence.layers[asked].tolist())
    live = asked & live_layers(evidence, rule)
    if not live.any():
        reason = "no layer is far enough from exact KRR, or none depends on the labels"
        return Judgement(answer=NOTHING, solver=None, layers=numbers, usable=(), reason=reason)

    names = [f.name for f in evidence.library.families if f.kind not in without]
    kinds = {f.name: f.kind for f in evidence.library.families}
    chosen = torch.tensor([_choose(evidence, name, live) for name in names])  # [A, 2]
    left, structured = of_chosen(evidence, chosen)  # [A, L, B]
    total = evidence.distance.sum(1)
    U, V = left.sum(-1) / total, structured.sum(-1) / total
    E = 1 - (U - V).amin(0)
    usable = live & (rule.explainable < E)
    if not usable.any():
        reason = "what separates the layers from exact KRR has no pattern that the library or the dictionary predicts"
        return Judgement(answer=NOTHING, solver=None, layers=numbers, usable=(), reason=reason, explainable=E)

    draws = resamples(evidence.distance.shape[1], rule.resamples, seed)  # [R, B]
    share = (E[usable] * (draws @ evidence.distance[usable].T)).reciprocal()  # [R, L]
    scores = torch.einsum("alb,rb,rl->ar", left[:, usable], draws, share) / int(usable.sum())
    remainders = torch.einsum("alb,rb,rl->ar", structured[:, usable], draws, share) / int(usable.sum())
    score = (U / E)[:, usable].mean(1)
    remainder = (V / E)[:, usable].mean(1)

    order = score.argsort().tolist()
    best = order[0]
    nearest = kinds[names[best]]
    gaps = {}  # per rival class: the 1st percentile of its best family's score minus the winner's
    for index in order:
        kind = kinds[names[index]]
        if kind != nearest and kind not in gaps:
            gaps[kind] = float(torch.quantile(scores[index] - scores[best], 0.01))
    rival = min(gaps, key=lambda kind: gaps[kind]) if gaps else None
    margin = gaps[rival] if rival is not None else float("inf")
    mean_U = float(U[best, usable].mean())
    tied = tuple(kind for kind, gap in gaps.items() if gap < rule.margin_limit)

    answer = decide(float(remainder[best]), margin, mean_U, rule)
    fits = [
        _fit(evidence, names[a], chosen[a], score[a], remainder[a], scores[a], remainders[a], U[a], V[a]) for a in order
    ]
    return Judgement(
        answer=answer,
        solver=nearest if answer == IDENTIFIED else None,
        layers=numbers,
        usable=tuple(evidence.layers[usable].tolist()),
        reason=_reason(answer, nearest, tied, mean_U, float(remainder[best]), rule),
        nearest=nearest,
        family=names[best],
        U=mean_U,
        V=float(remainder[best]),
        margin=margin,
        rival=rival,
        tied=tied,
        explainable=E,
        fits=tuple(fits),
    )


def decide(V: float, margin: float, U: float, rule: Rule) -> str:
    """The answer from three numbers of the nearest family."""
    clean = rule.v_limit >= V
    apart = margin >= rule.margin_limit
    if clean and apart:
        return IDENTIFIED if rule.u_limit >= U else NONE
    if clean:
        return AMBIGUOUS
    return RESEMBLES if rule.v_resembles >= V and apart else NONE


def _reason(answer: str, nearest: str, tied: tuple[str, ...], U: float, V: float, rule: Rule) -> str:
    if answer == IDENTIFIED:
        return f"{nearest} leaves nothing the dictionary can predict, and every other class leaves more"
    if answer == AMBIGUOUS:
        return f"{nearest} fits, and so does {' and '.join(tied)}, within the margin"
    if rule.v_limit >= V:
        return f"nearest {nearest}, but it leaves {U:.2f} of the distance (limit {rule.u_limit:g})"
    left = f"nearest {nearest}, but a pattern is left: V = {V:.3f} (limit {rule.v_limit:g})"
    return left + ("; a description, not a claim" if answer == RESEMBLES else "")


def _choose(evidence: Evidence, name: str, live: Bool[Tensor, "L"]) -> tuple[int, int]:
    """For each half the candidate of a family with the least mean_l U_l on that half, over live layers."""
    numbers = [q for q, c in enumerate(evidence.library.candidates) if c.family.name == name]
    pick = []
    for h, rows in enumerate(evidence.halves):
        U = evidence.fitted[numbers][:, live, h] / evidence.distance[live][:, rows].mean(1)
        pick.append(numbers[int(U.mean(1).argmin())])
    return pick[0], pick[1]


def of_chosen(evidence: Evidence, chosen: Int[Tensor, "A 2"]) -> tuple[Float[Tensor, "A L B"], Float[Tensor, "A L B"]]:
    """left and structured with the candidate chosen on the half that a sequence is not in."""
    first, second = evidence.halves
    return tuple(
        torch.cat([of[chosen[:, 1]][:, :, first], of[chosen[:, 0]][:, :, second]], dim=-1)
        for of in (evidence.left, evidence.structured)
    )  # type: ignore[return-value]


def _fit(evidence: Evidence, name: str, pair, score, V, scores, remainders, U_layer, V_layer) -> Fit:
    candidates = [evidence.library.candidates[int(q)] for q in pair]
    family = candidates[0].family
    steps = torch.tensor(family.steps, dtype=torch.float64)
    rows = torch.stack(
        [evidence.row[int(q), :, h] - c.rows.start for h, (q, c) in enumerate(zip(pair, candidates, strict=True))]
    )

    return Fit(
        family=name,
        kind=family.kind,
        v=(candidates[0].v, candidates[1].v),
        lam=(candidates[0].lam, candidates[1].lam),
        score=float(score),
        V=float(V),
        score_interval=tuple(interval(scores, 0.9).tolist()),
        V_interval=tuple(interval(remainders, 0.9).tolist()),
        step=steps[rows].mean(0),
        at_cap=(rows == len(steps) - 1).any(0),
        U_layer=U_layer,
        V_layer=V_layer,
        candidates=(int(pair[0]), int(pair[1])),
    )
