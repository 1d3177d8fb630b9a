"""kill -9 a training at random moments, call it again until it ends: the weights are those of a run nobody disturbed.

    python tests/fuzz/kill_training.py --kills 100

Every attempt is a fork of this process, so that a moment is one of training and not of importing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from layerstep.folders.layout import CHECKPOINTS, LOG
from layerstep.tasks import Task
from layerstep.training import Model, Run, train
from layerstep.training.checkpoint import load_checkpoint

RUN = Run(task=Task(N=4, d=2), model=Model(layers=1, heads=2, width=16), steps=640, batch=4, lr=1e-3, warmup=10)
STACK = [RUN, RUN.override(seed=1, inputs="uniform")]


def fork(folder: Path, runs: list[Run]) -> int:
    """Train in a child, with a checkpoint after every chunk of steps; its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        train(runs, folder, device="cpu", checkpoint_seconds=0)
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(child: int) -> bool:
    """Whether a child has come to its end; an error where it failed."""
    number, status = os.waitpid(child, os.WNOHANG)
    if number and status:
        sys.exit(f"a training failed by itself: status {status}")
    return bool(number)


def result(folder: Path, runs: list[Run]) -> list[bytes | list]:
    """The weights of every model and every loss of the log."""
    weights: list[bytes | list] = [(folder / run.name / "model.safetensors").read_bytes() for run in runs]
    records = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    return [*weights, [(record["step"], record["loss"]) for record in records]]


def whole(folder: Path, runs: list[Run]) -> list[bytes | list]:
    """The result that nobody disturbs."""
    child = fork(folder, runs)
    while not ended(child):
        time.sleep(0.01)
    return result(folder, runs)


def kill(home: Path, kills: int, seed: int) -> str:
    """Kill `kills` times in all; as soon as a run has come to its end compare it and begin another. What came out."""
    draw, done, finished, reached = random.Random(seed), 0, 0, set()
    began = time.monotonic()
    expected = whole(home / "whole", STACK)
    usual = time.monotonic() - began
    while done < kills or finished == 0:
        folder, child = home / f"killed-{finished}", 0
        while True:
            child = fork(folder, STACK)
            wait = time.monotonic() + (draw.uniform(0, usual / 3) if done < kills else 600)
            while not (over := ended(child)) and time.monotonic() < wait:
                time.sleep(0.001)
            if over:
                break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done += 1
            found = load_checkpoint(folder / CHECKPOINTS, STACK)  # never damaged, whatever the moment
            reached.add(found[0] if found else 0)
        if result(folder, STACK) != expected:
            sys.exit(f"{folder} differs from a run nobody disturbed (seed {seed})")
        finished += 1
    return f"{done} kills of {finished} trainings after {sorted(reached)} steps: 0 of {finished} differ in a bit"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as home:
        print(kill(Path(home), asked.kills, asked.seed))
