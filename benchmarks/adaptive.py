"""The adaptive network in the paper's setting, on fresh prompts: blocks, errors, certificates.

python benchmarks/adaptive.py --prompts 300
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import torch

from layerstep.construction import Construction, construct
from layerstep.tasks import Task, sample

INPUTS = ("sphere", "uniform", "gaussian")
TARGET = 0.01
#: One network for all three: 1.3 times the largest of `calibrate_interval(sample(Task(inputs=..), 200, 77), margin=1)`,
#: to two digits upwards (.14, .51, .95 with degree 2; 1.1, 2.0, 2.0 with degree 1). The 56 features of degree 3 span
#: all that 40 examples span, and leave nothing: hi is then any number above lam.
NETWORKS: dict[str, dict[str, Any]] = {
    "degree 2": {"hi": 1.25},
    "degree 1": {"hi": 2.6, "degree": 1},
    "degree 3": {"hi": 0.02, "degree": 3},
    "degree 2, float32": {"hi": 1.25, "dtype": "float32"},
}
LENGTHS = {"degree 2": (60, 80, 96), "degree 1": (90, 134), "degree 3": (1,), "degree 2, float32": (60, 90)}


def measure(network: Construction, task: Task, prompts: int, seed: int = 4321) -> dict[str, Any]:
    """Errors against a solved system, and certificates from inside and outside, at the full context."""
    drawn, N = sample(task, prompts, seed), task.N
    x, y, q = drawn.x[:, :N], drawn.y[:, :N], drawn.x[:, N:]
    system = task.gram(x, x) + task.lam * torch.eye(N, dtype=torch.float64)
    exact = (task.gram(q, x)[:, 0] * torch.linalg.solve(system, y)).sum(-1)
    row, start, found = network.stream.row, time.perf_counter(), []
    for piece, run in network.pieces(x, y, q):
        with run.threads():
            for _ in run.iterate():
                pass
            out = run.read_out().double()
        w = run.closed[row("w"), :, run.spans["train"]].double()
        residual = (y[piece] - (system[piece] @ w[..., None])[..., 0]).norm(dim=1)
        error = (out[row("y"), :, 0] - exact[piece]).abs()
        found.append(torch.stack([error, residual / (2 * task.lam**0.5), out[row("cert"), :, 0].sqrt()]))
    error, certificate, inside = torch.cat(found, dim=1)
    return {
        "median_error": error.median().item(),
        "largest_error": error.max().item(),
        "largest_certificate": certificate.max().item(),
        "certified": int((certificate <= TARGET).sum()),
        "error_above_inside": int((error > inside).sum()),
        "seconds": time.perf_counter() - start,
    }


def table(prompts: int, names: list[str]) -> list[dict[str, Any]]:
    rows = []
    for name, options in NETWORKS.items():
        for L in LENGTHS[name] if name in names else ():
            task = Task()
            network = construct(task.d, task.N, task.v, task.lam, scheme="adaptive", L=L, **options)
            size = {"blocks": network.depth, "heads": network.certificate.heads, "width": network.width}
            for inputs in INPUTS:
                found = measure(network, Task(inputs=inputs), prompts)
                rows.append({"network": name, **size, "inputs": inputs, "prompts": prompts, **found})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prompts", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = table(asked.prompts, asked.networks)
    if asked.json:
        print(json.dumps({"benchmark": "adaptive", "torch": torch.__version__, "rows": rows}))
        return
    print("network             blocks heads width  inputs     error: median, largest   certified 0.01   largest bound")
    for row in rows:
        print(
            f"{row['network']:<20}{row['blocks']:>5}{row['heads']:>6}{row['width']:>6}   {row['inputs']:<10}"
            f"{row['median_error']:>12.1e}{row['largest_error']:>10.1e}"
            f"{row['certified']:>12} of {row['prompts']}{row['largest_certificate']:>14.1e}"
        )


if __name__ == "__main__":
    main()
