"""What is released: one version, a wheel with every file of the package, minimum dependencies that are said once."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import layerstep as ls

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_said_once_and_the_other_places_agree():
    assert "version" in PROJECT["dynamic"]
    assert re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)[1] == ls.__version__
    assert f"\n## {ls.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> list[str]:
    """Names of the files in a wheel built from this tree."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(out.glob("*.whl"))).namelist()


def test_the_wheel_has_every_file_of_the_package(wheel):
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("the list of files is git's")
    there = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert {name.removeprefix("src/") for name in there.splitlines() if (ROOT / name).exists()} <= set(wheel)
    assert {"layerstep/py.typed", "layerstep/reproduction/page/page.html"} <= set(wheel)


def test_every_dependency_has_a_minimum_and_no_cap():
    for each in PROJECT["dependencies"]:
        assert re.fullmatch(r"[\w-]+>=[\d.]+", each), each


@pytest.mark.parametrize("name", ls.SHIPPED)
def test_a_shipped_model_is_read_by_its_name_and_is_as_good_as_its_card_says(name):
    facts = json.loads((ls.SHIPPED[name] / "evaluation.json").read_text())["evaluation"]
    run = ls.Run.from_dict(json.loads((ls.SHIPPED[name] / "config.json").read_text())["about"]["run"])
    model = ls.GPT.from_pretrained(name)
    ls.Probes.load(ls.SHIPPED[name] / "probes.safetensors", model)
    found = ls.evaluate(model, run.task, B=facts["B"], seed=facts["seed"])
    assert found.mse[-1] == pytest.approx(facts["mse"][-1], rel=1e-4)


CARDS = [
    *sorted((ROOT / "results" / "models").glob("*/README.md")),
    *(folder / "README.md" for folder in ls.SHIPPED.values()),
]


def test_model_cards_are_in_the_format_of_the_hub():
    hub = pytest.importorskip("huggingface_hub")
    for card in CARDS:
        about = hub.ModelCard.load(card).data.to_dict()
        assert about["license"] == "apache-2.0", card
        assert about["library_name"] == "layerstep", card


def test_a_directory_of_the_name_of_a_shipped_model_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    with pytest.raises(ls.FileError, match=r"config\.json is not there"):
        ls.GPT.from_pretrained("tiny")


def test_an_unknown_name_lists_the_shipped_models():
    with pytest.raises(ls.FileError, match="shipped: tiny"):
        ls.GPT.from_pretrained("tinny")
