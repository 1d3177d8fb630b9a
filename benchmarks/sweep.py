"""What a sweep costs beside its training, how long a list of 1,000 runs takes, and wall times by number of GPUs.

PYTHONPATH=src python3 benchmarks/sweep.py            prints all three
PYTHONPATH=src python3 benchmarks/sweep.py --table    the wall times alone, from measured milliseconds of a step
"""

from __future__ import annotations

import heapq
import json as json_module
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from layerstep.folders.layout import last_records
from layerstep.reproduction.runs import PaperRun
from layerstep.reproduction.status import stacked_milliseconds
from layerstep.tasks import Task
from layerstep.training import PRESETS, Model, Run, sweep
from layerstep.training.planning import STACKED

TINY = Run(task=Task(N=4, d=2), model=Model(layers=1, heads=2, width=16), steps=640, batch=4, lr=1e-3, warmup=10)
KERNELS = ("gaussian", "arccos1", "linear", "matern12", "matern32", "matern52")
WIDTHS = (64, 128, 256, 512)
UNIT_SECONDS = 10.0  # what a unit costs beside its training: the most that is allowed
GPUS = (1, 8, 32, 64)


def overhead(units: int = 8) -> dict[str, float]:
    """Seconds per unit beside training, over a pool, and where every unit is a new process, as on Slurm."""
    runs = [TINY.override(seed=seed) for seed in range(units)]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            found["pool of one worker"] = _beside(runs, Path(folder) / "pool", pool)
        try:
            import submitit
        except ImportError:
            return found
        executor = submitit.LocalExecutor(Path(folder) / "jobs")
        found["a process per unit, one after another"] = _beside(runs[:1], Path(folder) / "submitit", executor)
    return found


def _beside(runs: Sequence[Run], out: Path, executor: Any) -> float:
    start = time.perf_counter()
    outcomes = sweep(runs, out, executor)
    whole = time.perf_counter() - start
    assert {outcome.state for outcome in outcomes} == {"done"}
    return (whole - sum(last_records(outcome.folder)[-1]["seconds"] for outcome in outcomes)) / len(runs)


def listing(runs: int = 1000, records: int = 400) -> float:
    """Seconds of `layerstep runs` over directories of finished runs, the start of Python included."""
    with tempfile.TemporaryDirectory() as home:
        [outcome] = sweep([TINY], Path(home) / "one", device="cpu", prompts=64)
        texts = {name: (outcome.folder / name).read_text() for name in ("runs.json", "config.json", "evaluation.json")}
        line = (outcome.folder / "log.jsonl").read_text().splitlines()[-1]
        out = Path(home) / "many"
        for seed in range(runs):
            run, place = TINY.override(seed=seed), out / f"seed={seed}"
            place.mkdir(parents=True)
            for name, text in texts.items():
                text = text.replace(TINY.identity, run.identity).replace('"seed": 0', f'"seed": {seed}')
                (place / name).write_text(text)
            (place / "log.jsonl").write_text(f"{line}\n" * records)
        start = time.perf_counter()
        command = [sys.executable, "-m", "layerstep", "runs", str(out), "--json"]
        found = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        seconds = time.perf_counter() - start
        entries = json_module.loads(found.stdout)["runs"]
        assert len(entries) == runs
        assert {each["state"] for each in entries} == {"done"}
    return seconds


def hours(groups: Sequence[Sequence[Run]], gpus: int) -> float:
    """The longest unit first, each on the GPU that is free first; without queueing."""
    units = sorted((_ms(group) * group[0].steps / 1000 + UNIT_SECONDS for group in groups), reverse=True)
    ends = [0.0] * gpus
    for seconds in units:
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(ends) / 3600


def _ms(runs: Sequence[Run]) -> float:
    return stacked_milliseconds([PaperRun(name="", setting="sphere", shows="", run=run) for run in runs])


def grouped(runs: Sequence[Run], gpus: int, most: int = STACKED) -> list[list[Run]]:
    """Stacks as `sweep` makes them: of one shape, no larger than leaves work for every GPU."""
    shapes: dict[Any, list[Run]] = {}
    for run in runs:
        shapes.setdefault((run.model, run.steps), []).append(run)
    found = []
    for same in shapes.values():
        size = max(1, min(most, math.ceil(len(same) / gpus)))
        found += [same[i : i + size] for i in range(0, len(same), size)]
    return found


def wall_times() -> list[dict[str, Any]]:
    rows = []
    for preset in ("fast", "paper"):
        base = PRESETS[preset]
        runs = [base.override(seed=s, kernel=k, width=w) for s in range(5) for k in KERNELS for w in WIDTHS]
        name = f"5 seeds, 6 kernels, widths 64 to 512: 120 `{preset}`"
        rows.append({"work": name, "hours": {gpus: hours(grouped(runs, gpus), gpus) for gpus in GPUS}})
    runs = [PRESETS["fast"].override(seed=seed) for seed in range(1000)]
    rows.append({"work": "1,000 `fast`", "hours": {gpus: hours(grouped(runs, gpus), gpus) for gpus in GPUS}})
    return rows


def main(json: bool = False, *, table: bool = False) -> None:
    rows = wall_times()
    if json:
        measured = {"overhead_seconds": overhead(), "listing_seconds": listing()}
        print(json_module.dumps(measured | {"wall_times": rows}))
        return
    columns = ["1 GPU" if gpus == 1 else f"{gpus} GPUs" for gpus in GPUS]
    print(f"| work | {' | '.join(columns)} |\n|{'---|' * (1 + len(GPUS))}")
    for row in rows:
        print(f"| {row['work']} | {' | '.join(f'{value:.2g} h' for value in row['hours'].values())} |")
    if table:
        return
    for name, seconds in overhead().items():
        print(f"overhead per unit, {name}: {seconds:.2f} s")
    print(f"layerstep runs over 1,000 directories: {listing():.2f} s")


if __name__ == "__main__":
    main(table="--table" in sys.argv[1:])
