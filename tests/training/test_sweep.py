"""ls.sweep: every run once, whatever dies; the same bits as alone; sentences for what cannot be."""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import layerstep as ls
from layerstep.engines import driving
from layerstep.errors import InputError
from layerstep.files import InUseError, locked
from layerstep.folders.survey import find_runs
from layerstep.training import unit as worker
from layerstep.training.loop import training
from layerstep.training.planning import names_of

RUN = ls.Run(task=ls.Task(N=4, d=2), model=ls.Model(layers=1, heads=2, width=16), steps=64, batch=4, lr=1e-3, warmup=10)
SEEDS = [RUN.override(seed=seed) for seed in range(4)]
QUICK = {"prompts": 16, "snapshots": ()}


def pool(workers=2):
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"))


def weights(folder):
    return (Path(folder) / "model.safetensors").read_bytes()


def alone(run, folder):
    ls.train(run, folder, device="cpu", **QUICK)
    return weights(folder)


def test_a_link_to_what_may_not_be_read_is_passed_over(tmp_path, monkeypatch):
    """Such as /proc/1/cwd."""

    def is_dir():
        raise PermissionError(13, "Permission denied")

    closed = SimpleNamespace(name="cwd", path=str(tmp_path / "cwd"), is_dir=is_dir)
    monkeypatch.setattr(os, "scandir", lambda _: contextlib.nullcontext([closed]))
    assert find_runs(tmp_path) == []


def test_a_sweep_here_names_what_differs_and_is_not_repeated(tmp_path, monkeypatch):
    runs = [RUN.override(seed=seed, width=width) for seed in (0, 1) for width in (8, 16)]
    found = ls.sweep(runs, tmp_path, device="cpu", **QUICK)
    assert [outcome.folder.name for outcome in found] == [
        "seed=0,width=8", "seed=0,width=16", "seed=1,width=8", "seed=1,width=16",
    ]  # fmt: skip
    assert [outcome.run for outcome in found] == runs
    assert {outcome.state for outcome in found} == {"done"}
    assert found[0].evaluation["B"] == 16
    assert weights(found[3].folder) == alone(runs[3], tmp_path.parent / f"{tmp_path.name}-alone")
    monkeypatch.setattr("layerstep.training.loop.Engine", None)  # nothing is trained again
    assert ls.sweep(runs, tmp_path, device="cpu", **QUICK) == found


def test_stacks_write_a_directory_for_each_run_and_are_kept_when_more_runs_come(tmp_path):
    first = ls.sweep(SEEDS[:2], tmp_path, stack=2, device="cpu", **QUICK)
    assert [outcome.folder for outcome in first] == [tmp_path / "seed=0", tmp_path / "seed=1"]
    again = ls.sweep(SEEDS[::-1], tmp_path, stack=4, device="cpu", **QUICK)
    assert [outcome.state for outcome in again] == ["done"] * 4
    assert {(begun / "runs.json").exists() for begun in (tmp_path / "stacks").iterdir()} == {True}
    sizes = sorted(len(json.loads(file.read_text())["runs"]) for file in tmp_path.glob("stacks/*/runs.json"))
    assert sizes == [2, 2]
    assert weights(again[0].folder) == alone(SEEDS[3], tmp_path.parent / f"{tmp_path.name}-alone")


def test_a_stack_that_was_begun_goes_on_as_it_was(tmp_path):
    steps = training(SEEDS[:2], tmp_path / "stacks" / "mine", device="cpu", names=["../../a", "../../b"], **QUICK)
    next(steps)
    steps.close()
    found = ls.sweep(SEEDS[1:3], tmp_path, device="cpu", **QUICK)
    assert [outcome.folder.name for outcome in found] == ["b", "seed=2"]
    assert weights(tmp_path / "b") == alone(SEEDS[1], tmp_path.parent / f"{tmp_path.name}-alone")
    assert len(json.loads((tmp_path / "stacks/mine/runs.json").read_text())["resumed"]) == 1


def test_a_run_that_diverges_costs_no_other_and_is_not_tried_again(tmp_path, monkeypatch):
    runs = [RUN.override(lr=1e30, warmup=0), RUN]
    for stack in (1, 2):
        found = ls.sweep(runs, tmp_path / str(stack), stack=stack, device="cpu", **QUICK)
        assert found[0].state.startswith("failed: the loss of run 0 is nan")
        assert found[1].state == "done"
    monkeypatch.setattr("layerstep.training.loop.Engine", None)
    assert ls.sweep(runs, tmp_path / "2", device="cpu", **QUICK) == found


def test_names_of_runs_are_short_and_differ():
    assert names_of([RUN]) == [RUN.name]
    assert names_of([RUN.override(lr=1e-3), RUN.override(lr=0.1 + 0.2)]) == ["lr=0.001", "lr=0.30000000000000004"]
    many = [RUN.override(seed=seed, lr=seed + 0.1234567891) for seed in range(3)]
    assert len(set(names_of(many))) == 3
    assert names_of([RUN, RUN.override(kernel="arccos1", layers=2)])[1] == "kernel=arccos1,layers=2"


def test_a_name_that_another_run_has_gets_the_identity_behind_it(tmp_path):
    ls.sweep(SEEDS[:2], tmp_path, device="cpu", **QUICK)
    others = [run.override(lr=2e-3) for run in SEEDS[:2]]
    found = ls.sweep(others, tmp_path, device="cpu", **QUICK)
    assert [outcome.folder.name for outcome in found] == [f"seed={i}-{run.identity}" for i, run in enumerate(others)]


def tell(outcome):
    with open(outcome.folder.parent / "calls", "a") as file:
        file.write(f"{outcome.folder.name}\n")
    return {"step": outcome.run.steps}


def fail(outcome):
    raise ValueError("the shelf is full")


def test_then_is_called_once_per_run_and_its_result_is_kept(tmp_path):
    ls.sweep(SEEDS[:1], tmp_path, device="cpu", **QUICK)  # done already, without then
    for _ in range(2):
        found = ls.sweep(SEEDS[:2], tmp_path, then=tell, device="cpu", **QUICK)
        assert [outcome.result for outcome in found] == [{"step": 64}] * 2
    assert len((tmp_path / "calls").read_text().split()) == 2
    found = ls.sweep(SEEDS[:2], tmp_path, then=fail, device="cpu", **QUICK)
    assert {outcome.state for outcome in found} == {"failed: then: ValueError: the shelf is full"}


def test_an_index_trains_one_unit_of_an_array_job(tmp_path):
    found = ls.sweep(SEEDS, tmp_path, index=1, stack=2, device="cpu", **QUICK)
    assert [outcome.folder.name for outcome in found] == ["seed=2", "seed=3"]
    assert {entry.name: entry.state for entry in find_runs(tmp_path)} == {
        "seed=0": "waiting", "seed=1": "waiting", "seed=2": "done", "seed=3": "done",
    }  # fmt: skip
    with pytest.raises(InputError, match="index = 2: must be an integer from 0 to 1"):
        ls.sweep(SEEDS, tmp_path, index=2, stack=2, device="cpu", **QUICK)


def test_a_pool_ends_with_the_bits_of_a_run_alone(tmp_path, monkeypatch):
    """With a kernel that is a lambda of this test."""
    monkeypatch.setitem(ls.KERNELS, "mine", lambda x, z, v: torch.exp(-torch.cdist(x, z) / v))
    runs = [RUN.override(kernel=kernel, seed=7) for kernel in ("mine", "gaussian")]
    lost = RUN.override(lr=1e30, warmup=0)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"), initializer=_forget) as workers:
        found = ls.sweep([*runs, lost], tmp_path, workers, then=lambda outcome: outcome.run.task.kernel, **QUICK)
    assert [outcome.state for outcome in found[:2]] == ["done", "done"]
    assert [outcome.result for outcome in found] == ["mine", "gaussian", None]
    assert found[2].state.startswith("failed: the loss")
    for run, outcome in zip(runs, found, strict=False):
        assert weights(outcome.folder) == alone(run, tmp_path.parent / f"{tmp_path.name}-{run.task.kernel}")


def _forget():
    """A worker that was not forked from this process would not have it either."""
    ls.KERNELS.pop("mine", None)


LONG = [RUN.override(steps=320, seed=seed) for seed in range(2)]


def wait_for_log(folder, steps=64):
    while True:
        for log in Path(folder).rglob("log.jsonl"):
            with open(log) as file:
                lines = [line for line in file.read().split("\n") if line.endswith("}")]
            if lines and json.loads(lines[-1])["step"] >= steps:
                return
        time.sleep(0.01)


def test_a_worker_that_is_killed_is_replaced_and_its_run_goes_on(tmp_path):
    workers = pool()

    def kill():
        wait_for_log(tmp_path)
        os.kill(next(iter(workers._processes)), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    found = ls.sweep(LONG, tmp_path, workers, checkpoint_seconds=0, **QUICK)
    thread.join()
    assert [outcome.state for outcome in found] == ["done", "done"]
    resumed = [len(json.loads(file.read_text()).get("resumed", [])) for file in tmp_path.glob("*/runs.json")]
    assert sum(resumed) >= 1
    assert weights(found[0].folder) == alone(LONG[0], tmp_path.parent / f"{tmp_path.name}-alone")


def test_a_worker_that_dies_between_two_units_is_replaced(tmp_path):
    workers = pool(1)
    workers.submit(int).result()
    os.kill(next(iter(workers._processes)), signal.SIGKILL)
    while not workers._broken:
        time.sleep(0.01)
    assert ls.sweep(SEEDS[:1], tmp_path, workers, **QUICK)[0].state == "done"


def test_a_unit_that_kills_its_worker_costs_no_other(tmp_path, monkeypatch):
    """All units of a pool die when one does; here every time before any of them has got ahead."""
    whole = worker.training

    def deadly(run, out, **options):
        if run.seed == 1:
            os._exit(9)
        time.sleep(0.3)
        return whole(run, out, **options)

    def begun(run, out, **options):  # a death counts when the run was begun
        (Path(out) / "runs.json").exists() or list(zip(whole(run, out, **options), range(1), strict=False))
        return deadly(run, out, **options)

    monkeypatch.setattr(worker, "training", begun)
    with pool() as workers:
        found = ls.sweep(SEEDS[:3], tmp_path, workers, device="cpu", **QUICK)
    assert [outcome.state[:6] for outcome in found] == ["done", "failed", "done"]
    assert "the worker died (BrokenProcessPool" in found[1].state


DRIVER = """
import json, multiprocessing, sys
import layerstep as ls
from concurrent.futures import ProcessPoolExecutor
import torch
torch.set_num_threads(1)
runs = [ls.Run.from_dict(values) for values in json.loads(sys.argv[2])]
with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as workers:
    ls.sweep(runs, sys.argv[1], workers, checkpoint_seconds=0, prompts=16, snapshots=())
"""


def test_the_driver_is_killed_and_called_again(tmp_path):
    command = [sys.executable, "-c", DRIVER, str(tmp_path), json.dumps([run.to_dict() for run in LONG])]
    driver = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    wait_for_log(tmp_path)
    driver.kill()
    driver.wait()
    with pool() as workers:
        found = ls.sweep(LONG, tmp_path, workers, checkpoint_seconds=0, **QUICK)
    assert [outcome.state for outcome in found] == ["done", "done"]
    for outcome in found:
        steps = [json.loads(line)["step"] for line in (outcome.folder / "log.jsonl").read_text().splitlines()]
        assert steps == sorted(set(steps))
    assert weights(found[1].folder) == alone(LONG[1], tmp_path.parent / f"{tmp_path.name}-alone")


def test_what_dies_three_times_without_a_gain_is_given_up_and_the_others_are_not(tmp_path, monkeypatch):
    tries, seen = [], set()

    def full(run, out, **options):
        if run.seed == 1:
            seen.update(entry.state[:6] for entry in find_runs(tmp_path) if entry.run["seed"] == 1)
            tries.append(run.seed)
            raise OSError(28, "No space left on device")
        return training(run, out, **options)

    monkeypatch.setattr(worker, "training", full)
    with ThreadPoolExecutor(2) as workers:
        found = ls.sweep(SEEDS[:3], tmp_path, workers, device="cpu", **QUICK)
    assert [outcome.state[:6] for outcome in found] == ["done", "failed", "done"]
    assert found[1].state == "failed: OSError: [Errno 28] No space left on device (3 times)"
    assert len(tries) == driving.TRIES
    assert seen == {"waitin"}  # not failed before it is given up
    states = {entry.name: entry.state for entry in find_runs(tmp_path)}
    assert states["seed=1"] == "failed: OSError: [Errno 28] No space left on device"
    monkeypatch.undo()
    with ThreadPoolExecutor(2) as workers:
        found = ls.sweep(SEEDS[:3], tmp_path, workers, device="cpu", **QUICK)
    assert {outcome.state for outcome in found} == {"done"}
    assert {entry.state for entry in find_runs(tmp_path)} == {"done"}


def test_who_does_not_wait_can_come_back(tmp_path):
    with ThreadPoolExecutor(1) as workers:
        left = ls.sweep(LONG, tmp_path, workers, wait=False, device="cpu", **QUICK)
        assert {outcome.state for outcome in left} <= {"waiting", "training"}
        found = ls.sweep(LONG, tmp_path, workers, device="cpu", **QUICK)
    assert {outcome.state for outcome in found} == {"done"}
    resumed = [json.loads(file.read_text()).get("resumed") for file in tmp_path.glob("*/runs.json")]
    assert resumed == [None, None]  # nothing was handed over twice


def test_a_unit_that_another_process_trains_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "training", lambda *words, **options: training(*words, **options | {"wait": 0.0}))
    ls.sweep(SEEDS[:1], tmp_path, index=0, device="cpu", **QUICK)
    other = training(SEEDS[1], tmp_path / SEEDS[1].name, device="cpu", **QUICK)
    next(other)
    thread = threading.Timer(0.5, lambda: list(other))
    thread.start()
    with ThreadPoolExecutor(1) as workers:
        found = ls.sweep(SEEDS[:2], tmp_path, workers, device="cpu", **QUICK)
    assert [outcome.state for outcome in found] == ["done", "done"]


def test_submitit_on_this_machine(tmp_path):
    submitit = pytest.importorskip("submitit")
    executor = submitit.LocalExecutor(tmp_path / "jobs")
    runs = [SEEDS[0], RUN.override(lr=1e30, warmup=0)]
    found = ls.sweep(runs, tmp_path / "out", executor, threads=1, **QUICK)
    assert found[0].state == "done"
    assert found[1].state.startswith("failed: the loss of run 0 is nan")
    assert weights(found[0].folder) == alone(runs[0], tmp_path.parent / f"{tmp_path.name}-alone")


def test_two_drivers_at_once_are_a_sentence(tmp_path):
    pytest.importorskip("fcntl")
    with locked(tmp_path / ".sweep.lock", "mine"):
        with pytest.raises(InUseError, match=r"is in use by another call of sweep.* layerstep runs"):
            ls.sweep(SEEDS, tmp_path, device="cpu", **QUICK)


def test_a_worker_with_other_code_or_another_disk_says_so(tmp_path, monkeypatch):
    with ThreadPoolExecutor(1) as workers:
        monkeypatch.setattr(worker, "NOT_SHARED", 0.0)
        monkeypatch.setattr(worker, "SWEEP", "elsewhere.json")
        found = ls.sweep(SEEDS[:1], tmp_path, workers, device="cpu", **QUICK)
        assert "put it on a disk that all machines share" in found[0].state
        codes = iter([{"layerstep": "0.0.1", "source": "1"}])
        here = worker.code_here()
        monkeypatch.setattr(worker, "code_here", lambda: next(codes, here))
        found = ls.sweep(SEEDS[:1], tmp_path, workers, device="cpu", **QUICK)
        assert "has another layerstep (0.1.0, source" in found[0].state
    assert [entry.state[:6] for entry in find_runs(tmp_path)] == ["failed"]


@pytest.mark.parametrize(
    ("runs", "options", "words"),
    [
        ([], {}, "runs = none: must be one run or more"),
        (RUN, {}, r"runs = a Run: must be a list or a tuple"),
        ([RUN, RUN], {}, "runs 0 and 1 are the same run"),
        ([RUN, "tiny"], {}, r"runs\[1\] = a str: must be a Run"),
        ([RUN], {"on": "slrum"}, "on = 'slrum': must be None, one of slurm, ray, or an executor"),
        ([RUN], {"on": 4}, "on = 4: must be None"),
        ([RUN], {"timeout_min": 3}, "options = timeout_min: must be left out without an engine"),
        ([RUN], {"stack": 0}, "stack = 0: must be an integer from 1 to 4096"),
        ([RUN], {"then": "publish"}, "then = 'publish': must be a function of an outcome"),
        ([RUN], {"device": "tpu"}, "device = 'tpu': must be one of"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_said_in_words(runs, options, words, tmp_path, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    with pytest.raises(InputError, match=words):
        ls.sweep(runs, tmp_path / "out", **options)
    assert not list(tmp_path.glob("out/*"))


def test_snapshots_that_are_not_fractions_are_refused(tmp_path):
    with pytest.raises(ls.InputError, match="snapshots"):
        ls.sweep([ls.PRESETS["tiny"]], tmp_path, snapshots=[2.0])


def test_threads_without_end_are_refused(tmp_path):
    with pytest.raises(ls.InputError, match="threads"):
        ls.sweep([ls.PRESETS["tiny"]], tmp_path, threads=10**30)
