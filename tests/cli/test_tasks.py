"""Options that make a task: linear ones, kernels of the user's, modules to import; and what contradicts them."""

import json
import sys

import pytest

import layerstep as ls
from layerstep.cli import main

SMALL = ["--N", "6", "--prompts", "8", "--steps", "40"]


def printed(capsys, *words) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words) -> str:
    assert main(list(words)) == 2
    return capsys.readouterr().err


def test_solve_linear_regression(capsys):
    given = ["--task", "linear", "--d", "3", "--sigma", ".3", "--covariance", "1,.5,.1", "--mean", "1"]
    found = printed(capsys, "solve", *given, *SMALL)
    task = ls.LinearRegression(d=3, N=6, sigma=0.3, covariance=(1, 0.5, 0.1), mean=1)
    assert found["task"] == task.to_dict()
    assert list(found["mse"]) == ["gd-weights", "newton", "cg-weights", "nesterov-weights"]
    prompts = ls.sample(task, 8, seed=256)
    error = (ls.exact(prompts, task) - prompts.target).square().mean(0)
    assert found["krr"] == pytest.approx(error.tolist())
    assert found["mse"]["cg-weights"][-1] == pytest.approx(found["krr"], rel=1e-6)


def test_solve_with_sparse_weights_and_with_a_pool(capsys):
    for more in (["--prior", "sparse:2"], ["--pool", "4"]):
        assert printed(capsys, "solve", "--task", "linear", "--d", "3", *more, *SMALL)["task"]["d"] == 3


def test_solve_with_a_kernel_that_has_parameters(capsys):
    assert printed(capsys, "solve", "--kernel", "polynomial:3", *SMALL)["task"]["kernel"] == "polynomial:3"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "trees"], "--task = 'trees': must be one of gp, linear"),
        (["--task", "linear", "--v", "2"], "--v = 2.0: must be left out of a linear task"),
        (["--prior", "sparse:2"], "--prior = sparse:2: must be left out, or given with --task linear"),
        (["--task", "linear", "--mean", "a,b"], "--mean = 'a,b': must be a number, or several separated by commas"),
        (["--task", "linear", "--solvers", "richardson"], "above 0. This kernel has values below 0"),
        (["--kernel", "nowhere_at_all:f"], "kernel = 'nowhere_at_all:f': cannot be imported (ModuleNotFoundError"),
        (["--import", "nowhere_at_all"], "--import nowhere_at_all: cannot be imported (ModuleNotFoundError"),
    ],
)
def test_what_does_not_fit_is_said(capsys, words, said):
    assert said in refused(capsys, "solve", *SMALL, *words)


MODULE = """
import layerstep as ls, torch
def rough(x, z, v):
    return torch.exp(-torch.cdist(x, z) / v)
ls.KERNELS["NAME"] = rough
"""


def test_a_model_on_a_kernel_of_the_users_is_read_when_told_to_import(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rough_kernels.py").write_text(MODULE.replace("NAME", "mine-for-the-cli"))
    out, name = str(tmp_path / "out"), "my_rough_kernels:rough"
    small = ["--steps", "2", "--warmup", "0", "--model.layers", "1", "--batch", "2", "--prompts", "0"]
    try:
        assert main(["train", "tiny", "--out", out, "--kernel", name, *small]) == 0
        del ls.KERNELS[name]
        probing = ["probe", out, "--prompts", "64", "--test-prompts", "8"]
        assert f"--kernel {name}" in refused(capsys, *probing)
        assert main([*probing, "--kernel", name]) == 0
        del sys.modules["my_rough_kernels"]
        words = ["solve", "--kernel", "mine-for-the-cli", "--import", "my_rough_kernels", *SMALL]
        assert main(words) == 0, capsys.readouterr().err
    finally:
        ls.KERNELS.pop(name, None)
        ls.KERNELS.pop("mine-for-the-cli", None)


def test_train_and_probe_linear_regression(capsys, tmp_path):
    out = str(tmp_path / "out")
    small = ["--steps", "3", "--warmup", "0", "--model.layers", "1", "--batch", "2", "--prompts", "8"]
    found = printed(capsys, "train", "linear-tiny", "--out", out, "--sigma", "0", "--prior", "sparse:2", *small)
    assert found[0]["evaluation"]["mse"][-1] > 0
    probing = ["probe", out, "--prompts", "64", "--test-prompts", "8"]
    assert printed(capsys, *probing)["task"]["prior"] == "sparse:2"
    assert "--task = gp: must be linear" in refused(capsys, *probing, "--task", "gp")
    assert "--sigma = 0.1: must be 0.0" in refused(capsys, *probing, "--sigma", ".1")
    assert "v is not a scalar of a run" in refused(capsys, "train", "linear-tiny", "--out", out + "2", "--v", "2")


def test_a_model_that_says_its_sizes_alone_may_be_given_them_again(capsys, tmp_path):
    ls.GPT(ls.Model(layers=1, heads=1, width=4), d=1, N=3).initialise(0).save_pretrained(tmp_path)
    probe = ["probe", str(tmp_path), "--prompts", "16", "--test-prompts", "2"]
    assert printed(capsys, *probe, "--d", "1", "--sigma", ".2")["task"] == ls.Task(d=1, N=3, sigma=0.2).to_dict()
    assert f"--d = 2: must be 1, which {tmp_path} was made for" in refused(capsys, *probe, "--d", "2")


def test_train_a_preset_on_the_other_kind_of_task(capsys, tmp_path):
    small = ["--steps", "2", "--warmup", "0", "--model.layers", "1", "--batch", "2", "--prompts", "0"]
    for preset, kind, type_ in (("tiny", "linear", "linear-regression"), ("linear-tiny", "gp", None)):
        out = tmp_path / preset
        assert main(["train", preset, "--out", str(out), "--task", kind, *small]) == 0
        task = json.loads((out / "config.json").read_text())["about"]["run"]["task"]
        assert (task.get("type"), task["d"]) == (type_, ls.PRESETS[preset].task.d)
