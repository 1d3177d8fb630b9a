"""The page stands alone, says what failed, and works in a real browser."""

import dataclasses
import re
import shutil
import subprocess

import pytest

from layerstep.errors import InputError
from layerstep.paper import beside, convergence, noise, page, runs, verdicts
from layerstep.paper import report as module
from layerstep.paper.report import reproduce

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def refuse(config):
    raise InputError("sigma = 0: must be above 0.")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A small page, with one artefact that cannot be made."""
    chapters = [
        ("solvers", tuple(
            dataclasses.replace(convergence.artefact(law), config={"setting": law, "sequences": 4, "budget": 200})
            for law in ("sphere", "uniform")
        )),
        ("noise", (
            dataclasses.replace(noise.ARTEFACT, config={"sequences": 32, "bootstrap": 20, "seed": 1}),
            dataclasses.replace(noise.ARTEFACT, name="broken", compute=refuse),
        )),
    ]  # fmt: skip
    patch = pytest.MonkeyPatch()
    patch.setattr(module, "chapters", lambda *found: chapters)
    patch.setattr(verdicts, "judge", lambda *args: ({}, {}))
    patch.setattr(beside, "numbers", lambda folder: {})
    patch.setattr(runs, "MODELS", tmp_path_factory.mktemp("models"))
    folder = tmp_path_factory.mktemp("report")
    first = reproduce(folder)
    second = reproduce(folder)
    patch.undo()
    return first, second


def test_finished_work_is_not_repeated(report):
    first, second = report
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


def test_every_number_of_the_table_is_on_the_page(report):
    text = report[0].page.read_text()
    table = text[text.index('id="numbers"') : text.index('id="runs"')]
    assert table.count("<tr class=") == len(report[0].rows) == 36
    row = report[0].rows[8]
    assert f">{page.number(row.ours)}<" in text


@pytest.mark.parametrize(("value", "text"), [(0.05573, "0.0557"), (1.0, "1.00"), (12.345, "12.3"), (3080.2, "3,080")])
def test_numbers_are_shown_with_three_digits(value, text):
    assert page.number(value) == text


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: the page was not opened in a browser")
def test_the_explorer_draws_in_a_real_browser(report, tmp_path):
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    command = [CHROMIUM, *flags.split(), "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path}"]
    done = subprocess.run(
        [*command, "--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom", report[0].page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "Uncaught" not in done.stderr
    assert done.stdout.count("<polyline") == 4
    assert re.search(r"After 12 steps: Preconditioned Richardson 0\.\d+", done.stdout)
    assert done.stdout.count("<option") == 2 + 8
