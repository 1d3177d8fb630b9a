"""Runs of one shape are trained side by side, within the minutes given, and published."""

import subprocess
import sys

import pytest

from layerstep.errors import InputError
from layerstep.paper import campaign as module
from layerstep.paper import publish as publishing
from layerstep.paper.campaign import campaign, groups, minutes_of
from layerstep.paper.predictions import Predictions
from layerstep.paper.runs import RUNS


def test_models_of_one_shape_go_together_four_at_a_time():
    names = ["sphere", "width-64", "uniform", "gaussian", "arccos1", "gaussian-1.0"]
    assert groups(names) == [["sphere", "uniform", "gaussian", "arccos1"], ["width-64"], ["gaussian-1.0"]]
    assert groups(["sphere", "sphere-fast-seed-1"]) == [["sphere"], ["sphere-fast-seed-1"]]  # of other lengths


def test_side_by_side_is_estimated_as_faster_than_one_after_another():
    both = minutes_of(["sphere", "uniform"])
    alone = minutes_of(["sphere"])
    assert alone == pytest.approx(RUNS["sphere"].gpu_minutes + module.PUBLISHING)
    assert alone < both < 2 * alone
    assert minutes_of(["sphere"], "fast") < alone / 4


def test_nothing_is_begun_that_does_not_fit(tmp_path):
    said = []
    written = campaign(["sphere", "width-512"], minutes=1.0, home=tmp_path, say=said.append)
    assert written == []
    assert not list(tmp_path.iterdir())
    assert len(said) == 2
    assert all("not begun" in words for words in said)


def test_a_campaign_trains_and_publishes_and_is_not_repeated(tmp_path, monkeypatch):
    small = {"steps": 2, "warmup": 0, "layers": 1, "width": 16, "heads": 1, "batch": 2, "curriculum_every": 0}
    scheduled = module.scheduled
    monkeypatch.setattr(module, "scheduled", lambda run, preset: scheduled(run, preset).override(**small))
    monkeypatch.setattr(publishing, "EVALUATION", {"B": 8, "seed": 3})
    predict = publishing.predict
    monkeypatch.setattr(
        publishing, "predict", lambda model, setting, prompts: predict(model, setting, prompts=32, sequences=8)
    )
    places = {"home": tmp_path / "runs", "results": tmp_path / "results", "say": lambda words: None}
    folders = campaign(["uniform", "heads-2"], preset="fast", **places)
    assert [folder.name for folder in folders] == ["uniform", "heads-2"]
    assert [bool(list(folder.glob("model*"))) for folder in folders] == [True, False]
    assert Predictions.load(folders[1]).facts["setting"] == "sphere"
    logs = {log: log.read_bytes() for log in (tmp_path / "runs").rglob("log.jsonl")}
    campaign(["uniform", "heads-2"], preset="fast", **places)
    assert {log: log.read_bytes() for log in (tmp_path / "runs").rglob("log.jsonl")} == logs


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (["sphere", "nobody"], {}, "nobody"),
        ([], {}, "at least one"),
        (["sphere", "sphere"], {}, "each once"),
        (["sphere"], {"preset": "tiny"}, "tiny"),
        (["sphere"], {"minutes": -1}, "minutes"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_trained(names, options, words, tmp_path):
    with pytest.raises(InputError, match=words):
        campaign(names, home=tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_a_campaign_needs_no_package_that_training_does_not_need():
    absent = ("matplotlib", "rich", "tyro", "sklearn", "jinja2", "beartype")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import layerstep.paper.campaign"
    subprocess.run([sys.executable, "-c", code], check=True)
