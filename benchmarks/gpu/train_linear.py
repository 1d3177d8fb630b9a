"""Trains in-context linear regression (Garg et al.: d = 20, 40 examples, inputs and weights standard normal), stacked.

PYTHONPATH=src python3 benchmarks/gpu/train_linear.py --out $OUT --seconds 480

Softmax attention: two seeds at sigma 0.5, one at 0.05; linear attention: one at 0.5, trained after them. y = w · x plus
noise is a Gaussian process with kernel x · z: only that kernel is new, and exact kernel ridge regression is Bayes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from stacked import pack_models, save, that_fit, train_until

import layerstep as ls
from layerstep.training import PRESETS

ls.KERNELS.setdefault("linear", lambda x, z, v: x @ z.mT / v**2)
TASK = {"inputs": "gaussian", "kernel": "linear", "d": 20, "N": 40, "input_std": 1.0}
GROUPS = {
    "softmax": {
        "linear-softmax-seed-0": {"seed": 0, "sigma": 0.5},
        "linear-softmax-seed-1": {"seed": 1, "sigma": 0.5},
        "linear-softmax-sigma-0.05": {"seed": 0, "sigma": 0.05},
    },
    "linear": {"linear-attention": {"seed": 0, "sigma": 0.5}},
}
SHARES = {"softmax": 0.66, "linear": 0.34}  # of the time: three stacked take twice as long as one
AFTERWARDS = 8.0  # seconds for a model's errors


def main() -> None:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=480.0, help="for everything")
    parser.add_argument("--steps", type=int, default=82_000)
    parser.add_argument("--tiny", action="store_true", help="a try on any device")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    base = PRESETS["fast"].override(steps=args.steps, warmup=min(1000, args.steps // 4), **TASK)
    if args.tiny:
        base = base.override(layers=2, width=32, heads=2, batch=8, precision="float32")
    home, folder, kept = args.out / "work", args.out / "models", []
    train_seconds = args.seconds - 10 - 4 * AFTERWARDS * (not args.tiny) - (time.monotonic() - began)
    for attention, members in GROUPS.items():
        start = time.monotonic()
        runs = [base.override(attention=attention, **changes) for changes in members.values()]
        seconds = SHARES[attention] * train_seconds
        runs = that_fit(runs, seconds - 5, device)
        steps, models = train_until(runs, home / attention, start + seconds + 5)
        print(f"{attention}: {steps} steps, {time.monotonic() - began:.0f} s", flush=True)
        for index, (name, gpt) in enumerate(zip(members, models, strict=True)):
            save(gpt, name, runs, index, steps, home / attention, folder, prompts=64 if args.tiny else 2048)
        kept.append(next(iter(members)))
    pack_models(kept, "linear-facts", home, folder, args.out)
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
