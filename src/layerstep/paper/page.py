"""The page: one HTML file that needs nothing else, from result files and the figures drawn from them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path as FilePath
from typing import Any

import jinja2

from layerstep.files import provenance
from layerstep.paper.artefact import Artefact, Data
from layerstep.paper.quoted import Row
from layerstep.paper.runs import total_minutes
from layerstep.paper.settings import TITLES

OUTCOMES = ("reproduced", "not reproduced", "cannot be compared")


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
    def of(chapter: str, artefact: Artefact, result: Data, folder: FilePath) -> Section:
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
    """A figure's SVG to stand inside the page, as wide as it was drawn and no wider than the page."""
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="([^"]*)"', r'\1 style="max-width: \2"', text, count=1)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return text.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def render(
    sections: Sequence[Section], rows: Sequence[Row], failed: dict[str, str], runs: Sequence[dict[str, Any]] = ()
) -> str:
    """The page as text."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = number
    environment.tests["numeric"] = lambda cell: bool(re.fullmatch(r"[\d,.e+–-]+", cell))
    source = resources.files("layerstep.paper")
    template = environment.from_string((source / "page.html").read_text(encoding="utf-8"))
    counts = Counter(row.outcome for row in rows)
    data = {section.name: section.data for section in sections}
    settings = {found["setting"]: found for name, found in data.items() if name.startswith("convergence-")}
    return template.render(
        chapters={name: [section for section in sections if section.chapter == name] for name in _names(sections)},
        rows=rows,
        counts=[(outcome, counts[outcome]) for outcome in OUTCOMES if counts[outcome]],
        failed=failed,
        findings=findings(data),
        runs=runs,
        gpu_hours={
            "paper": total_minutes(ours=False) / 60,
            "paper_together": total_minutes(ours=False, side_by_side=True) / 60,
            "ours": total_minutes(ours=True) / 60,
        },
        made=provenance(),
        data=_script_json({"titles": TITLES, "settings": settings, "walk": data.get("walk")}),
        style=(source / "page.css").read_text(encoding="utf-8"),
        script=(source / "page.js").read_text(encoding="utf-8"),
    )


def findings(data: dict[str, Data]) -> list[str]:
    """What came out, in sentences made from the result files."""
    sentences = []
    if "schemes" in data:
        compact, paper = (data["schemes"]["schemes"][name] for name in ("compact", "paper"))
        sentences.append(
            f"A transformer of {compact['depth']:,} blocks of width {compact['width']} is guaranteed to stay within "
            f"{data['schemes']['error']:g} of exact kernel ridge regression in the paper's setting, without training; "
            f"the paper's own network needs {paper['depth']:,} blocks for the same promise."
        )
    verdicts = data.get("verdicts", {})
    trained = {name: found for name, found in verdicts.items() if "truth" not in found}
    if trained:
        named = [f"{name} ({found['solver']})" for name, found in trained.items() if found["solver"]]
        nearest = ", ".join(f"{name}: {found['nearest']}, leaving {found['U']:.0%}" for name, found in trained.items())
        steps = " to ".join(f"{count:,}" for count in sorted({found["steps"] or 0 for found in trained.values()}))
        sentences.append(
            f"Of {len(trained)} trained transformers ({steps} training steps), {len(named) or 'none'} can be said to "
            "follow a solver of the library"
            + (f": {', '.join(named)}." if named else f". Nearest, and what it leaves unexplained: {nearest}.")
        )
    controls = {name: found for name, found in verdicts.items() if "truth" in found}
    if controls:
        answers = "; ".join(f"{name}: {found['headline']}" for name, found in controls.items())
        right = sum(found["solver"] == found["truth"] for found in controls.values())
        fooled = sum(found["won"] > 6 for found in controls.values())
        sentences.append(
            f"Of {len(controls)} controls whose answer is known, the instrument answers {right} rightly ({answers}); "
            f"the similarity metric of the paper calls {fooled} of them Richardson."
        )
    return sentences


def number(value: float) -> str:
    """Three significant digits for people: 0.0557, 1.21, 3,080."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def _names(sections: Sequence[Section]) -> list[str]:
    return list(dict.fromkeys(section.chapter for section in sections))


def _script_json(value: Any) -> str:
    """JSON that may stand inside a script element; four significant digits are all a chart can show."""
    short = json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.4g}"))
    return json.dumps(short, separators=(",", ":")).replace("<", "\\u003c")
