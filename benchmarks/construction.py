"""Construction: size, time and error of the schemes for one guarantee. `layerstep bench --which construction`."""

from __future__ import annotations

import json as json_module
import subprocess
import sys
import time
import warnings
from typing import Any

import torch

from layerstep.construction import Construction, construct
from layerstep.errors import InputError
from layerstep.tasks import Prompts, Task, sample

SCHEMES = {
    "paper": {"scheme": "paper", "c": None},
    "exact, 1 head": {"scheme": "exact", "heads": 1},
    "exact, 2 heads": {"scheme": "exact", "heads": 2},
    "compact": {"scheme": "compact"},
}
# (what, task, B_y, guaranteed errors, prompts). In the second setting even the paper's network can be built.
SETTINGS = [
    ("the paper's setting: N = 40, v = 1, lam = 0.0025, B_y = 3", Task(), 3.0, (0.1, 0.01, 0.001), 256),
    ("a gentle one: N = 40, v = 2, lam = 4, B_y = 1", Task(v=2.0, sigma=2.0), 1.0, (0.01,), 2),
]
LARGE = (40, 200, 1000, 4000)
# In a process of its own. VmHWM, not ru_maxrss: that one remembers the process it was forked from.
ONE_PROMPT = """
import re, sys, time, torch
from layerstep.construction import construct
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
N, budget = int(sys.argv[1]), int(sys.argv[2])
x = torch.randn(N + 1, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
y = torch.sin(x).sum(-1)
network = construct(5, N, 1.0, 0.1, L=50, scheme="compact")
before, start = peak(), time.perf_counter()
[(_, run)] = network.pieces(x[None, :N], y[None, :N], x[None, N:], None, budget)
for _ in run.iterate(): pass
run.read_out()
print((time.perf_counter() - start) / network.depth, peak() - before)
"""


def clipped(task: Task, prompts: int, B_y: float) -> Prompts:
    drawn = sample(task, prompts, seed=0)
    return Prompts(drawn.x, drawn.y.clamp(-B_y, B_y))


def exact_values(prompts: Prompts, task: Task) -> torch.Tensor:
    x, y = prompts.x[:, : task.N], prompts.y[:, : task.N]
    system = task.gram(x, x) + task.lam * torch.eye(task.N, dtype=x.dtype)
    return (task.gram(prompts.x[:, task.N :], x)[:, 0] * torch.linalg.solve(system, y)).sum(-1)


def measure(network: Construction, prompts: Prompts, task: Task) -> tuple[float, float]:
    """Seconds for all prompts at the full context, the better of two, and the largest error."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        path = network.path(prompts, stages=[network.L], contexts=[task.N])
        seconds.append(time.perf_counter() - start)
    return min(seconds), float((path.values[0, :, 0] - exact_values(prompts, task)).abs().max())


def compare() -> list[dict[str, Any]]:
    rows = []
    for what, task, B_y, errors, count in SETTINGS:
        prompts = clipped(task, count, B_y)
        for error in errors:
            for name, arguments in SCHEMES.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    network = construct(task.d, task.N, task.v, task.lam, B_x=1.0, B_y=B_y, error=error, **arguments)
                certificate = network.certificate
                row = {
                    "setting": what,
                    "error": error,
                    "scheme": name,
                    "blocks": network.depth,
                    "width": network.width,
                    "parameters": certificate.parameters,
                    "bytes": 8 * certificate.stored,
                    "prompts": count,
                }
                try:
                    row["seconds"], row["measured_error"] = measure(network, prompts, task)
                except InputError:  # certified, not built
                    row["seconds"] = row["measured_error"] = None
                rows.append(row)
    return rows


def against_N() -> list[dict[str, Any]]:
    """Milliseconds per block and peak memory of one compact pass, attention weights stored and recomputed."""
    rows = []
    for N in LARGE:
        row: dict[str, Any] = {"N": N}
        for name, budget in (("stored", 2**32), ("recomputed", N * N)):
            command = [sys.executable, "-c", ONE_PROMPT, str(N), str(budget)]
            answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            seconds, mebibytes = map(float, answer.split())
            row |= {f"{name}_ms_per_block": 1e3 * seconds, f"{name}_peak_mib": mebibytes}
        rows.append(row)
    return rows


def main(json: bool = False) -> None:
    schemes, sizes = compare(), against_N()
    if json:
        result = {"torch": torch.__version__, "threads": torch.get_num_threads(), "schemes": schemes, "sizes": sizes}
        print(json_module.dumps({"benchmark": "construction", **result}))
        return
    print(f"construction: torch {torch.__version__}, {torch.get_num_threads()} threads, float64, CPU")
    for what, *_ in SETTINGS:
        print(f"\n{what}; labels clipped to B_y")
        heads = f"{'guarantee':>9}  {'scheme':<15}{'blocks':>9}{'width':>10}{'parameters':>12}{'MiB':>10}"
        print(f"{heads}  time, largest error")
        for row in schemes:
            if row["setting"] == what:
                size = row["bytes"] / 2**20
                done = "certified, not built"
                if row["seconds"] is not None:
                    done = f"{row['seconds']:.2f} s for {row['prompts']} prompts, {row['measured_error']:.1e}"
                print(
                    f"{row['error']:>9}  {row['scheme']:<15}{row['blocks']:>9,}{short(row['width']):>10}"
                    f"{short(row['parameters']):>12}{short(size):>10}  {done}"
                )
    print("\none prompt of N examples through the compact network, attention weights stored / recomputed")
    for row in sizes:
        stored, recomputed = (row[f"{name}_ms_per_block"] for name in ("stored", "recomputed"))
        print(
            f"  N = {row['N']:>5}: {stored:8.2f} / {recomputed:8.2f} ms per block, "
            f"{row['stored_peak_mib']:7.1f} / {row['recomputed_peak_mib']:7.1f} MiB more than before the pass"
        )


def short(number: float) -> str:
    plain = number < 1e7 and (number >= 10 or float(number).is_integer())
    return f"{number:,.0f}" if plain else f"{number:.2g}"


if __name__ == "__main__":
    main()
