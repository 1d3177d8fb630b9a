"""Trains runs of one shape, stacked, for as long as there is time, and packs what comes out into few files.

What the scripts beside it share: a clock, the number of steps that fit, and a model's directory as in results/models.
"""

from __future__ import annotations

import json
import math
import shutil
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from layerstep.errors import InputError
from layerstep.files import provenance, write_json, write_text
from layerstep.folders.layout import CHECKPOINTS
from layerstep.training import GPT, Run, evaluate
from layerstep.training.checkpoint import load_checkpoint
from layerstep.training.config import scalars
from layerstep.training.engine import Engine
from layerstep.training.loop import training
from layerstep.training.sampling import CHUNK
from layerstep.training.stack import Layout

SHARD_BYTES = 10_000_000
LOG_RECORDS = 250
MEASURED = 6  # chunks of steps that the pace is measured on


def changed(run: Run, words: Sequence[str]) -> Run:
    """The run with scalars changed as in optimizer=muon lr=1e-3."""
    kinds = scalars(run.task)
    given = {name: text for name, _, text in (word.partition("=") for word in words)}
    for name in given:
        if name not in kinds:
            raise InputError(f"--set {name}: is not a number of a run. There are: {', '.join(kinds)}.")
    return run.override(**{name: kinds[name](text) for name, text in given.items()})


def pace(runs: Sequence[Run], device: torch.device) -> float:
    """Seconds per step, stacked."""
    engine = Engine(runs, device)
    engine.advance(CHUNK)
    _wait(device)
    began = time.perf_counter()
    for _ in range(MEASURED):
        engine.advance(CHUNK)
    _wait(device)
    return (time.perf_counter() - began) / (MEASURED * CHUNK)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def that_fit(runs: Sequence[Run], seconds: float, device: torch.device) -> list[Run]:
    """These runs with as many steps as fit into `seconds`, at most their own; whole thousands where there are such."""
    each = pace(runs, device)
    steps = min(runs[0].steps, int(0.97 * seconds / each))
    steps = steps // 1000 * 1000 or steps
    print(f"{1000 * each:.2f} ms per step of {len(runs)}, {steps} steps in about {steps * each:.0f} s", flush=True)
    return [replace(run, steps=steps, warmup=min(run.warmup, steps // 4)) for run in runs]


def train_until(runs: Sequence[Run], home: Path, deadline: float) -> tuple[int, list[GPT]]:
    """Train to the end, or to the checkpoint written at `deadline` (of time.monotonic); steps done, and the models."""
    steps = training(list(runs), home, checkpoint_seconds=1e9, snapshots=())
    try:
        next(steps)
        while time.monotonic() < deadline:
            next(steps)
    except StopIteration as end:
        return runs[0].steps, end.value
    steps.close()
    found = load_checkpoint(home / CHECKPOINTS, list(runs))
    assert found is not None
    done, state = found
    print(f"time is up after {done} of {runs[0].steps} steps", flush=True)
    models = [GPT(run.model, run.task.d, run.task.N) for run in runs]
    layout = Layout(models[0])
    return done, [layout.store(state["weights"], s, gpt).eval() for s, gpt in enumerate(models)]


def log_of(runs: Sequence[Run], index: int, home: Path) -> list[dict[str, Any]]:
    """One run's part of the log of all, thinned."""
    records = [json.loads(line) for line in (home / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    thin = records[-1 :: -max(1, len(records) // LOG_RECORDS)][::-1]
    mine = [{key: value[index] if isinstance(value, list) else value for key, value in r.items()} for r in thin]
    return [{k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in record.items()} for record in mine]


def save(
    gpt: GPT, name: str, runs: Sequence[Run], index: int, steps: int, home: Path, folder: Path, prompts: int
) -> tuple[GPT, dict[str, Any]]:
    """A directory like those of results/models: weights in float16, log, errors of what is stored beside exact KRR."""
    run, device = runs[index], "cuda" if torch.cuda.is_available() else "cpu"
    about = {"run": run.to_dict(), "step": steps, "provenance": provenance(device)}
    gpt.save_pretrained(folder / name, dtype=torch.float16, shard_bytes=SHARD_BYTES, about=about)
    gpt = GPT.from_pretrained(folder / name, device=device)
    log = log_of(runs, index, home)
    write_text(folder / name / "log.jsonl", "".join(json.dumps(record) + "\n" for record in log))
    found = evaluate(gpt, run.task, B=prompts, seed=1234)
    facts = {
        "identity": run.identity,
        "evaluation": found.to_dict(),
        "snapshots": {},
        "seconds": log[-1]["seconds"],
        "stack": [each.name for each in runs],
        "shared": [],
        "provenance": provenance(device),
    }
    write_json(folder / name / "evaluation.json", facts)
    # Without noise the best error is 0 from n = d on, and a model's is compared with its own at n = 0.
    unit, of = (found.krr, "the best") if math.isfinite(found.ratio) else (found.mse[0].expand_as(found.mse), "n = 0")
    ratios = " ".join(
        f"n={n}: {found.mse[n] / unit[n]:.4f}" for n in sorted({1, 5, 10, 20, run.task.N}) if n <= run.task.N
    )
    print(f"{name:<24} mse {found.mse[-1]:.4f}, best {found.krr[-1]:.4f}, over {of}: {ratios}", flush=True)
    return gpt, facts


def pack_models(kept: Sequence[str], name: str, home: Path, folder: Path, out: Path) -> None:
    """A tar file for each shard of the models `kept`, one of all small files, and nothing else is left."""
    shards = {
        f"{model}-{index}": [shard]
        for model in kept
        for index, shard in enumerate(sorted((folder / model).glob("model*.safetensors")), 1)
    }
    rest = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("model-0")]
    pack({**shards, name: rest}, folder, out)
    for place in (home, folder):  # only the archives go back
        shutil.rmtree(place)


def pack(groups: Mapping[str, Sequence[Path]], root: Path, out: Path) -> None:
    """Tar files NAME.tar of paths below `root`; unpacked in one place they are that directory again."""
    for name, paths in groups.items():
        with tarfile.open(out / f"{name}.tar", "w") as archive:
            for path in paths:
                archive.add(path, arcname=str(path.relative_to(root)))
        print(f"{name}.tar {(out / f'{name}.tar').stat().st_size / 2**20:.1f} MiB", flush=True)
