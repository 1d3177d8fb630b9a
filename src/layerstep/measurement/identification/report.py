"""The verdict in words: the answer first, then the numbers it rests on, then what cannot be said."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from layerstep.measurement.identification.decision import AMBIGUOUS, IDENTIFIED, NOTHING, RESEMBLES, Judgement
from layerstep.measurement.identification.result import Verdict


def headline(judgement: Judgement) -> str:
    """One line: what may be claimed."""
    if judgement.answer == IDENTIFIED:
        return f"{judgement.solver}"
    if judgement.answer == AMBIGUOUS:
        return f"ambiguous: {', '.join([str(judgement.nearest), *judgement.tied])}"
    if judgement.answer == RESEMBLES:
        return f"none (resembles {judgement.nearest})"
    if judgement.answer == NOTHING:
        return "nothing to identify"
    return f"none (nearest: {judgement.nearest})"


def describe(verdict: Verdict) -> str:
    return "\n".join(_lines(verdict))


def _lines(verdict: Verdict) -> Iterator[str]:
    overall, rule = verdict.overall, verdict.rule
    yield f"{verdict.label}: {headline(overall)}"
    yield f"  {overall.reason}"
    if not verdict.contexts:  # nothing was compared
        return
    yield (
        f"  layers {span(overall.layers)}; usable {span(overall.usable) or 'none'}; "
        f"{verdict.sequences} sequences of {verdict.task.inputs} inputs, n = {' '.join(map(str, verdict.contexts))}"
    )
    if overall.fits:
        best = overall.fits[0]
        yield (
            f"  V = {overall.V:.4f} [{best.V_interval[0]:.4f}, {best.V_interval[1]:.4f}] of the distance to KRR "
            f"is left with a pattern (limit {rule.v_limit:g})"
        )
        yield f"  U = {overall.U:.3f} is left in all (limit {rule.u_limit:g})"
        yield f"  margin = {overall.margin:.3f} to {overall.rival} (at least {rule.margin_limit:g})"
        yield ""
        yield f"  class               score   [5 %,  95 %]        V  {'v':<15}  lam"
        for fit in one_per_class(overall):
            interval = "[{:.3f}, {:.3f}]".format(*fit.score_interval)
            yield (
                f"  {fit.kind:<18} {fit.score:6.3f}  {interval:<15} {fit.V:7.4f}  {pair(fit.v):<15}  {pair(fit.lam)}"
            )
        yield from _layers(verdict)
    yield from _extras(verdict)
    for remark in verdict.remarks:
        yield f"  note: {remark}"
    for claim in verdict.cannot_say:
        yield f"  cannot say: {claim}"
    yield f"  calibration: {calibration_line(verdict.calibration)}"
    yield f"  library {verdict.library_hash or '-'}, seed {verdict.seed}"


def _layers(verdict: Verdict) -> Iterator[str]:
    table, best = verdict.table, verdict.overall.fits[0]
    assert table is not None
    yield ""
    yield f"  layer  distance  explainable  {best.family}: t        U       V   alone"
    for index, (layer, judgement) in enumerate(zip(table.layers.tolist(), verdict.layers, strict=True)):
        cap = "+" if bool(best.at_cap[index]) else " "
        width = len(best.family)
        yield (
            f"  {layer:5g}  {table.distance[index]:8.4f}  {table.explainable[index]:11.2f}  "
            f"{best.step[index]:>{width + 3}.5g}{cap}  {best.U_layer[index]:7.3f} {best.V_layer[index]:7.4f}   "
            f"{headline(judgement)}"
        )
    if verdict.ranges:
        alike = [list(group) for _, group in itertools.groupby(verdict.ranges, headline)]
        yield f"  windows of {len(verdict.ranges[0].layers)} layers:"
        for windows in alike:
            last = f" to {span(windows[-1].layers)}" if len(windows) > 1 else ""
            yield f"    {span(windows[0].layers)}{last}: {headline(windows[0])}"


def _extras(verdict: Verdict) -> Iterator[str]:
    sub = verdict.preconditioner
    if sub is not None:
        low, high = sub.interval
        yield f"  preconditioner: {sub.answer} (score without - with: {sub.difference:.4f} [{low:.4f}, {high:.4f}])"
    if verdict.slopes is not None:
        s = verdict.slopes
        middle = s.g.shape[1] // 2
        shown = ", ".join(
            f"{g[middle]:.2f} ± {sd[middle]:.2f} at v = {v:.3g}" for v, g, sd in zip(s.v, s.g, s.sd, strict=True)
        )
        yield f"  step against context, slope g at the middle layer: {shown} (0: normalised, 1: fixed step)"
    if verdict.filter is not None:
        f = verdict.filter
        yield (
            f"  filter: {f.normalisation}, p = {f.p:g}, 1/m = {f.inverse_m:g}, v = {f.v:.3g}, U = {f.U:.3f}, "
            f"support {f.support:.0%}; free bands leave {float(f.free.mean()):.3f}"
        )
    tests = verdict.label_tests
    if tests is not None:
        for name in ("additivity", "oddness", "at_zero", "order"):
            yield f"  {name.replace('_', ' ')}: " + " ".join(f"{value:.2f}" for value in getattr(tests, name).tolist())


def one_per_class(judgement: Judgement):
    """The best family of every class, best class first."""
    seen = {}
    for fit in judgement.fits:
        seen.setdefault(fit.kind, fit)
    return list(seen.values())


def calibration_line(record: dict) -> str:
    test = record["test"]["overall"]
    inside, false = test["inside"], test["false"]
    return (
        f"on planted models with known answers, right {inside['right']} of {inside['of']}, "
        f"false claims {false['claims']} of {false['of']}"
    )


def pair(values: tuple[float, float]) -> str:
    return f"{values[0]:.4g}" if values[0] == values[1] else f"{values[0]:.4g} / {values[1]:.4g}"


def span(layers: Sequence[float]) -> str:
    """1-12, or 1, 2, 5 when there are gaps."""
    whole = list(layers)
    if len(whole) > 2 and all(b - a == 1 for a, b in itertools.pairwise(whole)):
        return f"{whole[0]:g}-{whole[-1]:g}"
    return ", ".join(f"{layer:g}" for layer in whole)
