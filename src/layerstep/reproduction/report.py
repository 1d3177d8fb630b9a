"""`layerstep reproduce`: find what exists, make what is missing, and put it all on one page."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from layerstep.errors import FileError, LayerstepError
from layerstep.files import read_json, write_text
from layerstep.reproduction import measurements
from layerstep.reproduction.claims.statements import Claim, claims
from layerstep.reproduction.figures import (
    ablations,
    capacity,
    cg_precision,
    conditioning,
    constructed_vs_trained,
    convergence,
    noise,
    probes,
    seeds,
    trained_noise,
    verdicts,
)
from layerstep.reproduction.figures.constructed import SCHEMES, WALK
from layerstep.reproduction.figures.trained import Found, errors, heat, laws, similarity, steps
from layerstep.reproduction.page.document import Section, render
from layerstep.reproduction.predictions import FILE, predict
from layerstep.reproduction.reference import Row
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.runs import LAWS, RUNS, listing, strangers
from layerstep.reproduction.settings import EVALUATION_SEED
from layerstep.training import GPT

Say = Callable[[str], None]


def chapters(found: Found, constructed: dict[str, Data]) -> list[tuple[str, list[Artefact]]]:
    """The story of the page but for its verdicts: chapters and their artefacts. Trained models appear as they come."""
    places = {"sphere": ("1", "2b"), "uniform": ("4a", "3a"), "gaussian": ("4b", "3b")}
    deep = {"sphere-24": ("6a", 500), "sphere-24-v2": ("6b", 1500)}
    here = [name for name in LAWS if name in found]
    return [
        ("construction", [WALK, SCHEMES]),
        ("solvers", [*(convergence.artefact(law) for law in LAWS), conditioning.ARTEFACT, cg_precision.ARTEFACT]),
        ("models", _present(
            *(errors(found, name, f"Figure {places[name][0]}") for name in here),
            heat(found, "sphere", "Figure 2a"),
            *(steps(found, name, f"Figure {places[name][1]}") for name in here),
            laws(found),
            probes.last_token(found),
            similarity(found, LAWS, "laws", "Figure 5"),
            constructed_vs_trained.artefact(found, constructed) if constructed else None,
            seeds.seeds(found),
        )),
        ("depth", _present(
            *(errors(found, name, f"Figure {place}", most) for name, (place, most) in deep.items() if name in found),
            similarity(found, list(deep), "depth", "Figure 7"),
            ablations.depth(found),
        )),
        ("mechanism", _present(
            ablations.attention(found, "linear"),
            ablations.attention(found, "linear-mean"),
            *_kernel(found),
        )),
        ("capacity", _present(capacity.heads(found), capacity.width(found))),
        ("noise", _present(noise.ARTEFACT, trained_noise.artefact(list(found)))),
    ]  # fmt: skip


def _kernel(found: Found) -> list[Artefact | None]:
    """The arc-cosine kernel: errors, best steps, and heat maps beside those of the Gaussian kernel."""
    if "arccos1" not in found:
        return []
    where = "section on the arc-cosine kernel"
    beside_it = [name for name in (capacity.twin(found, ["arccos1"]), "arccos1") if name in found]
    return [
        errors(found, "arccos1", where),
        ablations.kernel(found),
        similarity(found, beside_it, "kernel", where),
    ]


def _present(*artefacts: Artefact | None) -> list[Artefact]:
    return [artefact for artefact in artefacts if artefact is not None]


def predict_missing(progress: Say, probe: bool) -> dict[str, str]:
    """Probe every model whose weights are here and whose predictions are not; reasons by name where that is not done.

    Without a GPU it is done only when asked for: 38,400 prompts a model take long on a CPU.
    """
    cuda = torch.cuda.is_available()
    failed = {}
    for name, run in RUNS.items():
        if not run.held.usable or (run.folder / FILE).exists() or not any(run.folder.glob("model*.safetensors")):
            continue
        if not (cuda or probe):
            failed[name] = f"{run.folder / FILE} is not there. Its weights are: layerstep reproduce --probe reads them."
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


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `reproduce` found and made. `times`: seconds by part, the longest first."""

    page: Path
    rows: list[Row]
    claims: list[Claim]
    made: list[str]
    found: list[str]
    failed: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]]
    times: dict[str, float] = field(default_factory=dict)
    seconds: float


class _Clock:
    """Seconds by name of what was done."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()
        self.spent: dict[str, float] = {}

    def note(self, name: str) -> None:
        now = time.perf_counter()
        self.spent[name] = self.spent.get(name, 0.0) + now - self.last
        self.last = now


def _seeds() -> str:
    return f"evaluation prompts {EVALUATION_SEED}, bootstrap {measurements.SEED}, verdicts {verdicts.SEED}"


def _seconds(folder: Path, artefacts: list[str]) -> str:
    """How long the results on the page took when they were made, in this call or an earlier one."""
    spent = {}
    for file in [*(folder / f"{name}.json" for name in artefacts), *sorted(folder.glob("measured/*.json"))]:
        with contextlib.suppress(FileError, KeyError, TypeError):  # left by a model that is gone, and broken
            spent[file.stem] = float(read_json(file)["seconds"])
    longest = sorted(spent, key=lambda name: -spent[name])[:4]
    words = ", ".join(f"{name} {spent[name]:.0f}" for name in longest)
    return f"{sum(spent.values()):.0f} in all, in this call and earlier ones; longest: {words}"


def reproduce(out: str | Path = "report", *, probe: bool = False, progress: Say = lambda name: None) -> Report:
    """Build `out`/index.html and the figures and data beside it. Finished work is not repeated.

    What cannot be made or read is named on the page with the reason; the rest still builds. probe: read models that
    have weights and no predictions, even without a GPU.
    """
    clock, folder = _Clock(), Path(out)
    write_text(folder / ".started", "").unlink()  # a folder that cannot be written to is refused before the work
    failed = predict_missing(progress, probe)
    clock.note("probing")
    names, unusable = measurements.usable()
    failed = unusable | failed | strangers()
    numbers: dict[str, Data] = {}
    for name in sorted(names, key=lambda name: RUNS[name].setting):  # one setting's solvers are in memory at a time
        progress(f"measuring {name}")
        try:
            numbers[name] = measurements.measure(name, folder)
        except LayerstepError as error:
            failed[name] = str(error)
    clock.note("measuring the models")
    here = {name: numbers[name] for name in RUNS if name in numbers}
    constructed = constructed_vs_trained.numbers(folder)
    clock.note("measuring the written networks")

    made, found, rows = [], [], []
    sections: list[Section] = []

    def build(chapter: str, artefact: Artefact) -> None:
        try:
            result, there = artefact.result(folder, progress)
        except LayerstepError as error:
            failed[artefact.name] = str(error)
            return
        (found if there else made).append(artefact.name)
        sections.append(Section.of(chapter, artefact, result, folder))
        rows.extend(artefact.rows(result["data"]))
        clock.note(artefact.name)

    def tried() -> list[Claim]:
        return claims(here, {section.name: section.data for section in sections})

    def write(not_yet: dict[str, str]) -> Path:
        facts = {"seeds": _seeds(), "seconds to make": _seconds(folder, made + found)}
        said = failed | not_yet
        page = render(sections, rows, said, listing(failed), here, constructed, facts, tried())
        clock.note("the page")
        return write_text(folder / "index.html", page)

    for chapter, artefacts in chapters(here, constructed):
        for artefact in artefacts:
            build(chapter, artefact)
    say = progress
    if made:  # the verdicts take longest: all else can be read while they are worked out
        early = write({"verdicts": "are being worked out and take minutes. Load this page again."})
        say = lambda words: progress(f"{words}; all else can be read in {early}")  # noqa: E731
    judged, reasons = verdicts.judge(here, folder, say)
    failed |= reasons
    clock.note("verdicts")
    if judged:
        build("verdicts", verdicts.artefact(judged))
    page = write({})
    return Report(
        page=page,
        rows=rows,
        claims=tried(),
        made=made,
        found=found,
        failed=failed,
        runs=listing(failed),
        times=dict(sorted(clock.spent.items(), key=lambda item: -item[1])),
        seconds=time.perf_counter() - clock.start,
    )
