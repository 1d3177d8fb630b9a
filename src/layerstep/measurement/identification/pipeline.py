"""From a trajectory to a verdict: the checks, the numbers, the results over all layers, windows and single layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from layerstep.errors import InputError, require, require_callable, require_kind, require_seed
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.identification.crossfit import Instrument
from layerstep.measurement.identification.decision import Rule, left_out, numbered, out_of_order, result_on
from layerstep.measurement.identification.descriptions import RowSums, Schedule, Slopes, Variants
from layerstep.measurement.identification.domains import at_length, domain_of
from layerstep.measurement.identification.families import Family
from layerstep.measurement.identification.filters import FilterFit
from layerstep.measurement.identification.label_interventions import MODEL_FN, intervene_on_labels
from layerstep.measurement.identification.library import Library
from layerstep.measurement.identification.result import LayerTable, Verdict
from layerstep.tasks import Prompts, Trajectory, require_task
from layerstep.tasks.prompts import as_float_tensor

FEWEST = 64  # sequences; with 32, 3 of 100 planted models are claimed falsely, with 64 none (docs/measurement.md)
MOST_STAGES = 40  # a longer trajectory is thinned evenly
WINDOW = 4  # layers of a sliding window
#: What is described beside the claim, in the order of the text.
DESCRIPTIONS = (Variants.of, Schedule.of, RowSums.of, Slopes.of, FilterFit.of)


def identify_path(
    path: Trajectory,
    prompts: Prompts,
    task: Any,
    *,
    families: Sequence[Family] | None = None,
    model_fn: Callable[[Prompts], Trajectory] | None = None,
    instrument: Instrument | None = None,
    rule: Rule | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    rerun: Callable[[Prompts], Trajectory] | None = None,
    cache: bool = False,
    relabelled: int | None = None,
    anchor: Any = "exact",
) -> Verdict:
    """Which solver the layers of `path` follow on `prompts`, or None; `task` gives kernel, bandwidth and ridge.

    families: what the layers are compared with; your own beside the library's are [*ls.FAMILIES, ls.Family(...)], on
    linear tasks [*ls.linear_families(task), ls.Family(...)].
    anchor: what distances are measured from, and their unit: "exact" kernel ridge regression, the "final" layer, or
    predictions [B, N]. The last two are for tasks that have no exact answer: `task` then says what systems are solved.
    model_fn: the model as a function from prompts to its trajectory (`probes.path`); with it labels and order are
    intervened on; `rerun` is its older name. instrument: prepared on the same prompts, for several models.
    seed: of the bootstrap and of the interventions. Sequences may come in any order; the verdict does not depend on it.
    Prompts of another length than the task's are welcome: what is said is about their N.
    cache: take the library from the user's cache directory, or put it there, for prompts that are used again.
    relabelled: on how many prompts the model is run with other labels, all by default.
    """
    model_fn = rerun if model_fn is None else model_fn
    _require_arguments(path, prompts, task, families, model_fn, instrument, rule, seed, progress)
    seed = int(seed)  # NumPy's numbers are welcome, but a verdict goes into JSON files
    task = at_length(task, prompts.N)
    calibration = read_record(domain_of(task).name)
    rule = rule or Rule(**calibration["rule"])
    if path.B < FEWEST:
        words = f"{path.B} sequences are too few for an interval: give at least {FEWEST}, better 256"
        return Verdict.nothing(words, path, task, rule, seed)
    keep, remarks = _readable(path, prompts)
    values, contexts = _compared(path, prompts, task, instrument)
    if not keep.any():
        return Verdict.nothing("; ".join(remarks), path, task, rule, seed)
    values, stages = values[keep], path.stages[keep]
    centre = _anchor(anchor, path, contexts, instrument)
    tests = None
    if model_fn is not None:
        some = prompts[:relabelled]
        tests = intervene_on_labels(model_fn, some, task, stages, seed=seed, exactly=centre is None)
    if instrument is None:
        options = {"families": families, "cache": cache, "anchor": centre}
        instrument = Instrument.prepare(prompts, task, contexts, progress, **options)
    residuals = instrument.cross_fit(values, stages)
    L = len(stages)
    windows = [range(first, first + WINDOW) for first in range(L - WINDOW + 1 if L > WINDOW else 0)]
    asked = [range(L), *([index] for index in range(L)), *windows]
    found = [result_on(residuals, rule, layers=layers, seed=seed) for layers in asked]
    overall, *rest = found if tests is None else map(tests.veto, found)
    order = tuple(out_of_order(residuals, overall))
    remarks += [*left_out(residuals, rule), *order]
    if centre is not None:
        remarks.append(
            f"distances are measured from {_anchor_words(anchor)}, not from exact KRR: the error rates were not"
        )
    described = [describe(residuals, overall, rule, seed) for describe in DESCRIPTIONS]
    return Verdict(
        overall=overall,
        layers=tuple(rest[:L]),
        ranges=tuple(rest[L:]),
        table=LayerTable.of(residuals, overall),
        descriptions=tuple(each for each in (*described, tests) if each is not None),
        order=order,
        remarks=(*remarks, *instrument.library.remarks),
        label=path.label,
        task=task,
        sequences=path.B,
        contexts=contexts,
        rule=rule,
        library_hash=instrument.library.hash,
        calibration=calibration,
        seed=seed,
    )


def _require_arguments(path, prompts, task, families, model_fn, instrument, rule, seed, progress) -> None:
    """Raise InputError unless all are what they are called; a model itself gives no trajectory, its `path` does."""
    made = "Make one with ls.Trajectory(values, stages), or read it off a model with probes.path(prompts)."
    require_kind("path", path, Trajectory, made)
    require_kind("prompts", prompts, Prompts, "The order is path, prompts, task.")
    function = model_fn is None or (callable(model_fn) and not isinstance(model_fn, (nn.Module, type)))
    require(function, "model_fn", f"a {type(model_fn).__name__}", MODEL_FN)
    require_seed(seed=seed)
    if progress is not None:
        require_callable("progress", progress, "a function of the fraction done")
    if rule is not None:
        require_kind("rule", rule, Rule, "Make one with replace(verdict.rule, v_limit=...).")
    if instrument is not None:
        require_kind("instrument", instrument, Instrument, "Make one with ls.Instrument.prepare(prompts, task).")
        require(families is None, "families", "given beside an instrument", "those the instrument was prepared with")
    require(len(path.stages) > 0, "path", "no stages", "one stage or more")
    require_task(task, "gram", "lam", remedy="The order is path, prompts, task.")
    require(path.B == prompts.B, "path", f"{path.B} sequences", f"on the prompts given, which are {prompts.B}")
    require(prompts.d == task.d, "task.d", task.d, f"{prompts.d}, the dimension of the prompts")


def _anchor_words(anchor: Any) -> str:
    return "the final layer" if isinstance(anchor, str) else "the predictions given"


def _anchor(
    anchor: Any, path: Trajectory, contexts: Sequence[int], instrument: Instrument | None
) -> Float[Tensor, "B C"] | None:
    """The predictions that distances are measured from, None for exact KRR."""
    allowed = "'exact', 'final', or predictions [B, N]"
    if isinstance(anchor, str):
        require(anchor in ("exact", "final"), "anchor", f"'{anchor}'", allowed)
        if anchor == "exact":
            return None
    require(instrument is None, "anchor", "given beside an instrument", "left out: an instrument has its own")
    have = path.contexts.tolist()
    if isinstance(anchor, str):
        found = path.values[-1]
    else:
        found = as_float_tensor("anchor", anchor, 2)
        require(list(found.shape) == [path.B, path.N], "anchor", list(found.shape), f"{[path.B, path.N]}, as the path")
    require(bool(found.isfinite().all()), "anchor", "not finite", "finite predictions")
    return found[:, [have.index(n) for n in contexts]].to("cpu", torch.float64)


def _require_same(library: Library, prompts: Prompts, task: Any) -> None:
    """Raise InputError unless the library was built on these prompts and this task."""
    ours = prompts.to(torch.float64, "cpu")
    same = library.prompts.x.shape == ours.x.shape and all(
        torch.equal(a, b[library.order]) for a, b in ((library.prompts.x, ours.x), (library.prompts.y, ours.y))
    )
    require(same, "instrument", "prepared on other prompts", "prepared on the prompts given")
    theirs = library.task
    require(theirs == task, "instrument", f"prepared for {theirs}", f"prepared for the task given, {task}")


def _compared(
    path: Trajectory, prompts: Prompts, task: Any, instrument: Instrument | None
) -> tuple[Float[Tensor, "L B C"], tuple[int, ...]]:
    """The predictions that are compared, and their context lengths: the default ones, or the nearest there are."""
    have = path.contexts.tolist()
    if have[-1] > prompts.N:
        raise InputError(
            f"path: predicts at context length {have[-1]}, but the prompts have N = {prompts.N} examples. "
            "Give the prompts the path was made on."
        )
    if have == list(range(1, len(have) + 1)) and len(have) != prompts.N:
        raise InputError(
            f"path: has {len(have)} context lengths, but the prompts have N = {prompts.N}. "
            "Give the prompts the path was made on, or name the lengths with Trajectory(contexts=...)."
        )
    if instrument is None:
        asked = domain_of(task).contexts(task, prompts.N)
        contexts = sorted({min(have, key=lambda n: abs(n - wanted)) for wanted in asked})
    else:
        _require_same(instrument.library, prompts, task)
        contexts = list(instrument.library.contexts)
    missing = [n for n in contexts if n not in have]
    require(not missing, "path.contexts", have, f"such that they hold {missing}, which the instrument compares at")
    return path.values[:, :, [have.index(n) for n in contexts]].to("cpu", torch.float64), tuple(contexts)


def _readable(path: Trajectory, prompts: Prompts) -> tuple[Bool[Tensor, "L"], list[str]]:
    """The stages to test, with finite predictions that vary and not too many; and words on the others."""
    values, stages = path.values.cpu(), path.stages
    finite = values.isfinite().all(-1).all(-1)
    varies = values.nan_to_num().double().flatten(1).std(1) > 1e-6 * prompts.y.double().std().cpu()
    remarks = []
    for wrong, what in (
        (~finite, "have predictions that are NaN or infinite"),
        (finite & ~varies, "predict a constant"),
    ):
        if wrong.any():
            remarks.append(f"{numbered(stages[wrong])} {what}: left out")
    keep = finite & varies
    if int(keep.sum()) > MOST_STAGES:
        index = torch.nonzero(keep).flatten()
        remarks.append(f"{len(index)} stages: {MOST_STAGES} of them tested, evenly spaced")
        keep = torch.zeros_like(keep)
        keep[index[torch.linspace(0, len(index) - 1, MOST_STAGES).round().long()]] = True
    return keep, remarks
