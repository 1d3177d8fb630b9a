"""`layerstep probe` and `layerstep identify` on a small model."""

import json
from pathlib import Path

import pytest
import torch

import layerstep as ls
from layerstep.cli import main
from layerstep.training import GPT, Model

ROOT = Path(__file__).parents[2]


@pytest.fixture
def saved(tmp_path):
    model = GPT(Model(layers=2, heads=2, width=16), d=3, N=6).initialise(seed=1)
    task = ls.Task(d=3, N=6, inputs="uniform")
    return model.save_pretrained(tmp_path / "small", about={"run": {"task": task.to_dict()}})


def test_probe_writes_probes_beside_the_model(saved, capsys):
    assert main(["probe", str(saved), "--prompts", "64", "--test-prompts", "8", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["sites"] == ["embedding", "block 1", "block 2"]
    assert printed["task"]["inputs"] == "uniform"
    assert (saved / "probes.safetensors").is_file()
    assert main(["probe", str(saved), "--prompts", "64", "--test-prompts", "8", "--attention"]) == 0
    assert "attention 2" in capsys.readouterr().out
    names = sorted(file.name for file in saved.glob("probes*"))
    assert names == ["probes-attention.safetensors", "probes.safetensors"]
    for name in names:
        asked = ["--behaviour-only", "--probes", str(saved / name), "--prompts", "64", "--json"]
        assert main(["identify", str(saved), *asked]) == 0
        assert len(json.loads(capsys.readouterr().out)["layers"]) == (5 if "attention" in name else 3)


def test_identify_says_none_on_an_untrained_model(saved, capsys, tmp_path):
    arguments = ["--probe-prompts", "64", "--prompts", "64"]
    plot = tmp_path / "drawn.png"
    assert main(["identify", str(saved), *arguments, "--json", "--plot", str(plot)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["solver"] is None
    assert found["task"]["N"] == 6
    assert len(found["sentences"]) == 3
    assert found["behaviour"]["solver"] is None
    assert set(found["readings"]["verdicts"]) == {"labels", "output", "lens"}
    assert found["interventions"]["claims"] == []
    assert found["operator"]["embedding"]["profile"]
    assert plot.stat().st_size > 10_000
    assert main(["identify", str(saved), *arguments, "--behaviour-only", "-v"]) == 0
    printed = capsys.readouterr().out
    assert "cannot say: that no solver runs inside" in printed


@pytest.mark.slow
def test_a_directory_with_predictions_alone_is_tested_on_them(capsys):
    place = ROOT / "results" / "models" / "width-32"
    assert main(["identify", str(place), "--behaviour-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "none"


def test_a_model_with_a_broken_layer_is_judged_without_it(saved, capsys):
    model = GPT.from_pretrained(saved)
    with torch.no_grad():
        model.blocks[1].up.weight.fill_(torch.nan)
    model.save_pretrained(saved, about={"run": {"task": ls.Task(d=3, N=6, inputs="uniform").to_dict()}})
    assert main(["identify", str(saved), "--probe-prompts", "64", "--prompts", "64", "-v"]) == 0
    assert "layers 2 have predictions that are NaN or infinite: left out" in capsys.readouterr().out


def test_a_model_that_says_nothing_has_nothing_to_identify(tmp_path, capsys):
    model = GPT(Model(layers=2, heads=2, width=16), d=3, N=6)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    folder = str(model.save_pretrained(tmp_path / "zero"))
    arguments = ["--probe-prompts", "64", "--prompts", "64", "--inputs", "uniform"]
    assert main(["identify", folder, *arguments, "-v"]) == 0
    out = capsys.readouterr().out
    assert "nothing to identify" in out
    assert "layers 0, 1, 2 predict a constant: left out" in out


def test_probes_that_are_not_there_are_not_fitted_in_silence(saved, capsys):
    assert main(["identify", str(saved), "--probes", str(saved / "nothing")]) == 2
    assert "is not there" in capsys.readouterr().err


def test_a_model_that_is_nowhere_is_one_line_and_status_2(capsys):
    assert main(["identify", "nowhere"]) == 2
    assert "must be a directory, a file, or one of tiny, richardson" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["identify", "probe"])
@pytest.mark.parametrize(
    ("option", "value", "made_for"),
    [("--inputs", "sphere", "uniform"), ("--v", "2.0", "1.0"), ("--N", "40", "6"), ("--input-std", "0.5", "0.6")],
)
def test_an_option_that_contradicts_the_model_is_refused(verb, option, value, made_for, saved, capsys):
    assert main([verb, str(saved), option, value]) == 2
    error = capsys.readouterr().err
    assert f"{option} = {value}: must be {made_for}, which {saved} was made for. Leave the option out" in error
    assert not (saved / "probes.safetensors").exists()


def test_an_option_that_agrees_with_the_model_is_taken(saved, capsys):
    arguments = [
        "--prompts",
        "8",
        "--test-prompts",
        "4",
        "--json",
        "--inputs",
        "uniform",
        "--N",
        "6",
        "--sigma",
        "0.05",
    ]
    assert main(["probe", str(saved), *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["task"]["inputs"] == "uniform"


def test_a_model_of_unknown_task_takes_the_options(tmp_path, capsys):
    model = GPT(Model(layers=1, heads=2, width=16), d=3, N=6).initialise(seed=1)
    folder = str(model.save_pretrained(tmp_path / "nameless"))
    assert main(["probe", folder, "--prompts", "8", "--test-prompts", "4", "--json", "--v", "2", "--d", "3"]) == 0
    task = json.loads(capsys.readouterr().out)["task"]
    assert (task["v"], task["d"], task["N"], task["inputs"]) == (2, 3, 6, "sphere")
    assert main(["probe", folder, "--d", "5"]) == 2
    assert "--d = 5: must be 3" in capsys.readouterr().err


def test_a_model_whose_task_is_not_a_task_is_one_line_and_status_2(tmp_path, capsys):
    model = GPT(Model(layers=1, heads=2, width=16), d=3, N=6)
    folder = str(model.save_pretrained(tmp_path / "odd", about={"task": {"colour": "red"}}))
    assert main(["probe", folder]) == 2
    assert "describes no task" in capsys.readouterr().err


def test_probes_of_another_model_are_one_line_and_status_2(saved, tmp_path, capsys):
    assert main(["probe", str(saved), "--prompts", "8", "--test-prompts", "4", "--json"]) == 0
    other = GPT(Model(layers=2, heads=2, width=16), d=3, N=6).initialise(seed=2).save_pretrained(tmp_path / "other")
    capsys.readouterr()
    assert main(["identify", str(other), "--probes", str(saved / "probes.safetensors")]) == 2
    assert "other weights" in capsys.readouterr().err


def test_probes_of_another_task_are_one_line_and_status_2(tmp_path, capsys):
    model = GPT(Model(layers=1, heads=2, width=16), d=3, N=6).initialise(seed=1)
    folder = str(model.save_pretrained(tmp_path / "nameless"))
    assert main(["probe", folder, "--prompts", "8", "--test-prompts", "4", "--json", "--sigma", "0.3"]) == 0
    capsys.readouterr()
    assert main(["identify", folder, "--prompts", "64"]) == 2
    error = capsys.readouterr().err
    assert "probes.safetensors: these probes were fitted on another task: sigma = 0.3 (here 0.05). Fit others" in error


def test_the_papers_network_is_judged_at_its_one_context(tmp_path, capsys):
    save = str(tmp_path / "network.safetensors")
    size = ["--scheme", "paper", "--d", "1", "--N", "3", "--lam", "0.3", "--L", "4", "--json"]
    assert main(["construct", *size, "--B-y", "8", "--out", save]) == 0
    capsys.readouterr()
    assert main(["identify", save, "--prompts", "64", "--verbose"]) == 0
    assert "n = 3\n" in capsys.readouterr().out
    assert main(["construct", *size, "--B-y", "1", "--out", save]) == 0
    capsys.readouterr()
    assert main(["identify", save, "--prompts", "64"]) == 2
    assert "Construct with a larger B_y" in capsys.readouterr().err


@pytest.mark.slow
def test_a_constructed_network_is_identified_from_its_file(tmp_path, capsys):
    save = str(tmp_path / "network.safetensors")
    assert main(["construct", "--d", "3", "--N", "8", "--lam", "0.01", "--L", "12", "--out", save, "--json"]) == 0
    capsys.readouterr()
    assert main(["identify", save, "--prompts", "64", "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["solver"], verdict["carried_by"]) == ("chebyshev", "its own read-out")
    assert max(verdict["behaviour"]["descriptions"]["label interventions"]["additivity"]) < 1e-6
