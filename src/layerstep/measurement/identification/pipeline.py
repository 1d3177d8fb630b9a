"""identify: whose steps are these layers? The checks before a judgement, the judgements, and what they rest on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from layerstep.errors import InputError, require, require_count, require_kind
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.identification.crossfit import Evidence, Instrument
from layerstep.measurement.identification.decision import IDENTIFIED, NONE, Judgement, Rule, judge, live_layers
from layerstep.measurement.identification.filters import fit_filter, slopes
from layerstep.measurement.identification.label_interventions import RERUN, LabelTests, label_tests
from layerstep.measurement.identification.library import Library, default_contexts, families
from layerstep.measurement.identification.result import Verdict, layer_table, sub_verdict
from layerstep.tasks import Prompts, Task, Trajectory

FEWEST = 64  # sequences; with 32 the panel counts 3 false claims in 100, with 64 none (docs/measurement.md)
MOST_STAGES = 40  # a longer path is thinned evenly
WINDOW = 4  # layers of a sliding window
NONLINEAR = 0.3  # additivity defect above which a layer is not a fixed linear map of the labels


def identify(
    path: Trajectory,
    prompts: Prompts,
    task: Task,
    *,
    rerun: Callable[[Prompts], Trajectory] | None = None,
    instrument: Instrument | None = None,
    rule: Rule | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """Which solver the layers of `path` follow on `prompts`, or None; `task` gives kernel, bandwidth and ridge.

    rerun: the model as a function from prompts to its path (`probe.path`); with it labels and order are intervened on.
    instrument: a library prepared on the same prompts, to judge several models with. seed: of the bootstrap and of
    the interventions. Sequences may come in any order; the verdict does not depend on it. Prompts of another length
    than the task's are welcome: what is said is about their N.
    """
    require_count(0, seed=seed)
    seed = int(seed)  # NumPy's numbers are welcome, but a verdict goes into JSON files
    _require_types(path, prompts, task, rerun)
    rule = rule or Rule(**read_record()["rule"])
    task = replace(task, N=prompts.N)
    require(len(path.stages) > 0, "path", "no stages", "one stage or more")
    require(path.B == prompts.B, "path", f"{path.B} sequences", f"on the prompts given, which are {prompts.B}")
    if path.B < FEWEST:
        words = f"{path.B} sequences are too few for an interval: give at least {FEWEST}, better 256"
        return Verdict.nothing(words, path, task, rule, seed)
    contexts = _contexts(path, prompts) if instrument is None else list(instrument.library.contexts)
    if instrument is not None:
        _require_same(instrument.library, prompts, task)
    keep, remarks = _readable(path, prompts)
    values = _at(path, contexts)
    if not keep.any():
        return Verdict.nothing("; ".join(remarks), path, task, rule, seed)
    if int(keep.sum()) > MOST_STAGES:
        index = torch.nonzero(keep).flatten()
        chosen = index[torch.linspace(0, len(index) - 1, MOST_STAGES).round().long()]
        remarks.append(f"{len(index)} stages: {MOST_STAGES} of them judged, evenly spaced")
        keep = torch.zeros_like(keep)
        keep[chosen] = True
    tests = None if rerun is None else label_tests(rerun, prompts, task, path.stages[keep], seed=seed)
    if instrument is None:
        instrument = Instrument.prepare(Library.build(prompts, task, contexts, progress))
    evidence = instrument.collect(values[keep], path.stages[keep])
    remarks += _remarks(evidence, rule)
    there = instrument.library.families
    if absent := [family.name for family in families(prompts.N, task.lam) if family not in there]:
        remarks.append(f"{', '.join(absent)} diverge on these prompts: not in the library, so never the answer")

    L = len(evidence.layers)

    def judged(layers: Sequence[int]) -> Judgement:
        judgement = judge(evidence, rule, layers=layers, seed=seed)
        return judgement if tests is None else _withdrawn(judgement, tests)

    overall = judged(range(L))
    windows = range(L - WINDOW + 1) if L > WINDOW else range(0)
    return Verdict(
        overall=overall,
        layers=tuple(judged([index]) for index in range(L)),
        ranges=tuple(judged(range(first, first + WINDOW)) for first in windows),
        table=layer_table(evidence, overall),
        preconditioner=sub_verdict(evidence, overall, rule, seed),
        slopes=slopes(evidence, overall, seed=seed) if overall.fits else None,
        filter=fit_filter(evidence, overall, seed=seed) if overall.fits else None,
        label_tests=tests,
        remarks=tuple(remarks),
        label=path.label,
        task=task,
        sequences=path.B,
        contexts=tuple(contexts),
        rule=rule,
        library_hash=instrument.library.hash,
        calibration=read_record(),
        seed=seed,
    )


def _require_types(path: object, prompts: object, task: object, rerun: object) -> None:
    """Raise InputError unless all are what they are called; a model is no `rerun`: it gives no path."""
    made = "Make one with ls.Trajectory(values, stages), or read it off a model with probes.path(prompts)."
    require_kind("path", path, Trajectory, made)
    require_kind("prompts", prompts, Prompts, "The order is path, prompts, task.")
    require_kind("task", task, Task, "The order is path, prompts, task.")
    function = rerun is None or (callable(rerun) and not isinstance(rerun, nn.Module))
    require(function, "rerun", f"a {type(rerun).__name__}", RERUN)


def _require_same(library: Library, prompts: Prompts, task: Task) -> None:
    """Raise InputError unless the library was built on these prompts and this task."""
    ours = prompts.to(torch.float64, "cpu")
    same = library.prompts.x.shape == ours.x.shape and all(
        torch.equal(a, b[library.order]) for a, b in ((library.prompts.x, ours.x), (library.prompts.y, ours.y))
    )
    require(same, "instrument", "prepared on other prompts", "prepared on the prompts given")
    theirs = replace(library.task, N=prompts.N)
    require(theirs == task, "instrument", f"prepared for {theirs}", f"prepared for the task given, {task}")


def _contexts(path: Trajectory, prompts: Prompts) -> list[int]:
    """The default context lengths, or the nearest the path has."""
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
    return sorted({min(have, key=lambda n: abs(n - wanted)) for wanted in default_contexts(prompts.N)})


def _at(path: Trajectory, contexts: list[int]) -> Float[Tensor, "L B C"]:
    have = path.contexts.tolist()
    missing = [n for n in contexts if n not in have]
    require(not missing, "path.contexts", have, f"such that they hold {missing}, which the instrument compares at")
    return path.values[:, :, [have.index(n) for n in contexts]].to("cpu", torch.float64)


def _readable(path: Trajectory, prompts: Prompts) -> tuple[Bool[Tensor, "L"], list[str]]:
    """Layers with finite predictions that vary, and words on the others."""
    values, stages = path.values.cpu(), path.stages
    finite = values.isfinite().all(-1).all(-1)
    varies = values.nan_to_num().double().flatten(1).std(1) > 1e-6 * prompts.y.double().std().cpu()
    remarks = []
    for wrong, what in (
        (~finite, "have predictions that are NaN or infinite"),
        (finite & ~varies, "predict a constant"),
    ):
        if wrong.any():
            remarks.append(f"{_names(stages[wrong])} {what}: left out")
    return finite & varies, remarks


def _remarks(evidence: Evidence, rule: Rule) -> list[str]:
    """Words on the layers that cannot be judged."""
    blind = evidence.label_share <= rule.label_share
    near = ~live_layers(evidence, rule) & ~blind
    remarks = []
    if blind.any():
        remarks.append(
            f"{_names(evidence.layers[blind])} ignore the labels, as far as a linear reading can see: left out"
        )
    if near.any():
        remarks.append(f"{_names(evidence.layers[near])} are at exact KRR: nothing to tell solvers apart")
    return remarks


def _names(layers: Float[Tensor, "K"]) -> str:
    shown = ", ".join(f"{layer:g}" for layer in layers[:8].tolist())
    return f"layers {shown}{', ...' if len(layers) > 8 else ''}"


def vetoed(judgement: Judgement, tests: LabelTests) -> bool:
    """A solver that is linear in the labels (all but CG) is not claimed when half of the usable layers are not."""
    usable = torch.isin(tests.layers, torch.tensor(judgement.usable, dtype=torch.float64))
    bent = int((tests.additivity[usable] > NONLINEAR).sum())
    return judgement.answer == IDENTIFIED and judgement.solver != "cg" and 2 * bent >= int(usable.sum())


def _withdrawn(judgement: Judgement, tests: LabelTests) -> Judgement:
    """The judgement on a range of layers, its claim withdrawn where the layers are not linear in the labels."""
    if not vetoed(judgement, tests):
        return judgement
    which = "half of the usable layers or more are" if len(judgement.usable) > 1 else "the usable layer is"
    reason = f"{judgement.solver} fits, but {which} not linear in the labels, as it is"
    return replace(judgement, answer=NONE, solver=None, reason=reason)
