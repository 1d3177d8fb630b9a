"""`identify`: a model, or predictions that stand for one, to what its layers do.

ls.identify(model, task)              # everything the model allows: an Identification
ls.identify(path, prompts, task)      # predictions alone: a Verdict
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any, overload

import torch

from layerstep.errors import (
    LayerstepError,
    require,
    require_callable,
    require_choice,
    require_count,
    require_kind,
    require_seed,
)
from layerstep.measurement.combined.readings import Readings
from layerstep.measurement.combined.result import PARTS, Identification
from layerstep.measurement.combined.subject import Subject, open_subject
from layerstep.measurement.identification.crossfit import Instrument
from layerstep.measurement.identification.decision import Rule
from layerstep.measurement.identification.domains import contexts_of
from layerstep.measurement.identification.families import Family
from layerstep.measurement.identification.pipeline import FEWEST, identify_path
from layerstep.measurement.identification.result import Verdict
from layerstep.measurement.interventions.instrument import intervene
from layerstep.measurement.interventions.result import CausalResult
from layerstep.measurement.reading.hooks import EditableReader
from layerstep.measurement.reading.probes import MOST_PROMPTS, Probes, probe
from layerstep.measurement.reading.readouts import NAMES, Head, LayerReaders, Readouts, fit_readers
from layerstep.progress import unasked
from layerstep.solvers import exact
from layerstep.tasks import Prompts, Trajectory, sample

#: Prompts that probes and maps are fitted on when the model has no saved probes.
FIT = 1024
#: Prompts whose labels are replaced, to test whether a layer is linear in them.
RELABELLED = 64
#: A function of the fraction done and of what is being done.
Show = Callable[[float, str], None]


@overload
def identify(
    path: Trajectory,
    prompts: Prompts,
    task: Any,
    *,
    families: Sequence[Family] | None = ...,
    model_fn: Callable[[Prompts], Trajectory] | None = ...,
    instrument: Instrument | None = ...,
    rule: Rule | None = ...,
    seed: int = ...,
    progress: Callable[[float], None] | None = ...,
    rerun: Callable[[Prompts], Trajectory] | None = ...,
    cache: bool = ...,
    anchor: Any = ...,
) -> Verdict: ...
@overload
def identify(
    model: Any,
    task: Any = ...,
    *,
    parts: Sequence[str] = ...,
    prompts: int = ...,
    fit: int = ...,
    seed: int = ...,
    head: Head | None = ...,
    probes: Probes | None = ...,
    families: Sequence[Family] | None = ...,
    progress: Callable[..., None] | None = ...,
    cache: bool = ...,
) -> Identification: ...
def identify(*arguments: Any, **options: Any) -> Verdict | Identification:
    """Which solver do the layers of a model follow? `identify(model, task)`, or `identify(path, prompts, task)`.

    model: a layerstep GPT, a transformer that `construct` made, any module in `ls.Hooked(...)`, a solver, or the
    directory or file of a saved one, which knows its task. Everything it allows is run, and the result says it in three
    sentences: its predictions at every layer (behaviour), its layers read three ways (readings), and what comes out
    when they are written into (interventions). Options: parts=("behaviour", "readings", "interventions"), those that
    are wanted; prompts=256 to compare on; fit=1024, prompts that readers are fitted on; seed=0; head=, of a module of
    your own, from a state [B, T, W] to predictions at the queries; probes=, fitted before; families=; progress=, a
    function of the fraction done and of what is being done; cache=True, keep the library of this seed's prompts.

    path: a Trajectory of predictions on `prompts`, which is all that is known of a model. Options: families=, what the
    layers are compared with, [*ls.FAMILIES, ls.Family(...)] for your own beside the library's, on linear tasks
    [*ls.linear_families(task), ...]; anchor="exact", what distances are measured from: exact kernel ridge regression,
    "final" for the last layer, or predictions [B, N], where a task has no exact answer; model_fn=, the model as
    a function from prompts to its trajectory (`probes.path`), with which labels and order are intervened on;
    instrument=, prepared on the same prompts, for several models; rule=; seed=0; progress=; cache=False.
    """
    given = [*arguments, *options.values()]
    if "path" in options or len(arguments) > 2 or any(isinstance(each, (Trajectory, Prompts)) for each in given):
        answer = identify_path
    else:
        answer = identify_model
    if options.get("progress") is not None:
        return answer(*arguments, **options)
    with unasked("identifying") as show:
        return answer(*arguments, **(options | {"progress": show}))


def identify_model(
    model: Any,
    task: Any = None,
    *,
    parts: Sequence[str] = PARTS,
    prompts: int = 256,
    fit: int = FIT,
    seed: int = 0,
    head: Head | None = None,
    probes: Probes | None = None,
    families: Sequence[Family] | None = None,
    progress: Callable[..., None] | None = None,
    cache: bool = True,
) -> Identification:
    """Everything a model allows, in one result; see `identify`."""
    if head is not None:
        require_callable("head", head, "a function from a state [B, T, W] to predictions at the queries [B, Q]")
    if probes is not None:
        require_kind("probes", probes, Probes, "Fit them with ls.probe, or load them with ls.Probes.load.")
    show = _two_arguments(progress)
    show(0.0, "opening the model")
    subject = open_subject(model, task, head=head, probes=probes)
    return identify_subject(
        subject, parts=parts, prompts=prompts, fit=fit, seed=seed, families=families, progress=show, cache=cache
    )


def identify_subject(
    subject: Subject,
    *,
    parts: Sequence[str] = PARTS,
    prompts: int = 256,
    fit: int = FIT,
    seed: int = 0,
    families: Sequence[Family] | None = None,
    progress: Show = lambda done, words: None,
    cache: bool = True,
) -> Identification:
    """The same of a subject that has been opened."""
    ok = isinstance(parts, Sequence) and not isinstance(parts, str) and len(parts) > 0
    require(ok, "parts", repr(parts), f"some of {', '.join(PARTS)}")
    for part in parts:
        require_choice("parts", part, PARTS)
    require_count(FEWEST, prompts=prompts)
    require_count(8, MOST_PROMPTS, fit=fit)
    require_seed(seed=seed)
    seed, show = int(seed), progress
    seconds: dict[str, float] = {}
    begun = time.monotonic()
    behaviour, own, readings, read_by = None, None, None, "probes fitted on y"
    if "behaviour" in parts or "readings" in parts:
        share = 0.5 if "interventions" in parts else 1.0
        stage = _Predictions(subject, int(prompts), int(fit), seed, families, cache, _part(show, 0.0, share))
        behaviour, own, readings, read_by = stage.results("readings" in parts)
        seconds["predictions"] = time.monotonic() - begun
    begun = time.monotonic()
    interventions, untested = None, {}
    if "interventions" in parts:
        start = 0.5 if len(parts) > 1 else 0.0
        interventions, reason = _interventions(subject, seed, _part(show, start, 1.0))
        seconds["interventions"] = time.monotonic() - begun
        if reason:
            untested["interventions"] = reason
    if "readings" in parts and readings is None:
        untested["readings"] = "it reads out its own predictions" if subject.own else subject.untestable
    show(1.0, "done")
    return Identification(
        label=subject.label,
        about=subject.about,
        task=subject.task,
        read_by=read_by,
        own=own,
        behaviour=behaviour,
        readings=readings,
        interventions=interventions,
        untested=untested,
        parts=tuple(dict.fromkeys(parts)),
        seed=seed,
        seconds=seconds,
    )


class _Predictions:
    """Behaviour and readings: what can be predicted from every layer, and the verdicts on it."""

    def __init__(
        self,
        subject: Subject,
        count: int,
        fit: int,
        seed: int,
        families: Sequence[Family] | None,
        cache: bool,
        show: Show,
    ) -> None:
        self.subject, self.task, self.seed, self.fit, self.show = subject, subject.task, seed, fit, show
        self.prompts = subject.prompts or sample(subject.task, count, seed)
        self.families, self.cache = families, cache

    def results(self, three: bool) -> tuple[Verdict | None, Verdict | None, Readings | None, str]:
        """(behaviour, the verdict on the model's own predictions, readings, how behaviour is read)."""
        subject = self.subject
        if subject.path is not None:
            return self._verdict(subject.path), None, None, "probes fitted on y"
        if subject.own is not None:
            self.show(0.0, "running the network")
            path = subject.own(self.prompts)
            verdict = self._verdict(path, subject.own if path.N > 1 else None)
            return verdict, verdict, None, "its own read-out"
        assert subject.reader is not None
        if not three or not isinstance(subject.reader, EditableReader):
            probes = subject.probes
            if probes is None:
                fitting = _fraction(self.show, 0.0, 0.4, "fitting probes")
                probes = probe(subject.reader, self.task, prompts=self.fit, seed=self.seed, progress=fitting)
            self.show(0.4, "reading the layers")
            return self._verdict(probes.path(self.prompts), probes.path), None, None, "probes fitted on y"
        readouts, readers = self._readouts()
        behaviour = self._verdict(readouts.labels, lambda prompts: readers.read(prompts).labels)
        verdicts = {
            "labels": behaviour,
            "output": self._verdict(readouts.output, reading=f", read by {NAMES['output']}"),
        }
        if readouts.lens is not None:
            verdicts["lens"] = self._verdict(readouts.lens, reading=f", read by {NAMES['lens']}")
        krr = exact(self.prompts, self.task)[:, readouts.labels.contexts - 1]
        readings = Readings.of(subject.reader.sites, readouts, verdicts, krr)
        return behaviour, verdicts.get("lens"), readings, "probes fitted on y"

    def _readouts(self) -> tuple[Readouts, LayerReaders]:
        subject = self.subject
        reader = subject.reader
        assert isinstance(reader, EditableReader)
        readers = fit_readers(
            reader,
            self.task,
            fit=self.fit,
            seed=self.seed,
            head=subject.head,
            contexts=None if reader.mask == "causal" else contexts_of(self.task),
            progress=_fraction(self.show, 0.0, 0.5, "fitting three readers per layer"),
        )
        if subject.probes is not None:  # fitted on more prompts
            readers = readers.with_labels(subject.probes.weights)
        self.show(0.5, "reading the layers")
        return readers.read(self.prompts), readers

    def _instrument(self, contexts: Sequence[int]) -> Instrument:
        compare = _fraction(self.show, 0.55, 0.85, "running every solver on the same prompts")
        wanted = None  # what the task asks for, of what there is
        if list(contexts) != list(range(1, self.task.N + 1)):
            wanted = sorted({min(contexts, key=lambda n: abs(n - each)) for each in contexts_of(self.task)})
        return Instrument.prepare(self.prompts, self.task, wanted, compare, cache=self.cache, families=self.families)

    def _verdict(
        self, path: Trajectory, model_fn: Callable[[Prompts], Trajectory] | None = None, reading: str = ""
    ) -> Verdict:
        if not hasattr(self, "instrument"):
            self.instrument = self._instrument(path.contexts.tolist())
        self.show(0.85, "comparing")
        return identify_path(
            Trajectory(path.values, path.stages, f"{self.subject.label}{reading}", path.contexts),
            self.prompts,
            self.task,
            instrument=self.instrument,
            model_fn=model_fn,
            relabelled=RELABELLED,
            seed=self.seed,
        )


def _interventions(subject: Subject, seed: int, show: Show) -> tuple[CausalResult | None, str]:
    """What is found by writing into the layers, or why it cannot be."""
    if subject.untestable or subject.reader is None:
        return None, subject.untestable
    try:
        if broken := _not_finite(subject):
            return None, f"the states of {', '.join(broken)} are NaN or infinite"
        found = intervene(
            subject.reader, subject.task, seed=seed, progress=lambda done: show(done, "writing into the layers")
        )
    except LayerstepError as error:
        return None, str(error).rstrip(".")
    if all(layer.match is None for layer in found.layers):
        return found, "; ".join(sorted({layer.reason for layer in found.layers}))
    return found, ""


@torch.no_grad()
def _not_finite(subject: Subject) -> list[str]:
    """The sites whose states are NaN or infinite."""
    reader = subject.reader
    assert isinstance(reader, EditableReader)
    recording = reader.run(sample(subject.task, 4, seed=0))
    return [site for site, state in zip(reader.sites, recording, strict=True) if not bool(state.isfinite().all())]


def _two_arguments(progress: Callable[..., None] | None) -> Show:
    """`progress` as a function of the fraction and the words; one that takes the fraction alone is welcome."""
    if progress is None:
        return lambda done, words: None
    require_callable("progress", progress, "a function of the fraction done and of what is being done")
    try:
        inspect.signature(progress).bind(0.0, "")
    except TypeError:
        return lambda done, words: progress(done)
    except ValueError:  # a built-in without a signature
        return lambda done, words: progress(done)
    return progress


def _part(show: Show, start: float, end: float) -> Show:
    return lambda done, words: show(start + (end - start) * done, words)


def _fraction(show: Show, start: float, end: float, words: str) -> Callable[[float], None]:
    return lambda done: show(start + (end - start) * done, words)
