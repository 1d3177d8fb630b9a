"""Trains in-context linear regression by the published protocols, stacked, one group of runs per call.

PYTHONPATH=src python3 benchmarks/gpu/train_linear.py --out $OUT --seconds 480 --group garg

garg: d = 20, N = 40, softmax, a curriculum in dimension (5 to 20) and length (11 to 41), as Garg et al.: two seeds
without noise, one with sigma 0.5. linear: the same with linear attention. open: the same with an open mask, where the
order of the examples cannot matter. raventos: d = 8, N = 16, sigma 0.5, weights from pools of 8 to 4,096. looped:
d = 5, N = 20, one block used 12 times, z <- f(x + z) as Yang et al., by autograd (no kernels of ours).
--set optimizer=muon lr=1e-3 changes any number of all runs of the group.
Without the curriculum in dimension d = 20 was not learned (results/linear). Every model is evaluated beside the exact
answer; `layerstep identify DIR --task linear ...` then says whose steps its layers are.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from stacked import changed, pack_models, save, that_fit, train_until

import layerstep as ls

GARG = ls.LinearRegression(d=20, N=40)
RAVENTOS = ls.LinearRegression(d=8, N=16, sigma=0.5)
#: Per group what all its runs share, and by name what each changes.
GROUPS: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "garg": (
        {"task": GARG},
        {
            "garg-seed-0": {"seed": 0},
            "garg-seed-1": {"seed": 1},
            "garg-sigma-0.5": {"seed": 0, "sigma": 0.5},
        },
    ),
    "linear": (
        {"task": GARG, "attention": "linear"},
        {"garg-linear-seed-0": {"seed": 0}, "garg-linear-sigma-0.5": {"seed": 0, "sigma": 0.5}},
    ),
    "open": ({"task": GARG, "mask": "open", "sigma": 0.5}, {"garg-open-sigma-0.5": {"seed": 0}}),
    "raventos": (
        {"task": RAVENTOS, "curriculum_dims": 0, "curriculum_every": 0, "layers": 8, "heads": 2, "width": 128},
        {f"raventos-pool-{M}": {"seed": 0, "pool": M} for M in (8, 64, 512, 4096)},
    ),
    "looped": (
        {
            "task": ls.LinearRegression(d=5, N=20),
            "model": ls.Model(layers=1, loops=12, heads=4, width=128),
            "curriculum_dims": 2,
            "optimizer": "muon",
            "lr": 1e-3,
            "precision": "float32",
        },
        {"looped-sigma-0": {"seed": 0}, "looped-sigma-0.5": {"seed": 0, "sigma": 0.5}},
    ),
}
AFTERWARDS = 8.0  # seconds for a model's errors


def main() -> None:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--group", choices=list(GROUPS), default="garg")
    parser.add_argument("--seconds", type=float, default=480.0, help="for everything")
    parser.add_argument("--steps", type=int, default=164_000)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="such as optimizer=muon lr=1e-3")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="some runs of the group")
    parser.add_argument("--weights", type=int, default=8, help="weights of so many come back, errors of all")
    parser.add_argument("--tiny", action="store_true", help="a try on any device")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shared, every_member = GROUPS[args.group]
    members = {name: changes for name, changes in every_member.items() if not args.only or name in args.only}
    base = ls.PRESETS["linear"].override(steps=args.steps, warmup=min(1000, args.steps // 4), **shared)
    base = changed(base, args.set)
    if args.tiny:
        layers = 2 if base.model.loops == 1 else 1
        base = base.override(layers=layers, width=32, heads=2, batch=8, precision="float32")
    home, folder = args.out / "work", args.out / "models"
    start = time.monotonic()
    seconds = args.seconds - 10 - len(members) * AFTERWARDS * (not args.tiny) - (start - began)
    runs = that_fit([base.override(**changes) for changes in members.values()], seconds - 5, device)
    # The stages of the curriculum keep their shares of the steps, 2,000 of 500,000 in the paper.
    if base.curriculum_every and not any(each.startswith("curriculum_every=") for each in args.set):
        runs = [run.override(curriculum_every=max(1, round(run.steps * 2000 / 500_000))) for run in runs]
    steps, models = train_until(runs, home, start + seconds + 5)
    print(f"{args.group}: {steps} steps, {time.monotonic() - began:.0f} s", flush=True)
    for index, (name, gpt) in enumerate(zip(members, models, strict=True)):
        save(gpt, name, runs, index, steps, home, folder, prompts=64 if args.tiny else 2048)
    pack_models(list(members)[: args.weights], f"{args.group}-facts", home, folder, args.out)
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
