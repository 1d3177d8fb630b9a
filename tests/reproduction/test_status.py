"""The list of runs: commands, costs, and what a directory is said to hold."""

import re

import pytest

from layerstep.cli.train import parse
from layerstep.errors import FileError
from layerstep.files import write_json
from layerstep.reproduction import reproduce, runs
from layerstep.reproduction import status as module
from layerstep.reproduction.runs import RUNS, SEEDS
from layerstep.reproduction.status import (
    gpu_minutes,
    listing,
    measured_minutes,
    run_status,
    step_milliseconds,
    total_minutes,
    unknown_folders,
)
from layerstep.training import PRESETS

from .conftest import write_config

FAST = {"steps": 82_000, "lr": 6e-4, "warmup": 1000, "curriculum_every": 0}


@pytest.mark.parametrize("name", RUNS)
def test_the_command_of_a_run_trains_that_run(name):
    words = re.fullmatch(r"layerstep train (\w+) --out (\S+)(?: --set (.+))?", RUNS[name].training)
    assert words is not None
    preset, out, changes = words.groups()
    assert PRESETS[preset].override(**parse((changes or "").replace(" ", ","))) == RUNS[name].run
    assert out == f"results/models/{name}"


def test_the_paper_has_sixteen_runs_and_the_seeds_differ_in_nothing_else():
    assert sum(not run.ours for run in RUNS.values()) == 16
    first, *others = (RUNS[name].run for name in SEEDS)
    assert first == PRESETS["fast"]
    assert [run.seed for run in others] == [1, 2, 3, 4]
    assert all(run.override(seed=0) == first for run in others)


def test_an_empty_folder_and_none_are_missing(models):
    (models / "sphere").mkdir(parents=True)
    assert run_status(RUNS["sphere"]).state == run_status(RUNS["uniform"]).state == "missing"


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, "as listed", "as in the paper"),
        ({"precision": "float32"}, "as listed", "as in the paper"),
        ({"steps": 82_000, "lr": 6e-4}, "other schedule", "short schedule: 82,000 steps, rate 0.0006"),
        (FAST, "other schedule", "short schedule: 82,000 steps, rate 0.0006, preset fast"),
        ({"warmup": 7}, "other schedule", "another schedule: 500,000 steps, rate 0.0001, warmup = 7"),
        ({"layers": 24}, "unusable", "says layers = 24 (listed: 12)"),
        ({"seed": 3, "inputs": "uniform"}, "unusable", "inputs = uniform (listed: sphere), seed = 3 (listed: 0)"),
    ],
    ids=str,
)
def test_a_folder_is_compared_with_the_run_it_stands_for(models, changes, state, words):
    write_config(models / "sphere", RUNS["sphere"].run.override(**changes))
    status = run_status(RUNS["sphere"])
    assert status.state == state
    assert words in status.words


def test_a_snapshot_says_how_far_it_came(models):
    write_config(models / "sphere", RUNS["sphere"].run, step=60_000)
    status = run_status(RUNS["sphere"])
    assert (status.steps, status.usable, status.words) == (60_000, True, "stopped after 60,000 of 500,000 steps")


BROKEN = [
    "", "{", "[]", "{}", "null", "[1]", '"words"', '{"about": null}', '{"about": [1]}', '{"about": {"run": 3}}',
    '{"about": {"run": {"steps": 5, "colour": 3}}}', '{"about": {"run": {"steps": "many"}}}', bytes(99),
    bytes(range(256)),
]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_config_is_a_sentence_that_names_the_file(models, text):
    (models / "sphere").mkdir(parents=True)
    (models / "sphere" / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    status = run_status(RUNS["sphere"])
    assert status.state == "unusable"
    assert str(models / "sphere" / "config.json") in status.words


def test_an_interrupted_run_is_to_be_resumed(models):
    for step in (500, 1000):
        write_json(models / "uniform" / "checkpoints" / f"step-{step:09}.json", {})
    status = run_status(RUNS["uniform"])
    assert status.state == "interrupted"
    assert status.words == (
        "interrupted at step 1,000: layerstep train paper --out results/models/uniform --set inputs=uniform --resume"
    )
    write_json(models / "gaussian" / "runs.json", {})
    assert "before the first checkpoint" in run_status(RUNS["gaussian"]).words


def test_files_without_a_config_are_not_used(models):
    write_json(models / "sphere" / "evaluation.json", {})
    assert run_status(RUNS["sphere"]).state == "unusable"


def test_a_folder_of_no_run_is_said(models):
    (models / "spher").mkdir(parents=True)
    assert list(unknown_folders()) == ["spher"]
    assert "is not a run of the list" in unknown_folders()["spher"]


def test_minutes_follow_the_measured_steps():
    # LOG.md: 2.11 ms alone, 1.392 ms each of four.
    assert step_milliseconds(RUNS["sphere"]) == pytest.approx(2.11)
    four = module.LAUNCHES + 4 * module.ARITHMETIC
    assert four == pytest.approx(4 * 1.392)
    assert step_milliseconds(RUNS["sphere-24"]) == pytest.approx(2 * 2.11)
    # A narrow model is bound by its launches, not by its arithmetic.
    assert module.LAUNCHES < step_milliseconds(RUNS["width-32"]) < 1.1 * module.LAUNCHES
    assert total_minutes(ours=False) == pytest.approx(sum(r.gpu_minutes for r in listing() if not r.ours))
    saved = total_minutes(ours=False) - total_minutes(ours=False, shared=True)
    # Three input distributions and the arc-cosine kernel, two of 24 layers (twice the launches), three of linear
    # attention.
    launches = (3 + 2 + 2) * module.LAUNCHES
    saved_by_interleaving = sum(step_milliseconds(RUNS[name]) for name in module.INTERLEAVED) - 6.5
    assert saved == pytest.approx((launches + saved_by_interleaving) * 500_000 / 60_000)


def test_measured_minutes_are_shared_by_models_trained_stacked(models):
    write_config(models / "sphere", RUNS["sphere"].run)
    assert measured_minutes(RUNS["sphere"]) is None
    write_json(models / "sphere" / "evaluation.json", {"seconds": 600, "stack": ["a", "b"]})
    assert measured_minutes(RUNS["sphere"]) == 5


@pytest.mark.parametrize(
    "text",
    [
        "null", "[1]", "{", '"words"', '{"seconds": ' + 400 * "9" + ', "stack": ["a"]}', '{"seconds": -1}',
        '{"seconds": "5", "stack": ["a"]}', '{"seconds": NaN, "stack": ["a"]}', '{"seconds": 5, "stack": []}',
        '{"seconds": 5, "stack": 3}',
    ],
)  # fmt: skip
def test_an_evaluation_that_says_nothing_is_named_beside_the_run(models, text):
    write_config(models / "sphere", RUNS["sphere"].run)
    (models / "sphere" / "evaluation.json").write_text(text)
    (row,) = (row for row in listing() if row.name == "sphere")
    assert row.measured_minutes is None
    assert str(models / "sphere" / "evaluation.json") in row.status
    assert row.status.startswith("500,000 steps, as in the paper; ")


def test_a_run_that_shared_its_gpu_has_no_minutes_of_its_own(models):
    write_config(models / "sphere", RUNS["sphere"].run)
    write_json(models / "sphere" / "evaluation.json", {"seconds": 600, "stack": ["a"], "shared": ["b"]})
    assert measured_minutes(RUNS["sphere"]) is None
    assert gpu_minutes(RUNS["sphere"]) == pytest.approx(2.11 * 500_000 / 60_000)


def test_models_are_looked_for_in_the_directory_that_is_named_and_only_for_as_long(tmp_path):
    before = runs.MODELS
    with runs.models_in(tmp_path):
        assert runs.RUNS["sphere"].folder == tmp_path / "sphere"
        assert runs.shipped_numbers() == tmp_path.parent / "numbers"
    assert before == runs.MODELS


def test_a_directory_of_models_that_is_not_there_is_refused_before_any_work(tmp_path):
    with pytest.raises(FileError, match="is not a directory"):
        reproduce(tmp_path / "report", models=tmp_path / "nowhere")
