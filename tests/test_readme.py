"""The README's Python runs as it is printed; what pages name is there."""

import re
from pathlib import Path

import pytest

import layerstep as ls

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_examples_run(examples):
    blocks = examples("README.md")
    assert len(blocks) >= 4
    names = {}
    try:
        for block in blocks:
            exec(block, names)
    finally:
        ls.KERNELS.pop("laplace", None)
    assert names["network"].depth == 712
    assert names["verdict"].solver is None
    assert names["path"].values.shape == (201, 256, 40)
    assert (names["answer"].bound < 0.01).all()


PAGES = [ROOT / "README.md", ROOT / "LOG.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_module_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    files = re.findall(r"\b(?:src|tests|benchmarks|docs)/[\w/.-]+\.(?:py|md|json)\b", text)
    modules = [f"src/{name.replace('.', '/')}" for name in re.findall(r"python -m (layerstep[\w.]*)", text)]
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert [
        name for name in modules if not (ROOT / f"{name}.py").exists() and not (ROOT / name / "__main__.py").exists()
    ] == []


def test_every_file_it_points_to_exists():
    links = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"^\| `([\w/]+)` \|", README, re.MULTILINE)
    missing = [link for link in links if not link.startswith("http") and not (ROOT / link).exists()]
    assert missing == []
