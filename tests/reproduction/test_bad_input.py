"""Damaged, missing, interrupted or unknown results: said on the page and in the terminal, and the rest is built."""

import html

import pytest
import torch

import layerstep.cli as cli
from layerstep.files import write_json
from layerstep.reproduction import report, runs
from layerstep.reproduction.figures import constructed_vs_trained, verdicts
from layerstep.reproduction.predictions import FILE, Predictions
from layerstep.reproduction.runs import RUNS

from .conftest import write_config


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.fixture(scope="module")
def built(tmp_path_factory, plant):
    """The page and what the terminal says, from one whole model among seven that are not."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("models")
    patch.setattr(runs, "MODELS", folder)
    whole = plant("sphere") / FILE
    for name in ("uniform", "gaussian", "arccos1", "heads-2", "width-64"):
        write_config(folder / name, RUNS[name].run)
        (folder / name / FILE).write_bytes(whole.read_bytes())
    (folder / "sphere" / "evaluation.json").write_text('{"seconds": 5')
    cut(folder / "uniform" / FILE)
    cut(folder / "gaussian" / "config.json")
    (folder / "arccos1" / FILE).unlink()
    write_config(folder / "heads-2", RUNS["heads-4"].run)
    (folder / "width-64" / FILE).write_bytes(b"")
    write_json(folder / "heads-1" / "checkpoints" / "step-000004096.json", {})
    (folder / "spehre").mkdir()
    patch.setattr(verdicts, "judge", lambda *args: ({}, {}))
    patch.setattr(constructed_vs_trained, "numbers", lambda folder: {})
    real = report.chapters
    patch.setattr(report, "chapters", lambda *found: [part for part in real(*found) if part[0] == "models"])
    said: list[str] = []
    patch.setattr("builtins.print", lambda *words, **_: said.append(" ".join(map(str, words))))
    out = tmp_path_factory.mktemp("report")
    (out / "measured").mkdir()
    (out / "measured" / "gone.json").write_text("{")  # left by an earlier call, and of no use to this one
    status = cli.main(["reproduce", "--out", str(out)])
    patch.undo()
    return status, html.unescape((out / "index.html").read_text()), "\n".join(said)


REASONS = {
    "a cut predictions file": "uniform/predictions.safetensors is no whole safetensors file",
    "an empty predictions file": "width-64/predictions.safetensors is no whole safetensors file",
    "a missing predictions file": "arccos1/predictions.safetensors is not there",
    "a truncated config": "gaussian/config.json is not readable JSON",
    "a truncated evaluation": "sphere/evaluation.json is not readable JSON",
    "an interrupted run": "interrupted at step 4,096: layerstep train paper --out results/models/heads-1",
    "another run's files": "heads-2/config.json says heads = 4 (listed: 2)",
    "a folder of no run": "spehre is no run of the list and is left out",
}


@pytest.mark.parametrize("case", REASONS)
def test_what_is_wrong_is_said_on_the_page_and_in_the_terminal(built, case):
    _, page, terminal = built
    assert REASONS[case] in page
    assert REASONS[case] in terminal


def test_the_rest_is_built(built):
    status, page, terminal = built
    assert status == 0
    assert all(f'id="{name}"' in page for name in ("trained-sphere", "steps-sphere", "heat-sphere"))
    assert 'id="trained-uniform"' not in page
    assert f"1 of {len(RUNS)} training runs are here" in terminal
    assert "layerstep train paper --out results/models/heads-1 --set heads=1 --resume   #" in terminal


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    def never(*args):
        raise AssertionError

    monkeypatch.setattr(report, "predict_missing", never)
    (tmp_path / "file").write_text("")
    assert cli.main(["reproduce", "--out", str(tmp_path / "file" / "report")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("layerstep reproduce: cannot write ")
    assert said.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU models are probed unasked")
@pytest.mark.parametrize("probe", [False, True])
def test_weights_without_predictions_are_probed_on_a_cpu_only_when_asked(models, plant, monkeypatch, probe):
    file = plant("sphere") / FILE
    whole = Predictions.load(file.parent)
    file.unlink()
    (models / "sphere" / "model.safetensors").write_bytes(b"")
    probed = []

    class Model:
        @staticmethod
        def from_pretrained(folder, device):
            return probed.append(folder.name)

    class Probes:
        def save(self, path):
            path.write_bytes(b"")

    monkeypatch.setattr(report, "GPT", Model)
    monkeypatch.setattr(report, "predict", lambda model, setting: (whole, Probes()))
    failed = report.predict_missing(lambda words: None, probe)
    assert probed == (["sphere"] if probe else [])
    assert file.exists() == probe
    assert ("reproduce --probe" in failed.get("sphere", "")) != probe
