"""The notebooks: without outputs, in words that a first-time user knows, run from their first cell to their last."""

import json
import re
from pathlib import Path

import pytest

import layerstep as ls

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
FAST = ("write-a-transformer",)  # takes seconds; the others are run with -m slow and by `make notebooks`


def code_of(file: Path) -> list[str]:
    cells = json.loads(file.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_there_are_four():
    names = {"in-context-regression", "kernel-solvers", "whose-steps", "write-a-transformer"}
    assert {file.stem for file in NOTEBOOKS} == names


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_stored_without_outputs_and_needs_no_clone(file):
    cells = json.loads(file.read_text())["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")
    assert "pip install layerstep" in "".join(cells[0]["source"])
    for code in code_of(file):
        compile(code, file.name, "exec")
        assert not re.search(r"results/|docs/|src/|tests/", code)


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=[] if file.stem in FAST else pytest.mark.slow, id=file.stem) for file in NOTEBOOKS],
)
def test_a_notebook_runs(file, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    names = {}
    try:
        for code in code_of(file):
            exec(compile(code, file.name, "exec"), names)
    finally:
        ls.KERNELS.pop("laplace", None)
        plt.close("all")
    assert names["ls"] is ls
