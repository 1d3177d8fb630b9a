"""ls.sweep on a real Slurm of two nodes: jobs killed, preempted, a node lost, the driver killed; the same bits."""

import contextlib
import json
import os
import signal
import threading
from pathlib import Path

import pytest

import layerstep as ls
from cluster.common import (
    LONG,
    LOST,
    QUICK,
    RUN,
    alone,
    attempts,
    driver,
    one_by_one,
    own_kernel,
    step_of,
    wait_until,
    weights,
)
from cluster.slurm import Cluster, missing, processes
from layerstep.engines import slurm as engine

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(missing()), reason=missing())]
OPTIONS = {"gpus": 0, "timeout_min": 30}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(autouse=True)
def quick(cluster, monkeypatch):
    """Slurm is asked every second, and network disks are not waited for."""
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    monkeypatch.setattr(engine.Slurm, "every", 1.0)
    monkeypatch.setattr(engine, "SETTLE", 3.0)


def worker_of(out):
    """The process that trains below `out`."""
    for number in processes():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
            if b"submitit.core._submit" in words and any(word.startswith(os.fsencode(out)) for word in words):
                return number
    return None


def beside(action):
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_a_job_is_killed_another_diverges_and_all_end_with_the_bits_of_runs_alone(tmp_path, monkeypatch):
    kernel = own_kernel(monkeypatch)
    runs = [LONG.override(kernel=kernel), LONG.override(kernel=kernel, seed=1), LOST]
    out = tmp_path / "out"

    def kill():
        wait_until(lambda: step_of(out) >= 256)
        os.kill(wait_until(lambda: worker_of(out)), signal.SIGKILL)

    thread = beside(kill)
    found = ls.sweep(runs, out, "slurm", **OPTIONS, **QUICK)
    thread.join()
    assert [outcome.state[:8] for outcome in found] == ["done", "done", "failed: "]
    assert "the loss of run 0 is nan" in found[2].state
    assert sum(attempts(outcome.folder) for outcome in found[:2]) == 3
    for index in (0, 1):
        assert weights(found[index].folder) == alone(runs[index], tmp_path / f"alone{index}")
        assert one_by_one(found[index].folder / "log.jsonl")
    assert (out / ".jobs").stat().st_mode & 0o777 == 0o700


def test_the_driver_is_killed_and_its_jobs_are_found_again_not_submitted_twice(tmp_path, cluster):
    runs, out = [LONG.override(seed=seed) for seed in (2, 3)], tmp_path / "out"
    first = driver(out, runs, "slurm", OPTIONS)
    wait_until(lambda: step_of(out) >= 128)
    first.kill()
    first.wait()
    before = jobs_of(cluster, out)
    found = ls.sweep(runs, out, "slurm", **OPTIONS, **QUICK)
    assert [outcome.state for outcome in found] == ["done", "done"]
    assert jobs_of(cluster, out) == before
    assert len(before) == 2
    assert [attempts(outcome.folder) for outcome in found] == [1, 1]
    assert weights(found[0].folder) == alone(runs[0], tmp_path / "alone")


def jobs_of(cluster, out):
    shown = cluster.call("scontrol", "show", "jobs", "-o").splitlines()
    return sorted(line.split()[0] for line in shown if f"{out}/" in line)


def test_a_job_that_is_preempted_is_queued_again_and_goes_on(tmp_path, cluster):
    out = tmp_path / "out"

    def preempt():
        wait_until(lambda: step_of(out) >= 256)
        job = next(iter(json.loads((out / "jobs.json").read_text()).values()))["job"]
        cluster.call("scancel", "--signal=USR2", job)
        wait_until(lambda: "PENDING" in cluster.call("squeue", "-h", "-j", job, "-o", "%T"))
        wait_until(lambda: not cluster.call("scontrol", "update", f"JobId={job}", "StartTime=now"))  # not in 2 minutes

    thread = beside(preempt)
    found = ls.sweep([LONG.override(seed=4)], out, "slurm", **OPTIONS, **QUICK)
    thread.join()
    assert found[0].state == "done"
    assert attempts(found[0].folder) == 2
    assert weights(found[0].folder) == alone(found[0].run, tmp_path / "alone")


def test_nobody_waits_and_somebody_collects(tmp_path):
    left = ls.sweep([RUN], tmp_path / "out", "slurm", wait=False, **OPTIONS, **QUICK)
    assert left[0].state in ("waiting", "training", "done")
    assert ls.sweep([RUN], tmp_path / "out", "slurm", **OPTIONS, **QUICK)[0].state == "done"
    assert attempts(left[0].folder) == 1


def test_a_node_is_lost_and_its_run_goes_on_upon_the_other(tmp_path, cluster):
    runs, out = [LONG.override(seed=seed) for seed in (5, 6, 7, 8)], tmp_path / "out"

    def lose():
        wait_until(lambda: step_of(out) >= 256)
        cluster.lose("n1")

    thread = beside(lose)
    try:
        found = ls.sweep(runs, out, "slurm", **OPTIONS, **QUICK)
    finally:
        thread.join()
        cluster.start_node("n1")
    assert [outcome.state for outcome in found] == ["done"] * 4
    assert sum(attempts(outcome.folder) for outcome in found) > 4
    again = next(outcome for outcome in found if attempts(outcome.folder) > 1)
    assert weights(again.folder) == alone(again.run, tmp_path / "alone")
