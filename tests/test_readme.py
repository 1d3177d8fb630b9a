"""The README's Python runs as it is printed; what pages name is there."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_examples_run_and_the_answer_is_the_printed_one(examples, tmp_path, monkeypatch, capsys):
    blocks = examples("README.md")
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAYERSTEP_CACHE", str(tmp_path))  # both identifications take the same library
    names = {}
    for block in blocks:
        exec(block, names)
    [shown] = re.findall(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    printed = capsys.readouterr().out
    assert same_answer(shown, printed), f"Put what is printed now into README.md:\n{printed}"
    assert names["found"].solver is None
    assert names["network"].depth == 712
    assert (names["answer"].bound < 0.01).all()
    assert (tmp_path / "tiny.png").stat().st_size > 10_000


def same_answer(shown: str, printed: str) -> bool:
    """The same words, and numbers that rounding may have moved by a fifth."""
    number = r"\d+\.?\d*"
    words = [re.sub(number, "#", " ".join(text.split())) for text in (shown, printed)]
    ours, theirs = (torch.tensor([float(found) for found in re.findall(number, text)]) for text in (shown, printed))
    return words[0] == words[1] and torch.allclose(ours, theirs, rtol=0.2)


def test_another_answer_would_be_noticed():
    assert same_answer("at best 39% is left, for 1 of 9", "at best\n42% is left, for 1 of 9")
    assert not same_answer("none of 13 classes", "richardson")
    assert not same_answer("recognised 1 of 9", "recognised 2 of 9")


def test_it_is_short():
    assert len(README.split()) < 700


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
    links = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r'(?:src|srcset)="([^"]+)"', README)
    missing = [link for link in links if not link.startswith("http") and not (ROOT / link).exists()]
    assert missing == []
