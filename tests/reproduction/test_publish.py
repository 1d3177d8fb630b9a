"""A finished run becomes a folder of results: readable by everything that reads one, and refused when unfinished."""

import json

import pytest
import torch

from layerstep.errors import FileError, InputError
from layerstep.measurement import Probes
from layerstep.reproduction import publish as module
from layerstep.reproduction.predictions import Predictions
from layerstep.reproduction.publish import publish_run
from layerstep.reproduction.runs import RUNS
from layerstep.training import GPT, PRESETS, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two small models, stacked, on the input distributions of two of the paper's runs."""
    small = {"steps": 4, "layers": 1, "width": 16, "heads": 1, "batch": 2, "curriculum_every": 0}
    runs = [RUNS[name].run.override(**small) for name in ("sphere", "uniform")]
    home = tmp_path_factory.mktemp("runs") / "both"
    train(runs, home, device="cpu")
    return [home / run.name for run in runs], runs


def test_a_published_run_holds_weights_predictions_probes_log_and_card(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ON_CARD", {"B": 16, "seed": 3})
    (_, folder), (_, run) = trained
    out = publish_run(folder, "uniform", tmp_path / "uniform", prompts=64)
    stored, exact = GPT.from_pretrained(out), GPT.from_pretrained(folder)
    for name, tensor in exact.state_dict().items():
        assert torch.equal(stored.state_dict()[name], tensor.half().float())
    assert Predictions.load(out).layers.values.shape == (2, 256, 40)
    assert Probes.load(out / "probes.safetensors", stored) is not None
    facts = json.loads((out / "evaluation.json").read_text())
    assert facts["identity"] == run.identity
    assert sorted(facts["snapshots"]) == ["step-000000001", "step-000000002"]
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == 4
    assert isinstance(log[-1]["loss"], float)
    words = (out / "README.md").read_text()
    assert run.identity in words
    assert "| 4 |" in words
    assert "4 steps at rate 0.0001" in words


def test_without_weights_everything_else_is_there(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ON_CARD", {"B": 16, "seed": 3})
    (tmp_path / "sphere").mkdir()
    (tmp_path / "sphere" / "model-00001-of-00002.safetensors").write_bytes(b"of another run")
    out = publish_run(trained[0][0], "sphere", tmp_path / "sphere", weights=False, prompts=64)
    assert not list(out.glob("model*"))
    assert json.loads((out / "config.json").read_text())["about"]["run"]["steps"] == 4
    assert Predictions.load(out).facts["setting"] == "sphere"


def test_a_preset_is_named_on_the_card_whatever_the_task():
    assert module._schedule(RUNS["uniform"].run) == "the preset `paper`"
    assert module._schedule(PRESETS["fast"].override(heads=2, seed=5)) == "the preset `fast`"


def test_an_unfinished_run_and_an_unknown_name_are_refused(trained, tmp_path):
    with pytest.raises(InputError, match="nobody"):
        publish_run(trained[0][0], "nobody", tmp_path / "x")
    snapshot = trained[0][0] / "snapshots" / "step-000000002"
    with pytest.raises(FileError, match="step 2 of 4"):
        publish_run(snapshot, "sphere", tmp_path / "y")
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "y").exists()
