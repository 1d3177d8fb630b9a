"""The page stands alone, says what failed, and works in a real browser."""

import dataclasses
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from layerstep.errors import InputError
from layerstep.plotting import INK, figure, save
from layerstep.reproduction import report as module
from layerstep.reproduction import runs
from layerstep.reproduction.figures import steps
from layerstep.reproduction.numbers import Numbers, constructed, noise, planted_paths, solvers
from layerstep.reproduction.page import document
from layerstep.reproduction.page.chapters import CHAPTERS
from layerstep.reproduction.reference import Comparison
from layerstep.reproduction.report import reproduce

from . import test_claims

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def refuse(*of):
    raise InputError("sigma = 0: must be above 0.")


@pytest.fixture(scope="module")
def report(tmp_path_factory, plant):
    """A small page with one planted model, and one result that cannot be made."""
    patch = pytest.MonkeyPatch()
    sequences = {"sphere": 256, "uniform": 4, "gaussian": 4}
    real = solvers.solver_curves
    patch.setattr(solvers, "solver_curves", lambda store, name, steps: real(store, name, steps, sequences[name]))
    ridge = noise.ridge_noise
    patch.setattr(noise, "ridge_noise", lambda store: ridge(store, 32, 20))
    patch.setattr(noise, "model_noise", lambda store, names: {})
    paths = planted_paths.compare_planted_paths
    patch.setattr(planted_paths, "compare_planted_paths", lambda store: paths(store, 24))
    patch.setattr(solvers, "conditioning", refuse)
    precision = solvers.cg_precision
    patch.setattr(solvers, "cg_precision", lambda store: precision(store, 4, 4))
    walk = constructed.constructed_walk
    patch.setattr(constructed, "constructed_walk", lambda store: walk(store, 4, 9, 0.1))
    patch.setattr(constructed, "constructed_schemes", lambda store: None)
    patch.setattr(constructed, "constructed_models", lambda store: {})
    early: list[str] = []

    def judge(store, models, progress):
        early.append((store.folder.parent / "index.html").read_text())
        return {}, {"verdict on sphere": "path: too short."}

    patch.setattr(module, "model_verdicts", judge)
    patch.setattr(runs, "MODELS", tmp_path_factory.mktemp("models"))
    plant("sphere")
    folder = tmp_path_factory.mktemp("report")
    first = reproduce(folder)
    second = reproduce(folder)
    patch.undo()
    return first, second, early


def test_the_page_can_be_read_while_verdicts_are_worked_out(report):
    first, _, (early, again) = report
    assert 'id="convergence-uniform"' in early
    assert "being worked out" in early
    assert "being worked out" not in first.page.read_text()
    assert "being worked out" not in again  # nothing to make: the finished page stays


def test_finished_work_is_not_repeated(report):
    first, second, _ = report
    assert first.made[0] == "walk"
    assert {"trained-sphere", "heat-sphere", "steps-sphere", "noise", "convergence-uniform"} <= {*first.made}
    assert second.made == []
    assert second.found == first.made


def test_what_cannot_be_made_is_said_and_the_rest_is_there(report):
    text = report[0].page.read_text()
    assert "<b>conditioning</b>: sigma = 0: must be above 0." in text
    assert "<b>verdict on sphere</b>: path: too short." in text
    assert 'id="convergence-uniform"' in text


def test_every_check_has_its_mark(report):
    marks = re.findall(r'<li class="(yes|no|unsure)">', report[0].page.read_text())
    checks = [check.supported for claim in report[0].claims for check in claim.checks]
    assert sorted(marks) == sorted({True: "yes", False: "no", None: "unsure"}[supported] for supported in checks)
    assert {"yes", "no", "unsure"} <= {*marks}


def test_the_page_fetches_nothing(report):
    text = report[0].page.read_text()
    links = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert links
    outside = [
        link
        for link in links
        if not link.startswith(("#", "data:")) and not re.fullmatch(r"[\w.-]+\.(csv|pdf|png)", link)
    ]
    assert outside == []
    assert "@import" not in text
    assert "fetch(" not in text
    folder = report[0].page.parent
    assert all((folder / link).exists() for link in links if not link.startswith(("#", "data:")))


def links(text):
    """Where the links inside a page lead, and the places there are."""
    return set(re.findall(r'href="#([^"]+)"', text)), set(re.findall(r'\bid="([^"]+)"', text))


def test_links_inside_the_page_lead_somewhere(report):
    wanted, there = links(report[0].page.read_text())
    assert {"models", "instead", "claims", "construction"} <= wanted <= there
    assert not {"seeds", "verdicts"} & there  # neither is on this page, so the words for them do not link


def test_the_claims_lead_to_the_seeds_where_there_are_some():
    model = test_claims.model()
    names = ("sphere", "sphere-fast", "sphere-fast-seed-1")
    numbers = Numbers(models={name: dataclasses.replace(model, name=name) for name in names})
    result = steps.by_seed(numbers)
    assert result is not None
    for sections in ({}, {"seeds": document.Section(result=result, svg=document.inline_svg("<svg/>", ""))}):
        wanted, there = links(document.render(sections, numbers, {}))
        assert ("seeds" in wanted) == ("seeds" in there) == bool(sections)


def test_every_number_of_the_table_is_on_the_page(report):
    text = report[0].page.read_text()
    table = text[text.index('id="numbers"') : text.index('id="runs"')]
    assert table.count("<tr class=") == len(report[0].comparisons) == 2 + 36
    row = report[0].comparisons[-4]
    assert f">{document.number(row.ours)}<" in text


def test_the_page_says_how_it_was_made(report):
    for each in report[:2]:  # what an earlier call made keeps its time
        words = re.search(r"<dt>seconds to make</dt><dd>(\d+) in all", each.page.read_text())
        assert words is not None
        assert int(words.group(1)) >= 1
    assert "<dt>seeds</dt><dd>evaluation prompts 256, bootstrap 1, verdicts 256</dd>" in report[0].page.read_text()


def test_the_page_shows_the_paper_s_hyperparameters_and_that_ours_are_the_same(report):
    assert all(paper == ours for _, paper, ours in runs.protocol())
    text = report[0].page.read_text()
    assert 'training steps</td><td class="n">500,000</td><td class="n">500,000</td>' in text


def test_the_paper_s_numbers_are_shown_as_it_writes_them():
    row = Comparison(quantity="q", where="w", paper=0.9275, ours=0.86213, low=0.8, high=0.9)
    assert (document.shown(row, "paper"), document.shown(row, "ours")) == ("0.9275", "0.862")
    assert document.shown(dataclasses.replace(row, paper=11, whole=True), "paper") == "11"
    assert document.shown(dataclasses.replace(row, ours=float("nan")), "ours") == "none"


@pytest.mark.parametrize(("value", "text"), [(0.05573, "0.0557"), (1.0, "1.00"), (12.345, "12.3"), (3080.2, "3,080")])
def test_numbers_are_shown_with_three_digits(value, text):
    assert document.number(value) == text


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.id)
def test_an_answer_is_short_and_the_rest_is_folded(chapter):
    assert len(re.sub("<[^>]+>", " ", chapter.said(Numbers())).split()) <= 150
    assert len(list(chapter.first(Numbers()))) <= 2


def test_what_is_open_on_the_page_is_short_and_so_is_the_page(report):
    found = runpy.run_path(str(ROOT / "benchmarks" / "page.py"))["facts"](report[0].page)
    assert 300 < found["open words"] < 2000
    assert found["open words"] < found["all words"] / 2
    assert found["bytes"] < 3_000_000


def test_a_figure_is_drawn_in_the_ink_of_the_page(report):
    drawn = "".join(re.findall(r"(?s)<svg.*?</svg>", report[0].page.read_text()))
    assert "var(--ink)" in drawn
    assert INK not in drawn


@pytest.mark.parametrize(
    ("drawn", "shown"),
    [
        ('<path d="M 12.3456 0.0512"/>', '<path d="M 12.3 0.05"/>'),
        ('<path d="M 1 2 L 3 4 L -5 6 z M 7 8 L 9 1"/>', '<path d="M 1 2 3 4 -5 6 z M 7 8 9 1"/>'),
        ('<path d="M 1 2 C 3 4 5 6 7 8 L 9 1"/>',) * 2,
        ('<g id="axes_1"><g>', "<g><g>"),
        ('<text x="1.2345">R² = 0.8553, 0.001</text>', '<text x="1.23">R² = 0.8553, 0.001</text>'),
        ('<path style="stroke: #440154"/>', '<path style="stroke: var(--n0)"/>'),
        ('<g><use x="1" style="fill: red"/><use x="2" style="fill: red"/></g>',
         '<g style="fill: red"><use x="1"/><use x="2"/></g>'),
        ('<g><use x="1" style="fill: red"/><use x="2" style="fill: blue"/></g>',) * 2,
    ],
)  # fmt: skip
def test_a_figure_on_the_page_is_shorter_and_the_same(drawn, shown):
    assert shown in document.inline_svg(f"<svg>{drawn}</svg>", "")


def open_in_browser(page, tmp_path, script="", width=1280):
    """The page's document after `script` ran in it, and what the browser complained about."""
    copy = tmp_path / "page.html"
    copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    more = f"--disable-component-update --disable-sync --user-data-dir={tmp_path / 'profile'} --window-size={width},900"
    done = subprocess.run(
        [str(CHROMIUM), *flags.split(), *more.split(), "--enable-logging=stderr", "--virtual-time-budget=2000",
         "--dump-dom", copy.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "Uncaught" not in done.stderr
    assert "SyntaxError" not in done.stderr
    return done.stdout


browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: the page was not opened in a browser")
PRESS = """
const press = (id, ...keys) => keys.forEach(key =>
  document.querySelector(`#${id} .chart svg`).dispatchEvent(new KeyboardEvent("keydown", {key})));
const choose = (id, name, value) => {
  const input = document.querySelector(`#${id} [data-control=${name}]`);
  input.value = value;
  input.dispatchEvent(new Event("input"));
};
"""


def said(document, root):
    """The text of an explorer's read-out."""
    part = document[document.index(f'id="{root}"') :]
    words = re.search(r"<output[^>]*>(.*?)</output>(?:\s*<ul[^>]*>(.*?)</ul>)?", part, re.DOTALL)
    assert words is not None
    return re.sub(r"<[^>]+>", "", " ".join(filter(None, words.groups())))


@browser
def test_the_explorers_draw_in_a_real_browser(report, tmp_path):
    document = open_in_browser(report[0].page, tmp_path)
    assert document.count("<polyline") == 2 + 5  # the walker's; the model and four solvers
    assert '<option value="sphere">sphere</option>' in document
    words = said(document, "errors")
    assert words.startswith("n = 40, after layer or step 12:")
    assert re.search(r"this model 0\.\d+ +Preconditioned Richardson 0\.\d+", words)
    # The planted model's layer 7 is Richardson after 70 steps.
    assert re.match(r"Layer 7, Preconditioned Richardson step \d+: SimE [01]\.", said(document, "similarity"))
    assert "this layer: step 70, SimE 1.000" in said(document, "similarity")
    assert document.count('class="mark"') == 12


@browser
def test_a_curve_that_has_ended_says_where(report, tmp_path):
    words = said(open_in_browser(report[0].page, tmp_path, PRESS + 'press("errors", "ArrowRight");'), "errors")
    assert words.startswith("n = 40, after layer or step 13:")
    assert re.search(r"this model 0\.\d+ \(after 12\) +Preconditioned Richardson 0\.\d+ +Conjugate", words)


@browser
def test_arrow_keys_and_choices_move_what_is_read(report, tmp_path):
    script = (
        PRESS
        + """
    press("similarity", "ArrowRight", "ArrowRight", "ArrowUp");
    choose("errors", "view", "examples");
    choose("errors", "layer", 3);
    choose("errors", "step", 30);
    press("errors", "ArrowLeft");
    """
    )
    document = open_in_browser(report[0].page, tmp_path, script)
    assert said(document, "similarity").startswith("Layer 9, ")
    words = said(document, "errors")
    assert words.startswith("n = 35, model after layer 3, solvers after step 30:")
    # Layer 3 of the planted model is Richardson after 30 steps: the two values under the cursor are the same.
    model, richardson = re.findall(r"(?:this model|Richardson) (0\.\d+)", words)
    assert model == richardson


@browser
def test_another_solver_and_the_solvers_alone_can_be_chosen(report, tmp_path):
    script = (
        PRESS
        + """
    choose("similarity", "solver", "cg");
    choose("errors", "subject", "solvers-uniform");
    """
    )
    document = open_in_browser(report[0].page, tmp_path, script)
    assert "Conjugate gradient step" in said(document, "similarity")
    assert "this model" not in said(document, "errors")
    assert document.count("<polyline") == 2 + 4


@browser
def test_a_link_opens_what_is_folded_and_chooses_the_figure(report, tmp_path):
    document = open_in_browser(report[0].page, tmp_path, 'location.hash = "heat-sphere"; reveal();')
    part = document[document.index('id="by-layer"') - 40 :]
    assert re.match(r'[^<]*<?details class="part" id="by-layer" open', part[part.index("details") - 1 :])
    shown = dict(re.findall(r'<figure id="([^"]+)"( hidden="")?', part))
    assert not shown["heat-sphere"]
    assert shown["trained-sphere"]


@browser
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out_of_the_page(report, tmp_path, width):
    # In a frame, since a browser's window is never as narrow as a phone.
    text = report[0].page.read_text()
    tell = "parent.postMessage(`${document.documentElement.scrollWidth} of ${window.innerWidth}`, '*');"
    (tmp_path / "inner.html").write_text(text.replace("</body>", f"<script>{tell}</script></body>"))
    outer = tmp_path / "outer.html"
    outer.write_text(
        "<title>no</title><script>onmessage = event => { document.title = event.data; }</script>"
        f"<iframe src='inner.html' style='width: {width}px; height: 900px; border: 0'></iframe></body>"
    )
    document = open_in_browser(outer, tmp_path)
    wide, window = map(int, re.findall(r"<title>(\d+) of (\d+)</title>", document)[0])
    assert window == width
    assert wide <= width


def test_the_page_keeps_every_label_of_a_figure(report, tmp_path):
    """White is a colour of labels, too: only the sheet is left out, and that is not drawn in the first place."""
    with figure(2, 1) as fig:
        fig.subplots().text(0.5, 0.5, "label", color="white", bbox={"facecolor": "black"})
    save(fig, tmp_path / "figure.svg", "svg", sheet=False)
    text = (tmp_path / "figure.svg").read_text()
    assert "fill: #ffffff" in text
    assert document.inline_svg(text[text.index("<svg") :], "").count("fill: #ffffff") == text.count("fill: #ffffff")
    assert "fill: #ffffff" not in report[0].page.with_name("noise.svg").read_text()


def test_a_title_is_escaped_in_a_figure():
    assert 'aria-label="a &lt; &#34;b&#34;"' in document.inline_svg('<svg width="1" height="2"></svg>', 'a < "b"')


@pytest.mark.parametrize(("measure", "again"), [("missing", False), ("outdated", True)])
def test_what_is_asked_for_is_measured_before_the_report(measure, again, monkeypatch, tmp_path):
    calls: list[tuple] = []
    for name in ("measure_interventions", "measure_linear_models"):
        monkeypatch.setattr(module, name, lambda say, name=name, **options: calls.append((name, options)))
    empty = {"comparisons": [], "claims": [], "made": [], "found": [], "failed": {}, "runs": [], "times": {}}
    done = module.Report(page=tmp_path, **empty, seconds=0.0)
    monkeypatch.setattr(module, "_reproduce", lambda *of: calls.append(("report", {})) or done)
    reproduce(tmp_path / "out", measure=measure)
    expected = [("measure_interventions", {"again": again}), ("measure_linear_models", {"again": again})]
    assert calls == [*expected, ("report", {})]
    calls.clear()
    reproduce(tmp_path / "out")
    assert calls == [("report", {})]


def test_what_marks_of_all_figures_share_is_said_once(report):
    tick = f'<g style="fill: {INK}; stroke: {INK}; stroke-width: 0.8"><use href="#a"/></g>'
    short = document.inline_svg(f'<svg height="1pt" width="1pt">{tick}</svg>', "ticks")
    (name,) = re.findall(r'<g class="(\w+)"><use', short)
    text = report[0].page.read_text()
    assert f"svg .{name} {{ fill: var(--ink); stroke: var(--ink); stroke-width: 0.8; }}" in text
    assert text.count(f'class="{name}"') > 10
    assert 'style="fill: var(--ink); stroke: var(--ink); stroke-width: 0.8"' not in text
