"""What one guarantee costs: blocks, width, heads, parameters, time and memory, by scheme, kernel, N and lam.

    python benchmarks/sizes.py

Every network guarantees an error of 0.01 for labels within 1 and inputs within the unit ball (d = 5, v = 1); adaptive
ones under the condition that their certificate names. Forward passes of more than --budget operations are not run.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from layerstep.construction import Construction, construct
from layerstep.construction.certificate import certify
from layerstep.errors import InputError
from layerstep.tasks import Task, sample

d, ERROR = 5, 0.01
STORED = 2**31  # bytes of attention weights that stay
SIZES, RIDGES = (10, 40, 200, 1000, 4000), (1e-4, 0.01, 1.0, 10.0)
#: Scheme and options. The paper's network is counted, not run: it is built where 2 GiB hold it, and clips beyond.
NETWORKS: dict[str, dict[str, Any]] = {
    "paper": {"scheme": "paper", "c": None},
    "exact": {"scheme": "exact"},
    "compact": {"scheme": "compact"},
    "adaptive, degree 2": {"scheme": "adaptive"},
    "adaptive, degree 3": {"scheme": "adaptive", "degree": 3},
    "compact, matern52": {"scheme": "compact", "kernel": "matern52"},
    "compact, rational-quadratic": {"scheme": "compact", "kernel": "rational-quadratic"},
    "compact, matern12": {"scheme": "compact", "kernel": "matern12"},
}


def operations(network: Construction, N: int) -> float:
    """Of one forward pass, about: weights of attention that stay, added up over the heads of a kernel, are computed
    once, those of sign pairs each time."""
    adaptive = network.certificate.scheme == "adaptive"
    return network.depth * N * N * (4 * 2 * network.certificate["m"] + 40 if adaptive else 2.0)


def peak(reset: bool = False) -> float:
    """MiB that this process had at most since the last reset."""
    if reset:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier rows left
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def run(network: Construction, N: int, lam: float) -> dict[str, float]:
    """One prompt of the sphere, labels clipped to 1: CPU seconds and memory of the pass, its error and its bound."""
    drawn = sample(Task(d=d, N=N, sigma=lam**0.5), 1, 0)
    x, y, q = drawn.x[0, :N], drawn.y[0, :N].clamp(-1, 1), drawn.x[0, N:]
    before, start = peak(reset=True), time.process_time()
    [(_, run)] = network.pieces(x[None], y[None], q[None], None, STORED)
    with run.threads():
        for _ in run.iterate():
            pass
        out = run.read_out()
    seconds, memory = time.process_time() - start, peak() - before
    value, row = out[network.stream.row("y")].flatten(), network.stream.row("w")
    kernel = network.problem.kernel
    bound = certify(x, y, q, run.closed[row, 0, run.spans["train"]], value, kernel, lam).bound
    w = torch.linalg.solve(kernel(x, x) + lam * torch.eye(N, dtype=torch.float64), y)
    return {
        "seconds": seconds,
        "mebibytes": memory,
        "measured_error": float((value - kernel(q, x) @ w).abs().max()),
        "bound": float(bound.max()),
    }


def table(names: list[str], sizes: list[int], budget: float) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        for N in sizes:
            for lam in RIDGES:
                row: dict[str, Any] = {"network": name, "N": N, "lam": lam}
                try:
                    network = construct(d, N, 1.0, lam, B_x=1.0, B_y=1.0, error=ERROR, **NETWORKS[name])
                except InputError as why:
                    rows.append(row | {"refused": str(why)})
                    continue
                certificate = network.certificate
                row |= {"guaranteed": certificate.bound, "blocks": network.depth, "width": network.width}
                row |= {"heads": certificate.heads, "parameters": certificate.parameters}
                if name != "paper" and operations(network, N) <= budget:
                    row |= run(network, N, lam)
                rows.append(row)
    return rows


def short(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) and number < 1e7 else f"{number:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--budget", type=float, default=1e11)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = table(asked.networks, asked.sizes, asked.budget)
    if asked.json:
        print(json.dumps({"benchmark": "sizes", "torch": torch.__version__, "rows": rows}))
        return
    print("| network | N | λ | blocks | width | heads | parameters | CPU s | MiB | error | bound |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        cells = [row["network"], f"{row['N']:,}", f"{row['lam']:g}"]
        if "refused" in row:
            print(f"| {' | '.join([*cells, 'no guarantee: ' + row['refused'][:60]])} | | | | | | | |")
            continue
        cells += [short(row[name]) for name in ("blocks", "width", "heads", "parameters")]
        measured = ("seconds", "mebibytes", "measured_error", "bound")
        cells += [f"{row[name]:.2g}" if name in row else "" for name in measured]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
