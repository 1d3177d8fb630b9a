"""run_round_robin: what one training meets, the others do not notice."""

import itertools

from layerstep.tasks import Task
from layerstep.training import Diverged, Model, Run
from layerstep.training.loop import training
from layerstep.training.round_robin import run_round_robin

RUN = Run(task=Task(N=4, d=1), model=Model(layers=1, heads=1, width=8), steps=640, batch=4, curriculum_every=0)


def test_when_time_is_up_one_that_diverged_unnoticed_is_told_and_the_others_are_kept(tmp_path):
    runs = {"lost": RUN.override(lr=1e30), "whole": RUN, "other": RUN.override(seed=1)}
    trainings = [training(run, tmp_path / name, device="cpu") for name, run in runs.items()]
    ended, rounds = {}, itertools.count()
    # After one round the losses are not read yet: the first to look is `close`.
    late = run_round_robin(trainings, ended.setdefault, time_is_up=lambda: next(rounds) > 0)
    assert late == [1, 2]
    assert list(ended) == [0]
    assert isinstance(ended[0], Diverged)
    assert [any((tmp_path / name).glob("checkpoints/*.safetensors")) for name in runs] == [False, True, True]


def test_a_training_that_was_never_begun_is_late_too(tmp_path):
    waiting = training(RUN, tmp_path / "waits", device="cpu")
    assert run_round_robin([waiting], lambda index, error: None, time_is_up=lambda: True) == [0]
    assert not (tmp_path / "waits").exists()
