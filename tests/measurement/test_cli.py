"""`layerstep probe` and `layerstep identify` on a small model."""

import json

import pytest

import layerstep as ls
from layerstep.cli import main
from layerstep.training import GPT, Model


@pytest.fixture
def saved(tmp_path):
    model = GPT(Model(layers=2, heads=2, width=16), d=3, N=6).initialise(seed=1)
    task = ls.Task(d=3, N=6, inputs="uniform")
    return model.save_pretrained(tmp_path / "small", about={"run": {"task": task.to_dict()}})


def test_probe_writes_probes_beside_the_model(saved, capsys):
    assert main(["probe", str(saved), "--prompts", "64", "--sequences", "8", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["sites"] == ["embedding", "block 1", "block 2"]
    assert printed["task"]["inputs"] == "uniform"
    assert (saved / "probes.safetensors").is_file()
    assert main(["probe", str(saved), "--prompts", "64", "--sequences", "8", "--attention"]) == 0
    assert "attention 2" in capsys.readouterr().out


def test_identify_says_none_on_an_untrained_model(saved, capsys):
    arguments = ["--probe-prompts", "64", "--sequences", "40", "--seed", "1", "--json"]
    assert main(["identify", str(saved), *arguments]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["solver"] is None
    assert verdict["task"]["N"] == 6


def test_identify_answers_too_few_sequences_in_words(capsys):
    assert main(["identify", "richardson", "--sequences", "10"]) == 0
    assert "too few" in capsys.readouterr().out


def test_a_model_that_is_nowhere_is_one_line_and_status_2(capsys):
    assert main(["identify", "nowhere"]) == 2
    assert "must be a folder, a file, or a solver" in capsys.readouterr().err


@pytest.mark.slow
def test_a_written_network_is_judged_from_its_file(tmp_path, capsys):
    save = str(tmp_path / "network.safetensors")
    assert main(["construct", "--d", "3", "--N", "8", "--lam", "0.01", "--L", "12", "--save", save, "--json"]) == 0
    capsys.readouterr()
    assert main(["identify", save, "--sequences", "64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["solver"] == "chebyshev"
