"""The page stands alone, says what failed, and works in a real browser."""

import dataclasses
import re
import shutil
import subprocess

import pytest

from layerstep.errors import InputError
from layerstep.reproduction import report as module
from layerstep.reproduction import runs
from layerstep.reproduction.figures import constructed_vs_trained, convergence, noise, verdicts
from layerstep.reproduction.page import document
from layerstep.reproduction.reference import Row
from layerstep.reproduction.report import reproduce

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def refuse(config):
    raise InputError("sigma = 0: must be above 0.")


@pytest.fixture(scope="module")
def report(tmp_path_factory, plant):
    """A small page with one planted model, and one artefact that cannot be made."""
    chapters = [
        ("solvers", tuple(
            dataclasses.replace(convergence.artefact(law), config={"setting": law, "sequences": count, "budget": 200})
            for law, count in (("sphere", 256), ("uniform", 4))
        )),
        ("noise", (
            dataclasses.replace(noise.ARTEFACT, config={"sequences": 32, "bootstrap": 20, "seed": 1}),
            dataclasses.replace(noise.ARTEFACT, name="broken", compute=refuse),
        )),
    ]  # fmt: skip
    patch = pytest.MonkeyPatch()
    patch.setattr(module, "chapters", lambda *found: chapters)
    early: list[str] = []

    def judge(models, folder, progress):
        early.append((folder / "index.html").read_text())
        return {}, {}

    patch.setattr(verdicts, "judge", judge)
    patch.setattr(constructed_vs_trained, "numbers", lambda folder: {})
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
    assert first.made == ["convergence-sphere", "convergence-uniform", "noise"]
    assert second.made == []
    assert second.found == first.made


def test_what_cannot_be_made_is_said_and_the_rest_is_there(report):
    text = report[0].page.read_text()
    assert "sigma = 0: must be above 0." in text
    assert 'id="convergence-uniform"' in text


def test_the_page_fetches_nothing(report):
    text = report[0].page.read_text()
    links = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert links
    outside = [link for link in links if not link.startswith("#") and not re.fullmatch(r"[\w.-]+\.(csv|pdf|png)", link)]
    assert outside == []
    assert "@import" not in text
    assert "fetch(" not in text
    folder = report[0].page.parent
    assert all((folder / link).exists() for link in links if not link.startswith("#"))


def test_links_to_seeds_lead_somewhere_or_are_not_there(report):
    text = report[0].page.read_text()
    assert ('href="#seeds"' in text) == ('id="seeds"' in text)


def test_every_number_of_the_table_is_on_the_page(report):
    text = report[0].page.read_text()
    table = text[text.index('id="numbers"') : text.index('id="runs"')]
    assert table.count("<tr class=") == len(report[0].rows) == 36
    row = report[0].rows[8]
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
    row = Row(quantity="q", where="w", paper=0.9275, ours=0.86213, low=0.8, high=0.9)
    assert (document.shown(row, "paper"), document.shown(row, "ours")) == ("0.9275", "0.862")
    assert document.shown(dataclasses.replace(row, paper=11, whole=True), "paper") == "11"
    assert document.shown(dataclasses.replace(row, ours=float("nan")), "ours") == "none"


@pytest.mark.parametrize(("value", "text"), [(0.05573, "0.0557"), (1.0, "1.00"), (12.345, "12.3"), (3080.2, "3,080")])
def test_numbers_are_shown_with_three_digits(value, text):
    assert document.number(value) == text


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
    assert document.count("<polyline") == 5  # the model and four solvers
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
    assert document.count("<polyline") == 4


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
