"""The README's Python runs as it is printed."""

import re
from pathlib import Path

import layerstep as ls

README = (Path(__file__).parent.parent / "README.md").read_text()


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


def test_every_file_it_points_to_exists():
    root = Path(__file__).parent.parent
    links = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"^\| `([\w/]+)` \|", README, re.MULTILINE)
    missing = [link for link in links if not link.startswith("http") and not (root / link).exists()]
    assert missing == []
