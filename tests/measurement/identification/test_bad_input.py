"""Bad input is answered in words: layers, prompts, instruments and arguments that are not what they should be."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import layerstep as ls
from layerstep.measurement import Instrument, identify
from oracles.planted import planted

TASK = ls.Task(inputs="gaussian")


@pytest.fixture(scope="module")
def short():
    return ls.sample(replace(TASK, N=12), 64, seed=4)


def with_nan(path):
    values = path.values.clone()
    values[2, 0, 0] = torch.nan
    return ls.Trajectory(values, path.stages, "nan")


def test_a_nan_layer_is_left_out_and_said(prompts, instrument):
    verdict = identify(with_nan(planted(prompts, "richardson")), prompts, TASK, instrument=instrument)
    assert "layers 3 have predictions that are NaN" in verdict.report()
    assert verdict.overall.layers == (1, 2, 4, 5)
    assert verdict.solver == "richardson"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (lambda prompts: torch.full((3, prompts.B, prompts.N), 0.3, dtype=torch.float64), "predict a constant"),
        (lambda prompts: torch.full((3, prompts.B, prompts.N), torch.nan, dtype=torch.float64), "NaN"),
        (lambda prompts: prompts.x[:, 1:, 0].sin().expand(3, -1, -1), "ignore the labels"),
        (lambda prompts: ls.exact(prompts, TASK).expand(3, -1, -1), "at exact KRR"),
    ],
)
def test_paths_with_nothing_to_identify_say_why(prompts, instrument, values, words):
    verdict = identify(ls.Trajectory(values(prompts), [1, 2, 3], "m"), prompts, TASK, instrument=instrument)
    assert verdict.status == "nothing to identify"
    assert verdict.solver is None
    assert words in verdict.report()


def test_too_few_sequences_give_no_verdict(prompts):
    few = prompts[:10]
    verdict = identify(planted(few, "richardson"), few, TASK)
    assert verdict.solver is None
    assert "10 sequences are too few" in verdict.report()


def test_a_path_of_another_length_is_refused(prompts, instrument):
    path = planted(prompts, "richardson")
    with pytest.raises(ls.InputError, match="on the prompts given"):
        identify(ls.Trajectory(path.values[:, :-1], path.stages), prompts, TASK)
    with pytest.raises(ls.InputError, match="context lengths"):
        identify(ls.Trajectory(path.values[..., :-1], path.stages), prompts, TASK)


def test_an_instrument_for_other_prompts_or_another_task_is_refused(prompts, instrument):
    path = planted(prompts, "richardson")
    moved = ls.Prompts(prompts.x + 1, prompts.y)
    with pytest.raises(ls.InputError, match="instrument = prepared on other prompts"):
        identify(path, moved, TASK, instrument=instrument)
    with pytest.raises(ls.InputError, match=r"prepared for Task\(.*sigma=0\.05.*the task given, Task\(.*sigma=0\.1"):
        identify(path, prompts, replace(TASK, sigma=0.1), instrument=instrument)


def test_labels_too_large_for_single_precision_are_refused_in_words(short):
    with pytest.raises(ls.InputError, match=r"labels of size 9.6e\+24: must be a root mean square from 1e-15 to 1e15"):
        Instrument.prepare(ls.Prompts(short.x, 1e25 * short.y), TASK)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": ls.Trajectory(torch.zeros(0, 96, 40), [])}, "path = no stages: must be one stage or more"),
        ({"path": torch.zeros(2, 96, 40)}, r"path = a Tensor: must be a Trajectory\. Make one with ls\.Trajectory"),
        (
            {"model_fn": nn.Linear(1, 1)},
            "model_fn = a Linear: must be a function from prompts to the trajectory, such as probes.path",
        ),
        ({"model_fn": "model"}, "model_fn = a str: must be a function"),
        (
            {"model_fn": lambda given: given.y},
            "model_fn = a function that gives a Tensor: must be a function from prompts",
        ),
    ],
)
@pytest.mark.usefixtures("as_for_a_user")
def test_mistaken_arguments_are_refused_before_the_library_is_built(prompts, arguments, words, monkeypatch):
    def build(*_, **options):
        raise AssertionError("the library is built")

    monkeypatch.setattr(Instrument, "prepare", build)
    given = {"path": planted(prompts, "richardson"), "prompts": prompts, "task": TASK}
    with pytest.raises(ls.InputError, match=words):
        identify(**(given | arguments))
