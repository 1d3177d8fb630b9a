"""Trains small models of in-context linear regression on a CPU: two seeds, linear attention, looped, open mask, pools.

python benchmarks/train_small_linear.py --out results/linear                  all, about four minutes of one core each
python benchmarks/train_small_linear.py --out results/linear small-looped     one

d = 5, N = 16, six layers of width 64: what the published settings (d = 20, twelve layers of width 256) are on a GPU,
benchmarks/gpu/train_linear.py, is here for everyone. The curriculum in dimension and length is that of Garg et al.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import layerstep as ls
from layerstep.training import evaluate

BASE = ls.Run(
    task=ls.LinearRegression(d=5, N=16, sigma=0.1),
    model=ls.Model(layers=6, heads=4, width=64),
    steps=2500,
    lr=3e-3,
    lr_final=3e-5,
    warmup=100,
    optimizer="muon",
    beta1=0.95,
    curriculum_start=8,
    curriculum_add=2,
    curriculum_dims=2,
    curriculum_every=100,
)
RUNS: dict[str, dict[str, Any]] = {
    "small-softmax-seed-0": {"seed": 0},
    "small-softmax-seed-1": {"seed": 1},
    "small-linear-attention": {"attention": "linear"},
    "small-looped": {"layers": 1, "loops": 6},
    "small-open": {"mask": "open"},
    **{f"small-pool-{M}": {"pool": M, "sigma": 0.5} for M in (4, 64, 1024)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(RUNS)}; all by default")
    parser.add_argument("--out", type=Path, default=Path("runs/linear"))
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in RUNS]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}: choose of {', '.join(RUNS)}")
    for name in given.names or RUNS:
        run = BASE.override(**RUNS[name])
        gpt = ls.train(run, given.out / name, snapshots=(), progress=True)
        found = evaluate(gpt, run.task, B=2048, seed=1234)
        ratios = " ".join(f"n={n}: {found.mse[n] / found.krr[n]:.3f}" for n in (1, 3, 5, 8, 12, 16))
        print(f"{name:<24} error over exact {ratios}", flush=True)


if __name__ == "__main__":
    main()
