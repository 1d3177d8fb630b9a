"""Runs are values: their schedules are functions of the step, their identity is their content, typos are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from layerstep.errors import InputError
from layerstep.tasks import Task
from layerstep.training import PRESETS, Model, Run, active_points, evaluate, learning_rate
from layerstep.training.engine import Engine


def test_the_papers_numbers_are_the_defaults():
    run = PRESETS["paper"]
    assert (run.model.layers, run.model.heads, run.model.width) == (12, 8, 256)
    assert (run.steps, run.batch, run.lr, run.lr_final, run.warmup) == (500_000, 64, 1e-4, 1e-5, 0)
    assert (run.beta1, run.beta2, run.weight_decay, run.clip) == (0.9, 0.999, 1e-4, 1.0)
    assert run.task == Task()


def test_the_curriculum_counts_11_points_then_two_more_every_2000_steps_up_to_41():
    run = Run()
    assert [active_points(run, s) for s in (0, 1999, 2000, 4000)] == [11, 11, 13, 15]
    assert [active_points(run, s) for s in (29_999, 30_000, 499_999)] == [39, 41, 41]
    assert active_points(Run(curriculum_every=0), 0) == 41


def test_the_rate_is_torchs_cosine():
    run = Run(steps=50)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=run.lr)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=run.steps, eta_min=run.lr_final)
    for step in range(run.steps):
        assert learning_rate(run, step) == pytest.approx(cosine.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        cosine.step()


def test_the_rate_climbs_through_the_warm_up_and_meets_the_cosine():
    run = Run(steps=100, warmup=10, lr=1.0, lr_final=0.1)
    assert [learning_rate(run, s) for s in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert learning_rate(run, 55) == pytest.approx(0.55)
    assert learning_rate(run, 100) == pytest.approx(0.1)


@pytest.mark.parametrize("run", PRESETS.values(), ids=PRESETS)
def test_a_run_survives_json_and_keeps_its_identity(run):
    again = Run.from_dict(json.loads(json.dumps(run.to_dict())))
    assert again == run
    assert again.identity == run.identity
    assert run.override(seed=run.seed + 1).identity != run.identity


RESULTS = sorted((Path(__file__).parents[2] / "results" / "models").glob("*/evaluation.json"))


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.parent.name)
def test_the_runs_of_the_results_keep_their_identity(file):
    about = json.loads((file.parent / "config.json").read_text())["about"]
    assert Run.from_dict(about["run"]).identity == json.loads(file.read_text())["identity"]


def test_the_preset_for_a_laptop_learns():
    """A fifth of its steps: from 108 times the error of exact KRR to below 20."""
    run = PRESETS["tiny"]
    engine = Engine([run], torch.device("cpu"))
    before = evaluate(engine.gpt(0), run.task, B=200, seed=1).ratio
    while engine.step < run.steps // 5:
        engine.advance(64)
    after = evaluate(engine.gpt(0), run.task, B=200, seed=1).ratio
    assert before > 80
    assert after < 20


def test_numbers_of_numpy_are_numbers(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    scalars = {"seed": 3, "steps": 640, "clip": 2.0, "beta1": 0.5, "weight_decay": 0.0, "layers": 2, "d": 3, "v": 0.5}
    run = Run().override(**scalars)
    theirs = {name: (np.int64 if isinstance(value, int) else np.float32)(value) for name, value in scalars.items()}
    again = Run().override(**theirs)
    assert again == run
    assert again.identity == run.identity
    assert Run.from_dict(json.loads(json.dumps(again.to_dict()))) == run


def test_whole_numbers_and_floats_of_one_value_are_one_run():
    assert Run(clip=1, lr_final=1, lr=1).identity == Run(clip=1.0, lr_final=1.0, lr=1.0).identity


def test_scalars_are_changed_wherever_they_live():
    run = Run().override(lr=0.5, layers=2, inputs="uniform", v=2.0)
    assert (run.lr, run.model.layers, run.task.inputs, run.task.v) == (0.5, 2, "uniform", 2.0)
    assert run.model.width == 256


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Model(width=100, heads=8), "width = 100: must be divisible by heads = 8. Try width = 96"),
        (lambda: Model(attention="cosine"), "attention = 'cosine': must be one of softmax, linear"),
        (lambda: Model(layers=0), "layers = 0: must be an integer of at least 1"),
        (lambda: Run(lr=0.0), "lr = 0.0"),
        (lambda: Run(steps=10, warmup=10), r"warmup = 10: must be below steps = 10\. Take 0 for a short run"),
        (lambda: Run(beta2=1.0), "beta2 = 1.0"),
        (lambda: Run(beta1="0.9"), "beta1 = '0.9': must be a number of at least 0 and below 1"),
        (lambda: Run(weight_decay="0"), "weight_decay = '0': must be a finite number of at least 0"),
        (lambda: Run(weight_decay=float("inf")), "weight_decay = inf: must be a finite number"),
        (lambda: Run(seed=-1), "seed = -1"),
        (lambda: Run(precision="half"), "precision = 'half': must be one of bfloat16"),
        (lambda: Run(task=Task(d=1, sigma=1e-4)), r"sigma = 0.0001: must be at least 0.0044 .* or precision = float64"),
        (lambda: Run(task=Task(kernel="arccos1", v=0.01, sigma=0.1)), r"sigma = 0.1: must be at least 0.44"),
        (lambda: Run(task=Task(kernel="arccos1", inputs="gaussian", input_std=1e2, d=1)), "must be at least 0.44"),
        (lambda: Run(task=Task(sigma=1e-8), precision="float64"), r"at least 1.9e-07 .* Use a larger sigma\."),
        (lambda: Run.from_dict({"learning_rate": 1}), "run keys = learning_rate: must be among task, model"),
        (lambda: Run.from_dict({"model": {"depth": 1}}), "model keys = depth"),
        (lambda: Run.from_dict({"task": {"n": 1}}), "task keys = n"),
        (lambda: Run().override(depth=3), "depth is not a scalar of a run. There are: steps"),
    ],
)
def test_mistakes_are_refused_in_one_sentence(make, words, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    with pytest.raises(InputError, match=words):
        make()
