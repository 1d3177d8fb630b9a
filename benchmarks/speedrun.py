"""Seconds to the paper's quality: error at n = 40 over exact KRR of at most 1.15 on the sphere, mean of three seeds.

PYTHONPATH=src python3 benchmarks/speedrun.py --list
PYTHONPATH=src python3 benchmarks/speedrun.py fast muon --seeds 3 --out OUT     on a GPU
PYTHONPATH=src python3 benchmarks/speedrun.py muon muon-2e-3 --stacked           which is best; no seconds are claimed
PYTHONPATH=src python3 benchmarks/speedrun.py small-0.001 small-muon-0.002       a small problem, for a laptop

Each seed is trained alone, one after another. Time is that of `ls.train` without its evaluation, compilation
included; a short training before it fills the caches of compiled kernels, as on any machine that has trained once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from layerstep.errors import as_device
from layerstep.files import provenance, write_json
from layerstep.tasks import Task
from layerstep.training import PRESETS, Model, Run, evaluate, train

AIM = 1.15
FAST = PRESETS["fast"]
MUON = FAST.override(optimizer="muon", beta1=0.95)
SMALL = Run(
    task=Task(inputs="sphere", d=3, N=16),
    model=Model(layers=4, heads=4, width=64),
    steps=2000,
    batch=32,
    lr=2e-3,
    warmup=100,
    curriculum_every=0,
)
SMALL_MUON = SMALL.override(optimizer="muon", beta1=0.95)
#: What changes against `fast`; none of them changes the model.
TRACK = {
    "fast": FAST,
    **{f"muon-{lr:g}": MUON.override(steps=24_000, lr=lr, warmup=300) for lr in (1e-3, 2e-3, 4e-3, 8e-3)},
    **{f"muon-short-{lr:g}": MUON.override(steps=16_000, lr=lr, warmup=300) for lr in (1e-3, 2e-3, 4e-3, 8e-3)},
    **{f"muon-wide-{lr:g}": MUON.override(steps=14_000, lr=lr, warmup=200, batch=128) for lr in (2e-3, 4e-3)},
    **{f"small-{lr:g}": SMALL.override(lr=lr) for lr in (1e-3, 2e-3, 4e-3)},
    **{f"small-muon-{lr:g}": SMALL_MUON.override(lr=lr) for lr in (1e-3, 2e-3, 4e-3, 8e-3)},
}


def attempt(run: Run, device) -> dict[str, float]:
    """Seconds of one training, and its error at the longest context over that of exact KRR."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        gpt = train(run, Path(folder) / "run", device=device, prompts=0, checkpoint_seconds=1e9, snapshots=())
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "ratio": evaluate(gpt, run.task, B=2048, seed=run.seed).ratio}


def stacked(names: list[str], seed: int, device) -> dict[str, float]:
    """Each one's error over that of exact KRR, trained stacked: what is best, not how long it takes alone."""
    runs = [TRACK[name].override(seed=seed) for name in names]
    with tempfile.TemporaryDirectory() as folder:
        models = train(runs, folder, device=device, prompts=0, checkpoint_seconds=1e9, snapshots=())
    return {
        name: evaluate(gpt, run.task, B=2048, seed=1234).ratio
        for name, run, gpt in zip(names, runs, models, strict=True)
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(TRACK)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--stacked", action="store_true", help="all names at once, one seed each, errors only")
    parser.add_argument("--out", type=Path, help="where speedrun.json goes")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in TRACK]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}: choose of {', '.join(TRACK)}")
    if given.list or not given.names:
        for name, run in TRACK.items():
            print(f"{name:18} {run.steps:>7,} steps, {run.optimizer}, lr {run.lr:g}, warm-up {run.warmup}")
        return 0
    device, records = as_device(None), []
    if given.stacked:
        began = time.perf_counter()
        for name, ratio in stacked(given.names, 0, device).items():
            print(f"{name:18} {TRACK[name].steps:>7,} steps   {ratio:.3f}", flush=True)
        print(f"{len(given.names)} stacked, {time.perf_counter() - began:.1f} s", flush=True)
        return 0
    for name in given.names:
        run = TRACK[name]
        attempt(run.override(steps=256, warmup=8, seed=10_000), device)
        seeds = [attempt(run.override(seed=seed), device) for seed in range(given.seeds)]
        records.append({"name": name, "run": run.to_dict(), "seeds": seeds})
        ratio, seconds = (statistics.fmean(each[what] for each in seeds) for what in ("ratio", "seconds"))
        word = "reached" if ratio <= AIM else "missed"
        each = " ".join(f"{one['ratio']:.3f}" for one in seeds)
        print(f"{name:18} {run.steps:>7,} steps {seconds:8.1f} s   {ratio:.3f} ({each})   {AIM} {word}", flush=True)
        if given.out:
            write_json(given.out / "speedrun.json", {"provenance": provenance(), "records": records})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
