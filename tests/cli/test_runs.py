"""layerstep sweep, runs and evaluate: grids, lists of runs, errors of finished ones."""

import csv
import io
import json
import subprocess
import sys

import pytest

import layerstep as ls
from layerstep.cli import main
from layerstep.cli.sweep import axis, engine_of, runs_of
from layerstep.errors import InputError
from layerstep.training import PRESETS

SMALL = ["steps=64", "batch=4", "N=4", "warmup=0", "layers=1", "width=16"]


def call(capsys, *words):
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_grid_is_all_combinations_in_its_order():
    found = runs_of(["tiny"], ["seed=0:3", "kernel=gaussian,polynomial:3,0.5"], ["steps=200"])
    assert [(run.seed, run.task.kernel) for run in found] == [
        (seed, kernel) for seed in (0, 1, 2) for kernel in ("gaussian", "polynomial:3,0.5")
    ]
    assert {run.steps for run in found} == {200}
    assert axis("lr=1e-3,2e-3") == ("lr", [1e-3, 2e-3])
    assert axis("seed=0:10:5,7") == ("seed", [0, 5, 7])
    assert runs_of(["linear-tiny"], ["d=2,3"], [])[1] == PRESETS["linear-tiny"].override(d=3)


def test_names_of_the_papers_list_are_kept_as_names_and_varied_by_a_grid():
    assert list(runs_of(["sphere", "heads-2:fast"], [], [])) == ["sphere", "heads-2:fast"]
    assert [run.seed for run in runs_of(["sphere"], ["seed=1:3"], [])] == [1, 2]


def test_options_of_an_engine_are_numbers_where_they_look_like_it():
    assert engine_of(["slurm", "gpus=1", "slurm_partition=gpu", "slurm_requeue=true"]) == (
        "slurm",
        {"gpus": 1, "slurm_partition": "gpu", "slurm_requeue": True},
    )
    assert engine_of([]) == (None, {})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "names = none: must be a preset"),
        (["nobody"], "name = 'nobody': must be one of paper, fast"),
        (["fast", "sphere"], "a preset is swept alone"),
        (["tiny", "--grid", "sed=0:2"], "--grid 'sed=0:2': must be NAME=VALUE with NAME one of steps"),
        (["tiny", "--grid", "seed=5:2"], "--grid = 'seed=5:2': must be as seed=0:5"),
        (["tiny", "--grid", "seed=0:2", "seed=7"], "--grid = seed: must be what is given once"),
        (["tiny", "--grid", "seed=0:99999", "width=16,32"], "199,998 runs: must be at most 100,000"),
        (["tiny", "--grid", "lr=much"], "lr = 'much': must be a number"),
        (["tiny", "--grid", "width=63"], "width = 63: must be divisible by heads"),
        (["tiny", "--grid", "pool=3"], "pool is not a scalar of a run"),
        (["tiny", "--on", "slrum"], "on = 'slrum': must be None, one of slurm, ray"),
        (["tiny", "--on", "ray", "stack=3"], "--on = stack: must be what the engine has an option for"),
        (["tiny", "--on", "ray", "--minutes", "3"], "minutes is for trainings in this process"),
        (["tiny", "--publish"], "must be for runs of the paper's list"),
    ],
)
def test_what_cannot_be_is_a_sentence_and_nothing_is_written(words, sentence, tmp_path, capsys):
    code, out, err = call(capsys, "sweep", *words, "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert sentence in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("package", ["ray", "submitit"])
def test_an_engine_that_is_not_installed_is_named_with_the_line_that_installs_it(package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    extra = {"ray": "ray", "submitit": "slurm"}[package]
    with pytest.raises(InputError, match=rf"{package} is not installed here. Run: pip install 'layerstep\[{extra}\]'"):
        ls.sweep([PRESETS["tiny"]], tmp_path / "out", extra)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", ["token", "disabled"])
def test_a_ray_cluster_without_a_token_is_refused(mode, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with pytest.raises(InputError, match=r"ray get-auth-token --generate"):
        ls.sweep([PRESETS["tiny"]], tmp_path / "out", "ray", address="10.0.0.1:6379")
    assert not (tmp_path / "out").exists()


def test_a_sweep_from_the_command_line_is_listed_and_evaluated(tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    words = ["sweep", "tiny", "--out", out, "--set", *SMALL, "--grid", "seed=0:2,10", "lr=1e-3,1e30", "--prompts", 8]
    code, _, err = call(capsys, *words, "--device", "cpu")
    assert code == 2
    assert "3 failed; all: layerstep runs" in err
    code, printed, _ = call(capsys, "runs", out)
    assert code == 0
    assert printed.index("seed=1,") < printed.index("seed=10,")
    assert "6 runs: 3 done, 3 failed" in printed
    assert "seed=0,lr=1e+30: failed: the loss of run 0 is nan" in printed
    assert call(capsys, *words, "--status")[1] == printed
    rows = list(csv.DictReader(io.StringIO(call(capsys, "runs", out, "--csv")[1])))
    assert [row["seed"] for row in rows] == ["0", "0", "1", "1", "10", "10"]
    assert {row["state"] for row in rows if row["lr"] == "0.001"} == {"done"}
    found = json.loads(call(capsys, "runs", out, "--json")[1])
    assert found["differing"] == ["seed", "lr"]
    kept = (out / "seed=0,lr=0.001" / "evaluation.json").read_text()
    found = json.loads(call(capsys, "evaluate", out, "--json", "--prompts", 32, "--device", "cpu")[1])
    assert [each["evaluation"]["B"] for each in found] == [32] * 3
    assert (out / "seed=0,lr=0.001" / "evaluation.json").read_text() == kept
    (out / "seed=0,lr=0.001" / "evaluation.json").unlink()
    monkeypatch.setattr("layerstep.training.evaluation.PROMPTS", 8)
    assert call(capsys, "evaluate", out / "seed=0,lr=0.001", "--device", "cpu")[0] == 0
    again = json.loads((out / "seed=0,lr=0.001" / "evaluation.json").read_text())
    assert again["evaluation"] == json.loads(kept)["evaluation"]
    assert again["seconds"] == json.loads(kept)["seconds"]


def test_a_published_model_is_evaluated_from_its_file(capsys):
    code, printed, _ = call(capsys, "evaluate", "results/models/sphere", "--json")
    assert code == 0
    assert json.loads(printed)[0]["evaluation"]["ratio"] == pytest.approx(1.102, abs=0.001)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["runs", "nowhere"], "nowhere is not a directory"),
        (["runs", "docs"], "docs holds no run"),
        (["evaluate"], "directories = none: must be one or more"),
        (["evaluate", "docs"], "docs holds no finished run. How far its runs are: layerstep runs docs"),
        (["evaluate", "docs", "--prompts", "0"], "prompts = 0: must be an integer of at least 1"),
    ],
)
def test_a_directory_without_runs_is_a_sentence(words, sentence, capsys):
    code, _, err = call(capsys, *words)
    assert code == 2
    assert sentence in err


def test_runs_are_listed_without_torch(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from layerstep.cli import main; sys.exit(main(['runs', 'docs']))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).returncode == 2
