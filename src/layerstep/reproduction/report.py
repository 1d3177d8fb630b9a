"""`layerstep reproduce`: find what exists, make what is missing, and put it all on one page."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Literal

import torch

from layerstep.engines.choice import require_engine
from layerstep.errors import FileError, LayerstepError, as_float, as_path, require_callable, require_choice
from layerstep.files import read_json, require_writable, write_text
from layerstep.reproduction.claims import Claim, outcome_counts, paper_claims
from layerstep.reproduction.numbers import (
    BOOTSTRAP_SEED,
    EVALUATION_SEED,
    VERDICT_SEED,
    Numbers,
    Store,
    collect,
    make_verdicts,
    measure_interventions,
    measure_linear_models,
    model_verdicts,
    to_json,
)
from layerstep.reproduction.page.chapters import all_results
from layerstep.reproduction.page.document import Section, printable, render
from layerstep.reproduction.predictions import FILE, usable_models
from layerstep.reproduction.probing import predict
from layerstep.reproduction.reference import Comparison, outcomes
from layerstep.reproduction.runs import RUNS, models_in, shipped_numbers
from layerstep.reproduction.status import Listed, listing, run_status, total_minutes, unknown_folders
from layerstep.reprs import brief
from layerstep.training import GPT

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `reproduce` found and made. `times`: seconds by part, the longest first."""

    page: Path
    comparisons: list[Comparison]
    claims: list[Claim]
    made: list[str]
    found: list[str]
    failed: dict[str, str]
    runs: list[Listed]
    times: dict[str, float]
    seconds: float

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        return {
            "page": printable(str(self.page)),
            "made": self.made,
            "found": self.found,
            "failed": self.failed,
            "seconds": round(self.seconds, 2),
            "times": {name: round(seconds, 2) for name, seconds in self.times.items()},
            "runs": to_json(self.runs),
            "outcomes": outcomes(self.comparisons),
            "rows": [each.to_dict() for each in self.comparisons],
            "claims": [{**to_json(claim), "outcome": claim.outcome} for claim in self.claims],
        }

    def lines(self) -> list[str]:
        """The outcome for people: what was made, what of the runs is here, what is missing and what failed."""
        made = f"  {len(self.made)} results made, {len(self.found)} found, in {self.seconds:.1f} s"
        said = [str(self.page), made]
        slowest = [f"{name} {seconds:.1f} s" for name, seconds in self.times.items() if seconds >= 1][:5]
        said += [f"  longest: {', '.join(slowest)}"] if slowest else []
        for outcome, count in outcomes(self.comparisons).items():
            said.append(f"  {count} numbers of the paper {outcome}")
        said.append(f"  {len(self.claims)} claims of the paper: {outcome_counts(self.claims)}")
        here = [run for run in self.runs if run.trained_steps is not None]
        missing = [run for run in self.runs if run.trained_steps is None]
        said.append(f"  {len(here)} of {len(self.runs)} training runs are here" + (":" if here else ""))
        said += [f"    {run.name}: {run.status}" for run in here]
        said += ["  missing:"] if missing else []
        said += [f"    {run.command}   # {run.gpu_minutes:.0f} min on one H200" for run in missing]
        paper, shared, ours = (
            total_minutes(ours=mine, shared=stacked) / 60
            for mine, stacked in ((False, False), (False, True), (True, False))
        )
        said.append(
            f"  all of the paper's own runs: {paper:.1f} h on one H200, {shared:.1f} h with models of one shape "
            f"stacked and small ones round-robin; ours {ours:.1f} h more"
        )
        said += ["  left out or not made:"] if self.failed else []
        return [printable(line) for line in said + [f"    {name}: {reason}" for name, reason in self.failed.items()]]


class _Clock:
    """Seconds by name of what was done."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()
        self.spent: dict[str, float] = {}

    def note(self, name: str) -> None:
        now = time.perf_counter()
        self.spent[name] = self.spent.get(name, 0.0) + now - self.last
        self.last = now


class _Build:
    """A report under way: what is on the page so far."""

    def __init__(self, folder: Path, progress: Say) -> None:
        self.folder, self.progress, self.clock = folder, progress, _Clock()
        self.failed: dict[str, str] = {}
        self.made: list[str] = []
        self.found: list[str] = []
        self.sections: dict[str, Section] = {}
        self.measuring = "looking at what exists"

    def measure(self, name: str) -> None:
        """Say what is measured now; the time since the last call went to what was said then."""
        self.clock.note(self.measuring)
        self.measuring = f"measuring {name}"
        self.progress(self.measuring)

    def results(self, numbers: Numbers) -> None:
        """Write every result that is not on the page yet. One that cannot be written is named, the rest is built."""
        for result in all_results(numbers):
            if result.name in self.sections or result.name in self.failed:
                continue
            try:
                written = result.write(self.folder, self.progress)
                self.sections[result.name] = Section.read(result, self.folder)
                (self.made if written else self.found).append(result.name)
            except LayerstepError as error:
                self.failed[result.name] = str(error)
            self.clock.note(result.name)

    def page(self, numbers: Numbers, **not_yet: str) -> Path:
        seeds = f"evaluation prompts {EVALUATION_SEED}, bootstrap {BOOTSTRAP_SEED}, verdicts {VERDICT_SEED}"
        facts = {"seeds": seeds, "seconds to make": self._seconds()}
        text = render(self.sections, numbers, self.failed | not_yet, listing(self.failed), facts)
        self.clock.note("the page")
        return write_text(self.folder / "index.html", text)

    def _files(self) -> Iterator[Path]:
        """Files that say how long they took."""
        yield from (self.folder / f"{name}.json" for name in self.sections)
        here = {
            file.name: file for folder in (shipped_numbers(), self.folder / "numbers") for file in folder.glob("*.json")
        }
        yield from here.values()

    def _seconds(self) -> str:
        """How long the results on the page took when they were made, in this call or an earlier one."""
        spent = {}
        for file in self._files():
            with contextlib.suppress(FileError, KeyError, TypeError):  # left by a model that is gone, and broken
                seconds = as_float(read_json(file)["seconds"])
                spent[file.stem] = spent.get(file.stem, 0) + (seconds if 0 <= seconds < inf else 0)
        longest = sorted(spent, key=lambda name: -spent[name])[:4]
        words = ", ".join(f"{name} {spent[name]:.0f}" for name in longest)
        return f"{sum(spent.values()):.0f} in all, in this call and earlier ones; longest: {words}"


def probe_missing(progress: Say, probe: bool) -> dict[str, str]:
    """Probe every model whose weights are here and whose predictions are not; reasons by name where that is not done.

    Without a GPU it is done only when asked for: 38,400 prompts per model take long on a CPU.
    """
    cuda = torch.cuda.is_available()
    failed = {}
    for name, run in RUNS.items():
        file = run.folder / FILE
        if file.exists() or not any(run.folder.glob("model*.safetensors")) or not run_status(run).usable:
            continue
        if not (cuda or probe):
            failed[name] = f"{file} is not there. Its weights are: layerstep reproduce --probe reads them."
            continue
        progress(f"probing {name}: minutes on a GPU, much longer on a CPU")
        try:
            model = GPT.from_pretrained(run.folder, device="cuda" if cuda else "cpu")
            found, fitted = predict(model, run.setting)
            fitted.save(run.folder / "probes.safetensors")
            found.save(run.folder)
        except LayerstepError as error:
            failed[name] = str(error)
    return failed


def reproduce(
    out: str | Path = "report",
    *,
    models: str | Path | None = None,
    probe: bool = False,
    recompute: bool = False,
    measure: Literal["kept", "missing", "outdated"] = "kept",
    on: Any = None,
    options: dict[str, Any] | None = None,
    progress: Say = lambda name: None,
) -> Report:
    """Build `out`/index.html and the figures and data beside it. Finished work is not repeated.

    What cannot be made or read is named on the page with the reason; the rest still builds. models: the directory of
    the trained models, results/models of the clone unless given. probe: read models that have weights and no
    predictions, even without a GPU. recompute: take no number from those shipped beside the models. measure: "missing"
    writes into the models with weights that results/interventions does not have, and measures those of results/linear,
    about a minute each; "outdated" also what other code measured. on: an engine that the verdicts are made on, with its
    options, as in `sweep`.
    """
    folder = as_path("out", out, "It is the directory of the report.")
    require_callable("progress", progress, "a function of a sentence")
    require_choice("measure", measure, ("kept", "missing", "outdated"))
    place = None if models is None else as_path("models", models, "It is the directory of the trained models.")
    if place is not None and not place.is_dir():
        raise FileError(f"models = {str(place)!r} is not a directory. Give the one that has a directory per model.")
    require_engine(on, options or {})
    require_writable(folder / "index.html")  # before the work, not after it
    with models_in(place):
        if measure != "kept":
            measure_interventions(progress, again=measure == "outdated")
            measure_linear_models(progress, again=measure == "outdated")
        return _reproduce(folder, probe, recompute, on, options or {}, progress)


def _reproduce(folder: Path, probe: bool, recompute: bool, on: Any, options: dict[str, Any], progress: Say) -> Report:
    build = _Build(folder, progress)
    unprobed = probe_missing(progress, probe)
    build.clock.note("probing")
    names, unusable = usable_models()
    build.failed |= unusable | unprobed | unknown_folders()
    store = Store(folder / "numbers", None if recompute else shipped_numbers())

    numbers = collect(store, names, build.failed, build.measure)
    build.clock.note(build.measuring)
    build.results(numbers)
    verdicts_say = progress
    if build.made:  # the verdicts take longest: all else can be read while they are worked out
        early = build.page(numbers, verdicts="are being worked out and take minutes. Load this page again.")
        verdicts_say = lambda words: progress(f"{words}; all else can be read in {early}")  # noqa: E731
    if on is not None:
        make_verdicts(store, numbers.models, on, options, verdicts_say)
    verdicts, reasons = model_verdicts(store, numbers.models, verdicts_say)
    build.failed |= reasons
    build.clock.note("verdicts")
    numbers = replace(numbers, verdicts=verdicts)
    build.results(numbers)
    page = build.page(numbers)
    times = dict(sorted(build.clock.spent.items(), key=lambda item: -item[1]))
    return Report(
        page=page,
        comparisons=[each for section in build.sections.values() for each in section.result.comparisons],
        claims=paper_claims(numbers),
        made=build.made,
        found=build.found,
        failed=build.failed,
        runs=listing(build.failed),
        times=times,
        seconds=time.perf_counter() - build.clock.start,
    )
