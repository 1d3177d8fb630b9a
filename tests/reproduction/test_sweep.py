"""Runs of one shape are trained stacked, within the minutes given, and published."""

import subprocess
import sys

import pytest

from layerstep.cli import main
from layerstep.errors import InputError
from layerstep.files import read_json
from layerstep.reproduction import publish as publishing
from layerstep.reproduction import sweep as module
from layerstep.reproduction.costs import gpu_minutes
from layerstep.reproduction.predictions import Predictions
from layerstep.reproduction.runs import RUNS
from layerstep.reproduction.sweep import SPARE, Clock, Wanted, groups, minutes_of, train_and_publish
from layerstep.training import PRESETS, Diverged
from layerstep.training.round_robin import run_round_robin
from layerstep.training.sampling import CHUNK


def read(*names):
    return [Wanted.read(name) for name in names]


def test_models_of_one_shape_and_length_go_together_four_at_a_time():
    def together(*names):
        return [[each.name for each in group] for group in groups(read(*names))]

    names = ["sphere", "width-64", "uniform", "gaussian", "arccos1", "gaussian-1.0"]
    assert together(*names) == [["sphere", "uniform", "gaussian", "arccos1"], ["width-64"], ["gaussian-1.0"]]
    assert together("sphere", "uniform:fast", "gaussian:fast") == [["sphere"], ["uniform", "gaussian"]]


def test_a_preset_changes_the_schedule_and_neither_task_nor_model_nor_seed():
    (found,) = read("heads-2:fast")
    assert found.run == PRESETS["fast"].override(heads=2)
    assert read("heads-2")[0].run == RUNS["heads-2"].run


def test_side_by_side_is_estimated_as_faster_than_one_after_another():
    both, alone = minutes_of(read("sphere", "uniform")), minutes_of(read("sphere"))
    assert alone == pytest.approx(gpu_minutes(RUNS["sphere"]) + module.PUBLISHING)
    assert alone < both < 2 * alone
    assert minutes_of(read("sphere:fast")) < alone / 4


@pytest.fixture
def small(monkeypatch):
    """Every run two steps of a tiny model, its publication on a few prompts."""
    change = {"steps": 2, "warmup": 0, "layers": 1, "width": 16, "heads": 1, "batch": 2, "curriculum_every": 0}
    whole, predict = Wanted.read, publishing.predict

    def read(words):
        found = whole(words)
        return Wanted(found.name, found.run.override(**change, precision="float32"))

    monkeypatch.setattr(Wanted, "read", staticmethod(read))
    monkeypatch.setattr(publishing, "EVALUATION", {"B": 8, "seed": 3})
    monkeypatch.setattr(
        publishing, "predict", lambda model, setting, **_: predict(model, setting, prompts=32, sequences=8)
    )


def test_a_sweep_trains_and_publishes_and_is_not_repeated(tmp_path, small):
    places = {"home": tmp_path / "runs", "results": tmp_path / "results", "say": lambda words: None}
    folders = train_and_publish(["uniform", "heads-2"], **places)
    assert [folder.name for folder in folders] == ["uniform", "heads-2"]
    assert [bool(list(folder.glob("model*"))) for folder in folders] == [True, False]
    assert Predictions.load(folders[1]).facts["setting"] == "sphere"
    logs = {log: log.read_bytes() for log in (tmp_path / "runs").rglob("log.jsonl")}
    train_and_publish(["uniform", "heads-2"], **places)
    assert {log: log.read_bytes() for log in (tmp_path / "runs").rglob("log.jsonl")} == logs


def test_groups_that_run_round_robin_end_with_the_weights_they_have_alone(tmp_path, small, monkeypatch):
    monkeypatch.setattr(module, "STACKED", 1)
    for place, names in {"both": ["uniform", "gaussian"], "alone": ["gaussian"]}.items():
        train_and_publish(names, home=tmp_path / place, results=tmp_path / place / "results", say=lambda words: None)
    both, alone = (tmp_path / place / "results/gaussian" for place in ("both", "alone"))
    assert (both / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()
    assert read_json(both / "evaluation.json")["shared"] == ["uniform"]
    assert "the GPU shared with 1 of other shapes" in (both / "README.md").read_text()
    assert "shared" not in (alone / "README.md").read_text()


def test_what_time_stops_goes_on_in_the_next_call_to_the_same_weights(tmp_path, small, monkeypatch):
    monkeypatch.setattr(module, "STACKED", 1)
    said, places = [], {"home": tmp_path / "runs", "results": tmp_path / "results"}
    monkeypatch.setattr(Clock, "is_over", property(lambda clock: clock.rest < clock.steps))  # after some chunks
    change = {"steps": 6 * CHUNK}
    once = [Wanted(each.name, each.run.override(**change)) for each in map(Wanted.read, ["uniform", "gaussian"])]
    monkeypatch.setattr(Wanted, "read", staticmethod(lambda name: next(each for each in once if each.name == name)))
    assert train_and_publish(["uniform", "gaussian"], **places, say=said.append) == []
    assert sum("time is up" in words for words in said) == 2
    monkeypatch.setattr(Clock, "is_over", False)
    folders = train_and_publish(["uniform", "gaussian"], **places, say=said.append)
    whole = train_and_publish(["uniform"], home=tmp_path / "whole", results=tmp_path / "other", say=said.append)
    assert (folders[0] / "model.safetensors").read_bytes() == (whole[0] / "model.safetensors").read_bytes()


def test_the_first_goes_before_the_others_where_time_is_short():
    first = read("sphere")
    assert not Clock(first, None).presses
    assert not Clock(first, 1.1 * minutes_of(first) + SPARE).presses
    assert Clock(first, minutes_of(first)).presses  # what is left over is not for others
    clock = Clock(first, minutes_of(first) / 2)
    assert clock.presses
    clock.see({"step": first[0].run.steps})
    assert not clock.presses
    order, late = [], True

    def training(name, chunks):
        for _ in range(chunks):
            order.append(name)
            yield

    def on_end(index, error):
        nonlocal late
        late = False

    run_round_robin([training("a", 3), training("b", 2)], on_end, may_go=lambda index: index == 0 or not late)
    assert "".join(order) == "aaabb"


def test_one_that_diverges_does_not_take_the_others_with_it(tmp_path, small, monkeypatch):
    monkeypatch.setattr(module, "STACKED", 1)
    whole = module.training

    def training(runs, folder, **options):
        if runs[0].task.inputs == "uniform":
            yield
            raise Diverged("the loss is nan")
        yield from whole(runs, folder, **options)

    monkeypatch.setattr(module, "training", training)
    said = []
    with pytest.raises(Diverged, match="nan"):
        train_and_publish(
            ["uniform", "gaussian"], home=tmp_path / "runs", results=tmp_path / "results", say=said.append
        )
    assert "uniform: the loss is nan" in said
    assert (tmp_path / "results/gaussian/evaluation.json").exists()


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
        train_and_publish(names, home=tmp_path, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["sweep", "spere"], ["publish", "runs", "spere"]])
def test_a_mistake_on_the_command_line_is_a_sentence(words, capsys):
    assert main(words) == 2
    assert "name = 'spere': must be one of sphere" in capsys.readouterr().err


def test_a_sweep_needs_no_package_that_training_does_not_need():
    absent = ("matplotlib", "rich", "cyclopts", "sklearn", "jinja2", "beartype")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import layerstep.reproduction.sweep"
    subprocess.run([sys.executable, "-c", code], check=True)
