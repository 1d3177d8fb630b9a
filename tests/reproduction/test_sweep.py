"""Runs of the paper's list by name: trained, published, and not repeated."""

import subprocess
import sys

import pytest

from layerstep.cli import main
from layerstep.errors import InputError
from layerstep.files import read_json
from layerstep.reproduction import publish as publishing
from layerstep.reproduction import sweep as module
from layerstep.reproduction.predictions import Predictions
from layerstep.reproduction.runs import RUNS
from layerstep.reproduction.sweep import listed_run, train_and_publish
from layerstep.training import PRESETS


def test_a_preset_changes_the_schedule_and_neither_task_nor_model_nor_seed():
    assert listed_run("heads-2:fast") == PRESETS["fast"].override(heads=2)
    assert listed_run("heads-2") == RUNS["heads-2"].run


@pytest.fixture
def small(monkeypatch):
    """Every run two steps of a tiny model, its publication on a few prompts."""
    change = {"steps": 2, "warmup": 0, "layers": 1, "width": 16, "heads": 1, "batch": 2, "curriculum_every": 0}
    whole, predict = listed_run, publishing.predict
    monkeypatch.setattr(module, "listed_run", lambda words: whole(words).override(**change, precision="float32"))
    monkeypatch.setattr(publishing, "ON_CARD", {"B": 8, "seed": 3})
    monkeypatch.setattr(
        publishing, "predict", lambda model, setting, **_: predict(model, setting, prompts=32, sequences=8)
    )


def sweep(names, home, **options):
    places = {"results": home / "results", "device": "cpu", "prompts": 8, "snapshots": ()}
    return train_and_publish(names, home / "runs", **places | options)


@pytest.mark.parametrize("stack", [1, 2])
def test_a_sweep_trains_and_publishes_and_is_not_repeated(tmp_path, small, stack):
    found = sweep(["uniform", "gaussian:fast"], tmp_path, stack=stack)
    assert [outcome.folder.name for outcome in found] == ["uniform", "gaussian:fast"]
    assert [outcome.result for outcome in found] == [
        str(tmp_path / "results" / name) for name in ("uniform", "gaussian")
    ]
    folder = tmp_path / "results/uniform"
    assert list(folder.glob("model*"))
    assert Predictions.load(folder).facts["setting"] == "uniform"
    assert len(read_json(folder / "evaluation.json")["stack"]) == stack
    logs = {log: log.stat().st_mtime_ns for log in tmp_path.rglob("log.jsonl")}
    sweep(["uniform", "gaussian:fast"], tmp_path, stack=stack)
    assert {log: log.stat().st_mtime_ns for log in tmp_path.rglob("log.jsonl")} == logs


def test_what_was_published_and_taken_away_is_published_again(tmp_path, small):
    for _ in range(2):
        sweep(["heads-2"], tmp_path)
        assert not list((tmp_path / "results/heads-2").glob("model*"))
        (tmp_path / "results/heads-2/evaluation.json").unlink()


def test_on_one_gpu_those_of_other_shapes_are_said_to_share_it(tmp_path, small, monkeypatch):
    monkeypatch.setattr(module, "visible_gpus", lambda: 1)
    sweep(["uniform", "gaussian"], tmp_path, stack=1)
    assert read_json(tmp_path / "results/gaussian/evaluation.json")["shared"] == ["uniform"]
    assert "the GPU shared with 1 of other shapes" in (tmp_path / "results/gaussian/README.md").read_text()


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (["sphere", "nobody"], {}, "nobody"),
        ([], {}, "at least one"),
        (["sphere", "sphere"], {}, "each once"),
        (["sphere:tiny"], {}, "tiny"),
        (["sphere", "sphere:fast"], {}, "each once"),
        (["sphere"], {"minutes": -1}, "minutes"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_trained(names, options, words, tmp_path):
    with pytest.raises(InputError, match=words):
        train_and_publish(names, tmp_path, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["sweep", "spere"], ["publish", "runs", "spere"]])
def test_a_mistake_on_the_command_line_is_a_sentence(words, capsys):
    assert main(words) == 2
    assert "name = 'spere': must be one of" in capsys.readouterr().err


def test_a_sweep_needs_no_package_that_training_does_not_need():
    absent = ("matplotlib", "rich", "cyclopts", "sklearn", "jinja2", "beartype")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import layerstep.reproduction.sweep"
    subprocess.run([sys.executable, "-c", code], check=True)
