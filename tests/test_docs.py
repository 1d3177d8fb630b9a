"""The documentation: pages are in the contents, links lead somewhere, examples run as they are printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import layerstep as ls
from layerstep.cli import VERBS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NAMES = [str(page.relative_to(DOCS)) for page in PAGES]


def words_of(page: Path) -> str:
    """Its text without blocks of code; what it includes stands in its place."""
    text = re.sub(
        r'^--8<-- "(.+)"$', lambda at: (ROOT / at[1]).read_text(), page.read_text(encoding="utf-8"), flags=re.M
    )
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The ids that headings of a page become."""
    headings = re.findall(r"^#+ (.+)$", words_of(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower() for heading in headings)
    return {re.sub(r"[\s-]+", "-", heading) for heading in plain}


def test_the_contents_name_every_page_once():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\ntheme:")[0]
    assert sorted(re.findall(r": ([\w/-]+\.md)$", nav, re.MULTILINE)) == sorted(NAMES)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", words_of(page)) + re.findall(
        r'(?:src|srcset|href)="([^"]+)"', words_of(page)
    )
    dead = []
    for link in links:
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and not anchor.startswith("only-") and anchor not in anchors(place)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_code_that_does_not_run_is_marked_so_that_it_is_still_shown_as_code(page):
    marks = set(re.findall(r"^```(\S.*)$", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert marks <= {"python", "py", "sh", "json", "yaml", "text"}  # other words after the name would undo the block


@pytest.mark.parametrize(
    "page", [pytest.param("tutorial", marks=pytest.mark.slow), "your-model", "your-kernel", "your-solver"]
)
def test_the_examples_of_a_page_run(page, examples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    try:
        for block in examples(f"docs/{page}.md"):
            exec(block, names)
    finally:
        ls.KERNELS.pop("laplace", None)
    assert "task" in names


def test_the_reference_has_every_verb():
    assert set(re.findall(r"^\| `layerstep (\w+)` \|", (DOCS / "api" / "cli.md").read_text(), re.M)) == set(VERBS)


def test_the_reference_has_every_package_with_public_names():
    for package in {*ls._PACKAGE_OF.values()}:
        assert f"::: layerstep.{package}" in (DOCS / "api" / f"{package}.md").read_text()


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere():
    zensical = Path(sys.executable).parent / "zensical"
    if not zensical.exists():
        pytest.skip("no zensical here: make docs installs it")
    command = [zensical, "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (ROOT / "site").rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="([^"]+)"', page.read_text())
        assert [link for link in loaded if link.startswith(("http:", "https:", "//"))] == [], page
