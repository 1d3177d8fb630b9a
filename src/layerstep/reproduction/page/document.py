"""The page: one HTML file that needs nothing else, from result files and the figures drawn from them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from math import isnan
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2

from layerstep.files import provenance
from layerstep.measurement import CLASSES
from layerstep.reproduction.claims.findings import findings
from layerstep.reproduction.claims.statements import Claim
from layerstep.reproduction.figures.panels import LABELS
from layerstep.reproduction.reference import HOURS_A_RUN, Row, outcomes
from layerstep.reproduction.result import Artefact, Data
from layerstep.reproduction.runs import protocol, total_minutes
from layerstep.reproduction.settings import EVALUATION_SEQUENCES, TITLES
from layerstep.training import Model


@dataclass(frozen=True, kw_only=True)
class Section:
    """One artefact as the page shows it."""

    chapter: str
    name: str
    title: str
    caption: str
    svg: str
    summary: tuple[list[str], list[list[str]]] | None
    data: Data
    provenance: dict[str, Any]

    @staticmethod
    def of(chapter: str, artefact: Artefact, result: Data, folder: Path) -> Section:
        return Section(
            chapter=chapter,
            name=artefact.name,
            title=artefact.title,
            caption=artefact.caption,
            svg=inline_svg((folder / f"{artefact.name}.svg").read_text(encoding="utf-8"), artefact.title),
            summary=artefact.summary(result["data"]) if artefact.summary else None,
            data=result["data"],
            provenance=result["provenance"],
        )


def inline_svg(text: str, title: str) -> str:
    """A figure's SVG to stand inside the page: as wide as it was drawn (--drawn) and no wider than the page."""
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="([^"]*)"', r'\1 style="--drawn: \2"', text, count=1)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace('style="fill: #ffffff"', 'style="fill: none"')  # the page is its sheet, and shades its edges
    return text.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def render(
    sections: Sequence[Section],
    rows: Sequence[Row],
    failed: dict[str, str],
    runs: Sequence[dict[str, Any]] = (),
    trained: Mapping[str, Data] = MappingProxyType({}),
    written: Mapping[str, Data] = MappingProxyType({}),
    facts: Mapping[str, str] = MappingProxyType({}),
    claims: Sequence[Claim] = (),
) -> str:
    """The page as text; `trained` and `written` are the numbers of the models one may explore, `facts` how it was
    made."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["shown"] = shown
    environment.tests["numeric"] = lambda cell: bool(re.fullmatch(r"[\d,.e+–\-\[\] ]+", cell))
    source = resources.files("layerstep.reproduction.page")
    template = environment.from_string((source / "page.html").read_text(encoding="utf-8"))
    data = {section.name: section.data for section in sections}
    models = {**trained, **written}
    return template.render(
        chapters={name: [section for section in sections if section.chapter == name] for name in _names(sections)},
        rows=rows,
        counts=outcomes(rows),
        failed=failed,
        findings=findings(data, claims, rows),
        claims=[claim for claim in claims if claim.checks],
        untested=[claim for claim in claims if not claim.checks],
        runs=runs,
        protocol=[(words, f"{paper:,g}", f"{ours:,g}") for words, paper, ours in protocol()],
        gpu_hours={
            "paper": total_minutes(ours=False) / 60,
            "paper_shared": total_minutes(ours=False, shared=True) / 60,
            "ours": total_minutes(ours=True) / 60,
            "quoted": " to ".join(map(str, HOURS_A_RUN)),
        },
        sequences=EVALUATION_SEQUENCES,
        layers=Model().layers,
        classes=len(CLASSES),
        made={**provenance(), **facts},
        has_models=bool(models),
        data=_script_json(
            {
                "titles": TITLES,
                "settings": _curves(data),
                "models": {name: _explored(model) for name, model in models.items()},
                "solvers": LABELS,
                "walk": data.get("walk"),
            }
        ),
        style=(source / "page.css").read_text(encoding="utf-8"),
        script="\n".join((source / name).read_text(encoding="utf-8") for name in ("chart.js", "page.js")),
    )


def _curves(data: Mapping[str, Data]) -> dict[str, Data]:
    """Solver curves by setting: the solvers' own figures first, then those drawn beside a model's."""
    own = [found for name, found in data.items() if name.startswith("convergence-")]
    beside = [found["curves"] for name, found in data.items() if name.startswith("trained-")]
    return {found["setting"]: found for found in reversed([*own, *beside])}


def _explored(model: Data) -> Data:
    """What the page keeps of a model's numbers."""
    keys = ("setting", "contexts", "layers", "layer_mse", "krr")
    label = model.get("label") or f"{model['model']} ({model['trained_steps']:,} steps)"
    parts = ("steps", "sime", "best_step", "best_sime", "r2")
    solvers = {name: {part: solver[part] for part in parts} for name, solver in model["solvers"].items()}
    return {"label": label, **{key: model[key] for key in keys}, "solvers": solvers}


def number(value: float) -> str:
    """Three significant digits for people: 0.0557, 1.21, 3,080."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def shown(row: Row, key: str) -> str:
    """A number of a line: counts without decimals, the paper's as it writes them."""
    value = getattr(row, key)
    if isnan(value):
        return "none"
    if row.whole and key != "runs":
        return f"{value:.0f}"
    short = number(value)
    return f"{value:g}" if key == "paper" and float(short.replace(",", "")) != value else short


def _names(sections: Sequence[Section]) -> list[str]:
    return list(dict.fromkeys(section.chapter for section in sections))


def _script_json(value: Any) -> str:
    """JSON that may stand inside a script element: four digits are all a chart can show, and what is NaN is null."""
    short = json.loads(
        json.dumps(value), parse_float=lambda text: float(f"{float(text):.4g}"), parse_constant=lambda text: None
    )
    return json.dumps(short, separators=(",", ":")).replace("<", "\\u003c")
