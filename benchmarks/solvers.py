"""Solvers: all steps of all prefixes at once, against the literal loops. `layerstep bench --which solvers`."""

from __future__ import annotations

import itertools
import json as json_module
import resource
import sys
import time
from pathlib import Path

import torch

import layerstep as ls
from layerstep.solvers import PAPER_SOLVERS, SOLVERS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles import literal

STEPS = {"richardson": 500, "cg": 100, "gd": 500, "nesterov": 500}
LITERAL = {
    "richardson": literal.richardson,
    "cg": literal.conjugate_gradient,
    "gd": literal.gradient_descent,
    "nesterov": literal.nesterov,
}


def loops(prompts: ls.Prompts, task: ls.Task) -> float:
    """Seconds for the obvious way: Python loops over sequences, prefixes and steps."""
    gram, y = task.gram(prompts.x, prompts.x).cpu().numpy(), prompts.y.cpu().numpy()
    start = time.perf_counter()
    for name, b, n in itertools.product(PAPER_SOLVERS, range(prompts.B), range(1, prompts.N + 1)):
        iterates = LITERAL[name](gram[b, :n, :n], gram[b, n, :n], y[b, :n], task.lam)
        list(itertools.islice(iterates, STEPS[name] + 1))
    return time.perf_counter() - start


def ours(prompts: ls.Prompts, task: ls.Task, steps: dict[str, int] = STEPS) -> float:
    """Seconds for `solve_all`, the best of three."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        paths = ls.solve_all({name: (SOLVERS[name], steps[name]) for name in PAPER_SOLVERS}, prompts, task)
        if prompts.y.is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        del paths
    return min(seconds)


def main(json: bool = False) -> None:
    task = ls.Task()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    prompts = ls.sample(task, 256, seed=0, device=device)
    fast = ours(prompts, task)
    few = 16
    slow = loops(prompts[:few], task) * prompts.B / few
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    scaling = {}
    for B in (64, 256, 1024):
        scaling[f"B = {B}"] = ours(ls.sample(task, B, seed=0, device=device), task)
    for N in (20, 40, 80):
        wide = ls.Task(N=N)
        scaling[f"N = {N}"] = ours(ls.sample(wide, 256, seed=0, device=device), wide)
    for T in (100, 500, 2000):
        scaling[f"steps = {T}"] = ours(prompts, task, {**dict.fromkeys(STEPS, T), "cg": 100})
    result = {
        "device": device,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seconds": fast,
        "literal_seconds": slow,
        "ratio": slow / fast,
        "peak_memory_gib": memory,
        "scaling": scaling,
    }
    if json:
        print(json_module.dumps({"benchmark": "solvers", **result}))
        return
    print(f"\nsolvers: 256 sequences x 40 prefixes, 500 steps (CG 100), 4 solvers; {device}, torch {torch.__version__}")
    print(f"  solve_all                    {fast:8.2f} s")
    print(f"  literal NumPy loops          {slow:8.2f} s   ({few} sequences timed, times {prompts.B // few})")
    print(f"  ratio                        {slow / fast:8.1f}")
    print(f"  peak memory of the process   {memory:8.2f} GiB")
    for name, seconds in scaling.items():
        print(f"  {name:<28} {seconds:8.2f} s")


if __name__ == "__main__":
    main()
