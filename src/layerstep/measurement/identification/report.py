"""A verdict in words: the numbers it rests on, and what cannot be said."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from layerstep.measurement.identification.decision import (
    AMBIGUOUS,
    IDENTIFIED,
    NONE,
    NOTHING,
    RESEMBLES,
    Fit,
    RangeResult,
)
from layerstep.measurement.identification.descriptions import Schedule
from layerstep.measurement.identification.label_interventions import MODEL_FN, LabelInterventions

if TYPE_CHECKING:
    from layerstep.measurement.identification.result import Verdict


def headline(result: RangeResult) -> str:
    """One line: what may be claimed."""
    if result.status == IDENTIFIED:
        return f"{result.solver}"
    if result.status == AMBIGUOUS:
        return f"ambiguous: {', '.join([str(result.nearest), *result.tied])}"
    if result.status == RESEMBLES:
        return f"none (resembles {result.nearest})"
    return NOTHING if result.status == NOTHING else f"none (nearest: {result.nearest})"


LEGEND = (
    "  U       share of the layers' distance to exact KRR that this class leaves: 0 the same predictions, 1 no better",
    "  V       the part of it with a pattern: a wrong class leaves one, noise does not",
    "  margin  how much more the next class leaves; steps, bandwidth and ridge are free in all of them",
    "  more    .report() or -v: every table; .cannot_say; .figure()",
)


def summary(verdict: Verdict) -> list[str]:
    """Three sentences: the answer, what it rests on, what it does not say; notes, and what the words mean."""
    overall = verdict.overall
    if not verdict.contexts:  # nothing was compared
        return [f"{verdict.label} could not be tested: {overall.reason}"]
    notes = [f"  note: {remark}" for remark in verdict.remarks]
    return [_answer(verdict), _numbers(verdict), _limits(verdict), *notes, "", *LEGEND]


def _answer(verdict: Verdict) -> str:
    overall, label = verdict.overall, verdict.label
    if overall.status == IDENTIFIED:
        found = verdict.description(Schedule)
        grown = f", {found.words}" if found is not None and found.form else ""
        return f"Layer by layer {label} predicts as {overall.solver} does (layers {span(overall.usable)}){grown}."
    if overall.status == NOTHING:
        return f"There is nothing to identify in {label}: {overall.reason}."
    words = {
        AMBIGUOUS: f"{' and '.join([str(overall.nearest), *overall.tied])} explain it alike",
        RESEMBLES: f"it resembles {overall.nearest}, and so do wrong answers on planted models",
    }
    return f"No solver can be named for {label}: {words.get(overall.status, overall.reason)}."


def _numbers(verdict: Verdict) -> str:
    overall, rule = verdict.overall, verdict.rule
    size = f"on {verdict.sequences} prompts, layers {span(overall.usable) or 'none'} usable"
    if not overall.fits:
        return f"It was compared {size}."
    allowed = f"at most {rule.limit_of(overall.nearest):g} is allowed"
    return (
        f"Of {len(one_per_class(overall))} classes {overall.nearest} is nearest: U = {overall.U:.3f}, "
        f"V = {overall.V:.4f} ({allowed}), margin {overall.margin:.3f} to {overall.rival}; {size}."
    )


def _limits(verdict: Verdict) -> str:
    off = ", ".join(_off_calibration(verdict))
    rates = f"; here they are not known: {off}" if off else ""
    if verdict.overall.status != IDENTIFIED:
        return (
            "That is not evidence against a solver inside: probes fitted on y read the best prediction in a state, not "
            f"the state of an iteration{f' (error rates are not known for {off})' if off else ''}."
        )
    counts = verdict.calibration["test"]["overall"]
    inside, false = counts["inside"], counts["false"]
    return (
        f"On planted models with known answers the rule was right for {inside['right']} of {inside['of']} and claimed "
        f"{false['claims']} of {false['of']} wrongly{later_rate(verdict)}{rates}."
    )


def later_rate(verdict: Verdict) -> str:
    """The rate on negative controls that the suite does not have, as the end of a sentence."""
    later = verdict.calibration.get("later")
    return f" and {later['overall']['claims']} of {later['overall']['of']} by another hand" if later else ""


def order_words(verdict: Verdict) -> str:
    """Where the layers are not in the order of a solver's steps; empty where they are."""
    return "; ".join(verdict.order)


def lines(verdict: Verdict) -> Iterator[str]:
    """The claim first, then the numbers it rests on, then what cannot be said."""
    yield f"{verdict.label}: {headline(verdict.overall)}"
    yield f"  {verdict.overall.reason}"
    if not verdict.contexts:  # nothing was compared
        return
    yield from _results(verdict)
    for description in verdict.descriptions:
        yield from (f"  {line}" for line in description.lines())
    yield from (f"  note: {remark}" for remark in verdict.remarks)
    yield from (f"  cannot say: {claim}" for claim in cannot_say(verdict))
    inside, false = (verdict.calibration["test"]["overall"][part] for part in ("inside", "false"))
    rates = f"right {inside['right']} of {inside['of']}, false claims {false['claims']} of {false['of']}"
    yield f"  calibration: on planted models with known answers, {rates}"
    if later := verdict.calibration.get("later"):
        counts = later["overall"]
        yield f"  on negative controls by another hand, false claims {counts['claims']} of {counts['of']}"
    yield f"  library {verdict.library_hash or '-'}, seed {verdict.seed}"


def _results(verdict: Verdict) -> Iterator[str]:
    """The classes over all layers, the best family per layer, and the windows."""
    overall, rule = verdict.overall, verdict.rule
    yield (
        f"  layers {span(overall.layers)}; usable {span(overall.usable) or 'none'}; "
        f"{verdict.sequences} sequences of {getattr(verdict.task, 'inputs', 'its own')} inputs, "
        f"n = {' '.join(map(str, verdict.contexts))}"
    )
    if not overall.fits:
        return
    best = overall.fits[0]
    yield (
        f"  V = {overall.V:.4f} [{best.V_interval[0]:.4f}, {best.V_interval[1]:.4f}] of the distance to KRR "
        f"is left with a pattern (limit {rule.limit_of(overall.nearest):g})"
    )
    yield f"  U = {overall.U:.3f} is left in all (limit {rule.u_limit:g})"
    yield f"  margin = {overall.margin:.3f} to {overall.rival} (at least {rule.margin_limit:g})"
    yield ""
    widths = hasattr(verdict.task, "v")  # a linear task has no bandwidth
    yield "  class               score   [5 %,  95 %]        V  " + (f"{'v':<15}  " if widths else "") + "lam"
    for fit in one_per_class(overall):
        interval = "[{:.3f}, {:.3f}]".format(*fit.score_interval)
        v = f"{_pair(fit.v):<15}  " if widths else ""
        yield f"  {fit.kind:<18} {fit.score:6.3f}  {interval:<15} {fit.V:7.4f}  {v}{_pair(fit.lam)}"
    table = verdict.table
    assert table is not None
    yield ""
    yield f"  layer  distance  explainable  {best.family}: t        U       V   alone"
    for index, (layer, alone) in enumerate(zip(table.layers.tolist(), verdict.layers, strict=True)):
        cap = "+" if bool(best.at_cap[index]) else " "
        width = len(best.family)
        yield (
            f"  {layer:5g}  {table.distance[index]:8.4f}  {table.explainable[index]:11.2f}  "
            f"{best.step[index]:>{width + 3}.5g}{cap}  {best.U_layer[index]:7.3f} {best.V_layer[index]:7.4f}   "
            f"{headline(alone)}"
        )
    if verdict.ranges:
        yield f"  windows of {len(verdict.ranges[0].layers)} layers:"
        for words, alike in itertools.groupby(verdict.ranges, headline):
            windows = list(alike)
            last = f" to {span(windows[-1].layers)}" if len(windows) > 1 else ""
            yield f"    {span(windows[0].layers)}{last}: {words}"


def cannot_say(verdict: Verdict) -> Iterator[str]:
    """Claims the data do not decide, and what would."""
    overall = verdict.overall
    if not any(isinstance(each, LabelInterventions) for each in verdict.descriptions):
        yield f"whether the layers are linear in the labels: give identify(model_fn=...) {MODEL_FN}"
    if overall.status == AMBIGUOUS:
        rivals = " or ".join([str(overall.nearest), *overall.tied])
        yield f"{rivals}: more sequences, or layers farther from KRR, would tell"
    if overall.status == RESEMBLES:
        yield f"that the layers run {overall.nearest}: they resemble it, and so do wrong answers on planted models"
    if overall.status in (NONE, RESEMBLES, AMBIGUOUS):
        yield (
            "that no solver runs inside: probes fitted on y read the best prediction in a state, not the state of an "
            "iteration; only writing into the states can tell"
        )
    if overall.solver == "richardson-fixed":
        yield "whether its steps are explicit: implicit ones of one size (iterated Tikhonov) predict the same"
    for description in verdict.descriptions:
        yield from description.cannot_say()
    beyond = sorted(set(overall.layers) - set(overall.usable))
    if beyond:
        yield "anything about layers " + ", ".join(f"{layer:g}" for layer in beyond)
    if overall.status == IDENTIFIED and overall.U > 0.2:
        yield f"what the other {overall.U:.0%} of the distance is: no pattern in it, but it is not {overall.solver}"
    if overall.fits:
        best = overall.fits[0]
        if best.v[0] != best.v[1] or best.lam[0] != best.lam[1]:
            same = best.v[0] == best.v[1]
            which = f"lam = {best.lam[0]:.3g}, {best.lam[1]:.3g}" if same else f"v = {best.v[0]:.3g}, {best.v[1]:.3g}"
            yield f"the {'ridge' if same else 'bandwidth and ridge'}: the halves fit {which}"
    if differs := list(_off_calibration(verdict)):
        yield "the error rate of this verdict: " + ", ".join(differs)


def _off_calibration(verdict: Verdict) -> Iterator[str]:
    """Where prompts and task differ from those the error rates were measured on."""
    setting, task = verdict.calibration.get("setting", {}), verdict.task
    for name in ("N", "v", "sigma", "d"):
        if name not in setting or not hasattr(task, name):
            continue
        there = setting[name] if isinstance(setting[name], list) else [setting[name]]
        value = getattr(task, name)
        if not any(math.isclose(value, each) for each in there):
            yield f"{name} = {value:g} (calibrated at {', '.join(f'{each:g}' for each in there)})"
    kernel, calibrated = getattr(task, "kernel", type(task).__name__), setting.get("kernel", "gaussian")
    if kernel != calibrated:
        yield f"kernel {kernel} (calibrated with {calibrated})"
    if getattr(task, "prior", "gaussian") != "gaussian" or getattr(task, "pool", None) is not None:
        yield "other weights than Gaussian ones (calibrated with those)"
    if verdict.sequences >= setting.get("sequences", 0):
        return
    words = f"calibrated with {setting['sequences']}"
    measured = {int(few): counts for few, counts in verdict.calibration.get("fewer", {}).items()}
    if below := [few for few in measured if few <= verdict.sequences]:
        inside, false = (measured[max(below)][part] for part in ("inside", "false"))
        words += (
            f"; with {max(below)} on planted models, right {inside['right']} of {inside['of']}, "
            f"false claims {false['claims']} of {false['of']}"
        )
    yield f"{verdict.sequences} sequences ({words})"


def one_per_class(result: RangeResult) -> list[Fit]:
    """The best family of every class, best class first."""
    best: dict[str, Fit] = {}
    for fit in result.fits:
        best.setdefault(fit.kind, fit)
    return list(best.values())


def _pair(values: tuple[float, float]) -> str:
    return f"{values[0]:.4g}" if values[0] == values[1] else f"{values[0]:.4g} / {values[1]:.4g}"


def span(layers: Sequence[float]) -> str:
    """1-12, or 1, 2, 5 when there are gaps."""
    whole = list(layers)
    if len(whole) > 2 and all(b - a == 1 for a, b in itertools.pairwise(whole)):
        return f"{whole[0]:g}-{whole[-1]:g}"
    return ", ".join(f"{layer:g}" for layer in whole)
