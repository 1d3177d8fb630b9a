"""The list of runs: commands, costs, and what a folder is said to hold."""

import re

import pytest

from layerstep.cli.train import parse
from layerstep.files import write_json
from layerstep.reproduction import runs
from layerstep.reproduction.runs import RUNS, SEEDS, listing, total_minutes
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
    assert RUNS["sphere"].held.state == RUNS["uniform"].held.state == "missing"


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
    held = RUNS["sphere"].held
    assert held.state == state
    assert words in held.words


def test_a_snapshot_says_how_far_it_came(models):
    write_config(models / "sphere", RUNS["sphere"].run, step=60_000)
    held = RUNS["sphere"].held
    assert (held.steps, held.usable, held.words) == (60_000, True, "stopped after 60,000 of 500,000 steps")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"about": {"run": {"steps": 5, "colour": 3}}}'])
def test_a_broken_config_is_a_sentence_that_names_the_file(models, text):
    (models / "sphere").mkdir(parents=True)
    (models / "sphere" / "config.json").write_text(text)
    held = RUNS["sphere"].held
    assert held.state == "unusable"
    assert str(models / "sphere" / "config.json") in held.words


def test_an_interrupted_run_is_to_be_resumed(models):
    for step in (500, 1000):
        write_json(models / "uniform" / "checkpoints" / f"step-{step:09}.json", {})
    held = RUNS["uniform"].held
    assert held.state == "interrupted"
    assert held.words == (
        "interrupted at step 1,000: layerstep train paper --out results/models/uniform --set inputs=uniform --resume"
    )
    write_json(models / "gaussian" / "runs.json", {})
    assert "before the first checkpoint" in RUNS["gaussian"].held.words


def test_files_without_a_config_are_not_used(models):
    write_json(models / "sphere" / "evaluation.json", {})
    assert RUNS["sphere"].held.state == "unusable"


def test_a_folder_of_no_run_is_said(models):
    (models / "spher").mkdir(parents=True)
    assert list(runs.strangers()) == ["spher"]
    assert "no run of the list" in runs.strangers()["spher"]


def test_minutes_follow_the_measured_steps():
    # LOG.md: 2.11 ms alone, 1.392 ms each of four.
    assert RUNS["sphere"].milliseconds == pytest.approx(2.11)
    four = runs.LAUNCHES + 4 * runs.ARITHMETIC
    assert four == pytest.approx(4 * 1.392)
    assert RUNS["sphere-24"].milliseconds == pytest.approx(2 * 2.11)
    # A narrow model is bound by its launches, not by its arithmetic.
    assert runs.LAUNCHES < RUNS["width-32"].milliseconds < 1.1 * runs.LAUNCHES
    assert total_minutes(ours=False) == pytest.approx(sum(r["gpu_minutes"] for r in listing() if not r["ours"]))
    saved = total_minutes(ours=False) - total_minutes(ours=False, shared=True)
    # Three laws and the arc-cosine kernel, two of 24 layers (twice the launches), three of linear attention.
    launches = (3 + 2 + 2) * runs.LAUNCHES
    turns = sum(RUNS[name].milliseconds for name in runs.TURNS) - 6.5
    assert saved == pytest.approx((launches + turns) * 500_000 / 60_000)


def test_measured_minutes_are_shared_by_models_trained_side_by_side(models):
    write_config(models / "sphere", RUNS["sphere"].run)
    assert RUNS["sphere"].measured_minutes is None
    write_json(models / "sphere" / "evaluation.json", {"seconds": 600, "stack": ["a", "b"]})
    assert RUNS["sphere"].measured_minutes == 5
