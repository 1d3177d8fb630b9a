"""`layerstep reproduce`: find what exists, make what is missing, and put it all on one page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import torch

from layerstep.errors import LayerstepError
from layerstep.files import write_text
from layerstep.paper import cg_precision, conditioning, convergence, noise, trained, trained_noise, verdicts, written
from layerstep.paper.artefact import Artefact, Data
from layerstep.paper.page import Section, render
from layerstep.paper.predictions import predict
from layerstep.paper.quoted import Row
from layerstep.paper.runs import RUNS, listing
from layerstep.training import GPT

LAWS = ("sphere", "uniform", "gaussian")


def chapters() -> list[tuple[str, list[Artefact]]]:
    """The story of the page: its chapters, and the artefacts each shows. Trained models appear as they come."""
    models = trained.available()
    solvers = [*(convergence.artefact(law) for law in LAWS), conditioning.ARTEFACT, cg_precision.ARTEFACT]
    under_noise = [trained_noise.artefact(models)] if set(models) & set(trained_noise.COLUMNS) else []
    return [
        ("construction", [written.WALK, written.SCHEMES]),
        ("solvers", solvers),
        ("models", [artefact for name in models for artefact in trained.artefacts(name)]),
        ("verdicts", [verdicts.artefact(models)]),
        ("noise", [noise.ARTEFACT, *under_noise]),
    ]


def predict_missing(progress: Callable[[str], None]) -> dict[str, str]:
    """Probe every model whose weights are here and whose predictions are not; reasons by name where that fails."""
    failed = {}
    for name, paper_run in RUNS.items():
        if paper_run.trained_steps is None or name in trained.available():
            continue
        progress(f"probing {name}: minutes on a GPU, longer on a CPU")
        try:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            model = GPT.from_pretrained(paper_run.folder, device=device)
            found, probes = predict(model, paper_run.setting)
            probes.save(paper_run.folder / "probes.safetensors")
            found.save(paper_run.folder)
        except LayerstepError as error:
            failed[name] = str(error)
    return failed


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `reproduce` found and made."""

    page: FilePath
    rows: list[Row]
    made: list[str]
    found: list[str]
    failed: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]]
    seconds: float


def reproduce(out: str | FilePath = "report", *, progress: Callable[[str], None] = lambda name: None) -> Report:
    """Build `out`/index.html and the figures and data beside it. Finished work is not repeated.

    An artefact that cannot be made is named on the page with the reason; the rest still builds.
    """
    start = time.perf_counter()
    folder = FilePath(out)
    made, found, failed = [], [], {}
    sections: list[Section] = []
    rows: list[Row] = []
    failed |= predict_missing(progress)
    for chapter, artefacts in chapters():
        for artefact in artefacts:
            result: Data | None = artefact.load(folder)
            if result is not None:
                found.append(artefact.name)
            else:
                progress(artefact.title)
                try:
                    result = artefact.make(folder)
                except LayerstepError as error:
                    failed[artefact.name] = str(error)
                    continue
                made.append(artefact.name)
            sections.append(Section.of(chapter, artefact, result, folder))
            rows += artefact.rows(result["data"])
    runs = listing()
    page = write_text(folder / "index.html", render(sections, rows, failed, runs))
    return Report(
        page=page,
        rows=rows,
        made=made,
        found=found,
        failed=failed,
        runs=runs,
        seconds=time.perf_counter() - start,
    )
