"""What sweeps on every engine are tested with: runs of seconds, a kernel of the test's own, weights as bytes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

import layerstep as ls

QUICK = {"prompts": 16, "snapshots": (), "checkpoint_seconds": 0}
RUN = ls.Run(task=ls.Task(N=4, d=2), model=ls.Model(layers=1, heads=2, width=16), steps=64, batch=4, lr=1e-3, warmup=10)
LONG = RUN.override(steps=64 * 60)
LOST = RUN.override(lr=1e30, warmup=0)

DRIVER = """
import json, sys
import layerstep as ls
runs = [ls.Run.from_dict(values) for values in json.loads(sys.argv[2])]
ls.sweep(runs, sys.argv[1], sys.argv[3], prompts=16, snapshots=(), checkpoint_seconds=0, **json.loads(sys.argv[4]))
"""


def own_kernel(monkeypatch) -> str:
    """A lambda that no worker could import."""
    monkeypatch.setitem(ls.KERNELS, "mine", lambda x, z, v: torch.exp(-torch.cdist(x, z) / v))
    return "mine"


def weights(folder) -> bytes:
    return (Path(folder) / "model.safetensors").read_bytes()


def alone(run, folder) -> bytes:
    """The weights of the same run in this process, with one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ls.train(run, folder, device="cpu", **QUICK)
    finally:
        torch.set_num_threads(before)
    return weights(folder)


def attempts(folder) -> int:
    return 1 + len(json.loads((Path(folder) / "runs.json").read_text()).get("resumed", []))


def wait_until(true, seconds: float = 120.0):
    """What `true()` returns as soon as that is something."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
            if found := true():
                return found
        if time.monotonic() > until:
            raise TimeoutError(f"{true} did not come true in {seconds:g} s")
        time.sleep(0.05)


def step_of(folder) -> int:
    """The last step in the log below a directory, of whichever run is farthest."""
    steps = [0]
    for log in Path(folder).rglob("log.jsonl"):
        lines = [line for line in log.read_text().split("\n") if line.endswith("}")]
        steps += [json.loads(lines[-1])["step"]] if lines else []
    return max(steps)


def driver(out, runs, engine: str, options: dict, environment=None) -> subprocess.Popen:
    """A process that calls sweep, to be killed."""
    words = [sys.executable, "-c", DRIVER, str(out), json.dumps([run.to_dict() for run in runs]), engine]
    return subprocess.Popen([*words, json.dumps(options)], env=os.environ | (environment or {}))


def one_by_one(log) -> bool:
    """Whether a log has every step once, in order."""
    steps = [json.loads(line)["step"] for line in Path(log).read_text().splitlines()]
    return steps == sorted(set(steps))
