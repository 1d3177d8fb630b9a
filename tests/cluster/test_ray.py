"""ls.sweep on a Ray cluster of two raylets: a worker killed, a node removed, the driver killed; the same bits."""

import contextlib
import importlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import layerstep as ls
from cluster.common import (
    LONG,
    LOST,
    QUICK,
    alone,
    attempts,
    driver,
    one_by_one,
    own_kernel,
    step_of,
    wait_until,
    weights,
)
from cluster.slurm import processes

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="pip install 'layerstep[ray]'"),
]
OPTIONS = {"gpus": 0}


@pytest.fixture(scope="module")
def environment():
    """A token for this session, and loopback: before Ray is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setenv("RAY_health_check_timeout_ms", "5000")
        yield patch


@pytest.fixture
def cluster(environment):
    from ray.cluster_utils import Cluster

    home = tempfile.mkdtemp(prefix="ray")  # sockets have short paths
    environment.setenv("RAY_TMPDIR", home)
    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    (Path(home) / "ray").mkdir()
    made = Cluster(initialize_head=True, head_node_args=node)
    made.second = made.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    made.wait_for_nodes()
    yield made
    made.shutdown()
    environment.delenv("RAY_TMPDIR")
    shutil.rmtree(home, ignore_errors=True)


def workers():
    """The processes of Ray that are training."""
    found = []
    for number in processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{number}/cmdline").read_bytes().startswith(b"ray::train_unit"):
                found.append(number)
    return found


def beside(action):
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_a_worker_is_killed_another_diverges_and_all_end_with_the_bits_of_runs_alone(tmp_path, cluster, monkeypatch):
    kernel = own_kernel(monkeypatch)
    runs = [LONG.override(kernel=kernel), LONG.override(kernel=kernel, seed=1), LOST]
    out = tmp_path / "out"

    def kill():
        wait_until(lambda: step_of(out) >= 256)
        os.kill(wait_until(workers)[0], signal.SIGKILL)

    thread = beside(kill)
    found = ls.sweep(runs, out, "ray", address=cluster.address, **OPTIONS, **QUICK)
    thread.join()
    assert [outcome.state[:8] for outcome in found] == ["done", "done", "failed: "]
    assert "the loss of run 0 is nan" in found[2].state
    assert sum(attempts(outcome.folder) for outcome in found[:2]) == 3
    for index in (0, 1):
        assert weights(found[index].folder) == alone(runs[index], tmp_path / f"alone{index}")
        assert one_by_one(found[index].folder / "log.jsonl")


def test_a_node_is_removed_and_its_run_goes_on_upon_the_other(tmp_path, cluster):
    runs, out = [LONG.override(seed=seed) for seed in (2, 3)], tmp_path / "out"

    def remove():
        wait_until(lambda: len(list(out.rglob("log.jsonl"))) == 2 and step_of(out) >= 256)
        cluster.remove_node(cluster.second, allow_graceful=False)

    thread = beside(remove)
    found = ls.sweep(runs, out, "ray", address=cluster.address, **OPTIONS, **QUICK)
    thread.join()
    assert [outcome.state for outcome in found] == ["done", "done"]
    assert sum(attempts(outcome.folder) for outcome in found) > 2
    again = next(outcome for outcome in found if attempts(outcome.folder) > 1)
    assert weights(again.folder) == alone(again.run, tmp_path / "alone")


def test_the_driver_is_killed_and_called_again(tmp_path, cluster):
    runs, out = [LONG.override(seed=seed) for seed in (4, 5)], tmp_path / "out"
    first = driver(out, runs, "ray", OPTIONS | {"address": cluster.address})
    wait_until(lambda: step_of(out) >= 128)
    first.kill()
    first.wait()
    found = ls.sweep(runs, out, "ray", address=cluster.address, **OPTIONS, **QUICK)
    assert [outcome.state for outcome in found] == ["done", "done"]
    assert all(one_by_one(outcome.folder / "log.jsonl") for outcome in found)
    assert weights(found[0].folder) == alone(runs[0], tmp_path / "alone")


def test_a_ray_of_its_own_listens_on_loopback_alone_and_leaves_nothing_behind(tmp_path):
    out, home = Path(tempfile.mkdtemp(prefix="ls")), tmp_path / "home"
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    listening: set[str] = set()
    there, before = open_addresses(), set(os.listdir(tempfile.gettempdir()))
    words = ["sweep", "tiny", "--grid", "seed=0:1", "--set", "N=4", "layers=1", "width=16", "--prompts", "16"]
    command = [sys.executable, "-m", "layerstep", *words, "--out", str(out), "--on", "ray", "gpus=0", "num_cpus=1"]
    try:
        called = subprocess.Popen(command, env=environment | {"HOME": str(home)})
        while called.poll() is None:
            listening |= open_addresses() - there
            time.sleep(0.2)
        assert called.returncode == 0
        assert step_of(out) == 2000
        assert len(listening) >= 3
        assert {address.rpartition(":")[0] for address in listening} == {"127.0.0.1"}
        assert not list(home.iterdir())
        assert not (out / ".ray").exists()
        assert not [name for name in set(os.listdir(tempfile.gettempdir())) - before if "ray" in name]
    finally:
        shutil.rmtree(out, ignore_errors=True)


def open_addresses():
    """host:port of every socket of this machine that listens, by /proc/net."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A":
                host, _, port = local.partition(":")
                octets = [str(int(host[-8:][i : i + 2], 16)) for i in (6, 4, 2, 0)]
                plain = len(host) == 8 or host.startswith("0000000000000000FFFF0000")
                found.add(f"{'.'.join(octets) if plain else host}:{int(port, 16)}")
    return found
