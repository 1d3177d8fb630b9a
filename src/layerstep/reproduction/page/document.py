"""The page: one HTML file that needs nothing else, from results and the figures drawn from them."""

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
import numpy as np
from markupsafe import Markup, escape
from matplotlib import colormaps
from matplotlib.colors import to_hex

from layerstep.files import provenance
from layerstep.plotting import INK, context_colors
from layerstep.reproduction.claims import in_a_sentence, key_findings, main_answers, outcome_tally, paper_claims
from layerstep.reproduction.figures.result import Result
from layerstep.reproduction.numbers import (
    CURVE_CONTEXTS,
    EVALUATION_SEQUENCES,
    MEASURED,
    SOLVER_LABELS,
    TITLES,
    ModelNumbers,
    Numbers,
    human_name,
    to_json,
)
from layerstep.reproduction.page.chapters import CHAPTERS, HERO, Results
from layerstep.reproduction.reference import HOURS_PER_RUN, Comparison, outcomes
from layerstep.reproduction.runs import protocol
from layerstep.reproduction.status import Listed, total_minutes


@dataclass(frozen=True, kw_only=True)
class Section:
    """One result as the page shows it."""

    result: Result
    svg: Markup

    @staticmethod
    def read(result: Result, folder: Path) -> Section:
        return Section(result=result, svg=inline_svg(result.svg(folder), result.title))


#: What the tags of a figure on the page can do without. What stands between them is text, and numbers in it stay.
_SHORTER = {
    r"(?<![\w#.])(-?\d{2,}\.\d)\d+": r"\1",
    r"(?<![\w#.])(-?\d\.\d\d)\d+": r"\1",
    r"\s*\n\s*": " ",
    r'^<g id="[^"]*"': "<g",  # matplotlib's names are the same in every figure
    r" font-family: 'DejaVu Sans', sans-serif;": "",  # the style sheet of the page says it
    r' transform="rotate\(-0 [^"]*"': "",
}


#: Lines by context length: from dark to light, and on a dark page from less dark to light.
CONTEXT = [to_hex(color) for color in context_colors(len(CURVE_CONTEXTS))]
CONTEXT_AT_NIGHT = [to_hex(color) for color in colormaps["viridis"](np.linspace(0.35, 1, len(CURVE_CONTEXTS)))]


#: What thousands of marks share, said once: a class of the page's style sheet each.
_STYLES = (
    "fill: none; stroke: #b0b0b0; stroke-opacity: 0.25; stroke-width: 0.6; stroke-linecap: square",  # grids
    "fill: var(--ink); stroke: var(--ink); stroke-width: 0.8",  # ticks
    "fill: var(--ink); stroke: var(--ink); stroke-width: 0.6",
    "fill: none; stroke: var(--ink); stroke-width: 0.8; stroke-linejoin: miter; stroke-linecap: square",  # axes
    "font-size: 9px; text-anchor: middle; fill: var(--ink)",
    "font-size: 9px; text-anchor: end; fill: var(--ink)",
)


def _figure_styles() -> str:
    """Of the page's style sheet: the colours of lines by context length, and what marks share."""
    day, night = (
        " ".join(f"--n{place}: {color};" for place, color in enumerate(colors))
        for colors in (CONTEXT, CONTEXT_AT_NIGHT)
    )
    shared = "\n".join(f"svg .s{place} {{ {style}; }}" for place, style in enumerate(_STYLES))
    return f":root {{ {day} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {night} }} }}\n{shared}\n"


def inline_svg(text: str, title: str) -> Markup:
    """A figure's SVG to stand inside the page: as wide as it was drawn (--drawn) and no wider than the page, in the
    ink of the page, and short: coordinates to a tenth of a point, a style that all marks of a line share said once."""
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="([^"]*)"', r'\1 style="--drawn: \2"', text, count=1)
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", _shorter, text)
    text = re.sub(r">\s+<", "><", text)
    text = re.sub(r' d="([^"]*)"', _as_one_line, text)
    text = re.sub(r"<g( [^>]*)?>((?: ?<use [^>]*/>)+) ?</g>", _with_one_style, text)
    text = text.replace("xlink:href", "href").replace(INK, "var(--ink)")
    for place, color in enumerate(CONTEXT):
        text = text.replace(color, f"var(--n{place})")
    for place, style in enumerate(_STYLES):
        text = text.replace(f'style="{style}"', f'class="s{place}"')
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1))


def _shorter(tag: re.Match[str]) -> str:
    text = tag.group()
    for pattern, short in _SHORTER.items():
        text = re.sub(pattern, short, text)
    return text


def _as_one_line(path: re.Match[str]) -> str:
    """Without the letter that says that a line goes on, which a path may leave out where it has straight lines only."""
    return path.group() if re.search("[CQA]", path.group(1)) else re.sub(r"(?<=\d) L (?=[-\d])", " ", path.group())


def _with_one_style(group: re.Match[str]) -> str:
    attributes, marks = group.group(1) or "", group.group(2)
    styles = set(re.findall(r' style="[^"]*"', marks))
    if len(styles) != 1 or marks.count(" style=") != marks.count("<use") or "style" in attributes:
        return group.group()
    (style,) = styles
    return f"<g{attributes}{style}>{marks.replace(style, '')}</g>"


def render(
    sections: Mapping[str, Section],
    numbers: Numbers,
    failed: Mapping[str, str],
    runs: Sequence[Listed] = (),
    facts: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The page as text. sections: by the name of the result; facts: how it was made."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(shown=shown)
    environment.tests.update(numeric=lambda cell: bool(re.fullmatch(r"[\d,.e+–\-\[\] \xa0†]+", cell)))
    source = resources.files("layerstep.reproduction.page")
    template = environment.from_string((source / "page.html").read_text(encoding="utf-8"))

    def here(results: Results) -> list[Section]:
        return [sections[each.name] for each in results(numbers) if each and each.name in sections]

    comparisons = [each for name in sections for each in sections[name].result.comparisons]
    claims = paper_claims(numbers)
    models = bool(numbers.models or numbers.constructed)
    blocks = {
        "walker": numbers.walk,
        "errors": models or numbers.curves,
        "similarity": models,
        "claims": claims,
        "numbers": comparisons,
        "runs": runs,
        "protocol": True,
        "made": True,
    }
    there = {name for name, found in blocks.items() if found}
    parts = [part for chapter in CHAPTERS for part in chapter.parts if part.block in there or here(part.results)]
    text = template.render(
        chapters=CHAPTERS,
        numbers=numbers,
        hero=here(HERO),
        here=here,
        html=Markup,
        sentence=in_a_sentence(numbers),
        answers=main_answers(numbers),
        comparisons=comparisons,
        counts=outcomes(comparisons),
        failed=failed,
        findings=key_findings(numbers, claims, comparisons),
        claims=[claim for claim in claims if claim.checks],
        tally=outcome_tally(claims),
        untested=[claim for claim in claims if not claim.checks],
        runs=runs,
        protocol=[(words, f"{paper:,g}", f"{ours:,g}") for words, paper, ours in protocol()],
        gpu_hours={
            "paper": total_minutes(ours=False) / 60,
            "paper_shared": total_minutes(ours=False, shared=True) / 60,
            "ours": total_minutes(ours=True) / 60,
            "quoted": " to ".join(map(str, HOURS_PER_RUN)),
        },
        sequences=EVALUATION_SEQUENCES,
        made={**provenance(), **facts},
        blocks=there,
        places={*sections, *(chapter.id for chapter in CHAPTERS), *(part.id for part in parts)},
        parts=parts,
        data=Markup(_script_json(_explorers(numbers))),
        style=Markup(_figure_styles() + (source / "page.css").read_text(encoding="utf-8")),
        script=Markup("\n".join((source / name).read_text(encoding="utf-8") for name in ("chart.js", "page.js"))),
    )
    return printable(text)


def printable(text: str) -> str:
    """Text that can be written anywhere: names of files that are not UTF-8 are shown escaped."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _explorers(numbers: Numbers) -> dict[str, Any]:
    """What the interactive parts of the page show."""
    curves = {found.setting: to_json(found) for found in reversed(numbers.curves.values())}
    models = {**numbers.models, **numbers.constructed}
    return {
        "titles": TITLES,
        "settings": curves,
        "models": {name: _explored(name, model) for name, model in models.items()},
        "solvers": SOLVER_LABELS,
        "walk": to_json(numbers.walk),
    }


def _explored(name: str, model: ModelNumbers) -> dict[str, Any]:
    parts = ("steps", "best_step", "best_sime", "r2")
    solvers = {solver: {part: getattr(found, part) for part in parts} for solver, found in model.solvers.items()}
    for solver, found in model.solvers.items():  # colours, a third of the page
        solvers[solver]["sime"] = [[round(value, 2) for value in line] for line in found.sime]
    keys = ("setting", "contexts", "layers", "layer_mse", "krr")
    label = model.label if name in MEASURED else human_name(name)
    return {"label": label, **{key: getattr(model, key) for key in keys}, "solvers": solvers}


def number(value: float) -> str:
    """Three significant digits for people: 0.0557, 1.21, 3,080."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def shown(comparison: Comparison, key: str) -> str:
    """A number of a line: counts without decimals, the paper's as it writes them."""
    value = getattr(comparison, key)
    if isnan(value):
        return "none"
    if comparison.whole and key != "seed_variation":
        return f"{value:.0f}"
    short = number(value)
    return f"{value:g}" if key == "paper" and float(short.replace(",", "")) != value else short


def _script_json(value: Any) -> str:
    """JSON that may stand inside a script element: three digits are all a chart shows, and what is NaN is null."""
    short = json.loads(json.dumps(value), parse_float=_three_digits, parse_constant=lambda text: None)
    return json.dumps(short, separators=(",", ":")).replace("<", "\\u003c")


def _three_digits(text: str) -> float:
    value = float(f"{float(text):.3g}")
    return int(value) if value.is_integer() and abs(value) < 1e6 else value
