"""1,000 tiny runs over four local workers, one of them killed at random every ten seconds: all end, none is lost.

    python tests/fuzz/kill_sweep.py --runs 1000 --seconds 10

At the end every weight file of a sample is compared with that of the same run trained alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from layerstep.files import provenance
from layerstep.folders.survey import find_runs
from layerstep.tasks import Task
from layerstep.training import Model, Run, sweep, train

RUN = Run(
    task=Task(inputs="uniform", N=3, d=1),
    model=Model(layers=1, heads=1, width=8),
    steps=64,
    batch=2,
    lr=1e-3,
    warmup=10,
)
QUICK = {"prompts": 4, "snapshots": (), "checkpoint_seconds": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="between kills")
    parser.add_argument("--sample", type=int, default=20, help="runs whose weights are compared")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    provenance()  # the commit is looked up once, not by every fork
    draw, over, kills = random.Random(asked.seed), threading.Event(), []

    def kill() -> None:
        while not over.wait(asked.seconds):
            if alive := multiprocessing.active_children():
                kills.append(draw.choice(alive).pid)
                os.kill(kills[-1], signal.SIGKILL)

    runs = [RUN.override(seed=seed) for seed in range(asked.runs)]
    with tempfile.TemporaryDirectory() as folder:
        out, start = Path(folder) / "out", time.monotonic()
        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        pool = ProcessPoolExecutor(asked.workers, mp_context=multiprocessing.get_context("fork"))
        with pool:
            found = sweep(runs, out, pool, **QUICK)
        over.set()
        thread.join()
        seconds, looked = time.monotonic() - start, time.monotonic()
        listed = find_runs(out)
        looked = time.monotonic() - looked
        again = sum("resumed" in json.loads((each.folder / "runs.json").read_text()) for each in found)
        same = 0
        for run in draw.sample(runs, min(asked.sample, len(runs))):
            place = Path(folder) / "alone" / run.name
            train(run, place, device="cpu", **QUICK)
            name = next(each.folder for each in found if each.run == run) / "model.safetensors"
            same += name.read_bytes() == (place / "model.safetensors").read_bytes()
        states = Counter(each.state for each in found)
        print(f"{len(found):,} runs, {asked.workers} workers, {len(kills)} killed, in {seconds:.0f} s: {dict(states)}")
        print(f"gone on after a kill: {again}; found again by find_runs in {looked:.2f} s: {len(listed):,}")
        print(f"weights equal to those of the run alone: {same} of {min(asked.sample, len(runs))}")
    if states != {"done": asked.runs} or len(listed) != asked.runs or same < min(asked.sample, len(runs)):
        raise SystemExit("not all is as it should be")


if __name__ == "__main__":
    main()
