"""Measurement: probes, library and verdict on the CPU. `layerstep bench --which measurement`."""

from __future__ import annotations

import itertools
import json as json_module
import resource
import sys
import time
from pathlib import Path

import torch

import layerstep as ls
from layerstep.measurement import Instrument, identify, probe
from layerstep.measurement.calibration.linear_models import SETTINGS
from layerstep.training import GPT, Model

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles import literal

TOKENS = 200_000  # positions of the sequence, 82 a prompt: 2,439 prompts
PAPER_PROBE_STEPS = 500_000
CLOSED, GRADIENT = "probes in closed form, 13 sites, 200,000 tokens", "probes by gradient, 500,000 steps of 64"
SHARE, LOOP = "of it, Richardson at one bandwidth", "literal loop, Richardson at one bandwidth"


def probes(task: ls.Task) -> dict[str, float]:
    """Seconds for the probes of the default model in closed form, and as the paper trains them (from four steps)."""
    model = GPT(Model(), d=task.d, N=task.N).initialise(0)
    count = TOKENS // (2 * (task.N + 1))
    start, cores = time.perf_counter(), time.process_time()
    probe(model, task, prompts=count, seed=0)
    closed, cores = time.perf_counter() - start, time.process_time() - cores
    start = time.perf_counter()
    probe(model, task, prompts=4 * 64, batch=64, seed=0, method="gradient")
    step = (time.perf_counter() - start) / 4
    return {
        CLOSED: closed,
        "the same, summed over the cores": cores,
        GRADIENT: step * PAPER_PROBE_STEPS,
    }


def verdict(task: ls.Task) -> dict[str, float]:
    """Seconds to build the library, and to judge a path of twelve layers with it."""
    prompts = ls.sample(task, 256, seed=0)
    path = ls.solve(ls.Richardson(), prompts, task, [3, 6, 10, 15, 22, 32, 47, 70, 100, 150, 220, 330])
    start = time.perf_counter()
    instrument = Instrument.prepare(prompts, task)
    built = time.perf_counter() - start
    start = time.perf_counter()
    identify(path, prompts, task, instrument=instrument)
    judged = time.perf_counter() - start
    rows = len(instrument.library.table)
    few, steps = 2, 1000
    gram, y = task.gram(prompts.x, prompts.x).numpy(), prompts.y.numpy()
    start = time.perf_counter()
    for b, n in itertools.product(range(few), instrument.library.contexts):
        list(itertools.islice(literal.richardson(gram[b, :n, :n], gram[b, n, :n], y[b, :n], task.lam), steps))
    loop = (time.perf_counter() - start) * prompts.B / few * 10  # Richardson goes to step 10,000
    return {
        f"library, {rows:,} predictions of 256 x 9": built,
        SHARE: built * len(ls.FAMILIES[0].steps) / rows,
        "verdict on 12 layers": judged,
        LOOP: loop,
    }


def linear_verdicts() -> dict[str, float]:
    """Seconds from prompts and a path of twelve layers to a verdict, on the six tasks the error rates are of."""
    found = {}
    for task in SETTINGS:
        prompts = ls.sample(task, 256, seed=0)
        path = ls.solve(ls.SOLVERS["gd-weights"], prompts, task, range(2, 26, 2))
        path = ls.Trajectory(path.values, range(1, 13), "gradient descent")
        start = time.perf_counter()
        identify(path, prompts, task)
        found[f"verdict, {task!r}"] = time.perf_counter() - start
    return found


def main(json: bool = False) -> None:
    task = ls.Task()
    seconds = verdict(task) | linear_verdicts() | probes(task)
    ratios = {
        "gradient / closed form": seconds[GRADIENT] / seconds[CLOSED],
        "literal loop / its share of the library": seconds[LOOP] / seconds[SHARE],
    }
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    about = {"threads": torch.get_num_threads(), "torch": torch.__version__}
    result = {"seconds": seconds, "ratios": ratios, "memory_GiB": memory} | about
    if json:
        print(json_module.dumps({"measurement": result}))
        return
    print(f"measurement ({torch.get_num_threads()} CPU threads, torch {torch.__version__}, {memory:.2f} GiB at most)")
    for name, value in seconds.items():
        print(f"  {name:<72} {value:12,.1f} s")
    for name, value in ratios.items():
        print(f"  {name:<72} {value:12,.1f}")


if __name__ == "__main__":
    main()
