"""Times a training step of the default model: the loop people write, the plain engine, the hand-written kernels.

PYTHONPATH=src python3 benchmarks/training.py            prints the table
PYTHONPATH=src python3 benchmarks/training.py --profile  adds where the time of four stacked models goes
"""

from __future__ import annotations

import json as json_module
import statistics
import sys
import time

import torch

from layerstep.errors import as_device
from layerstep.files import provenance
from layerstep.tasks import sample
from layerstep.training import GPT, PRESETS, Run
from layerstep.training.engine import Engine
from layerstep.training.sampling import CHUNK, draw_chunk

PAPER_STEPS = 500_000


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_ms(work, device: torch.device, repeat: int, steps: int) -> tuple[float, float]:
    """Milliseconds a step: the median of `repeat` timings of `work`, which takes `steps` steps, and their spread."""
    times = []
    for _ in range(repeat):
        wait(device)
        began = time.perf_counter()
        work()
        wait(device)
        times.append(1000 * (time.perf_counter() - began) / steps)
    return statistics.median(times), max(times) - min(times)


def eager_loop(run: Run, device: torch.device, half: bool):
    """What people write: prompts drawn on the CPU, autograd, torch.optim.AdamW, `.item()` at every step."""
    gpt = GPT(run.model, run.task.d, run.task.N).initialise(run.seed).to(device)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=run.lr, weight_decay=run.weight_decay)
    count = 0

    def work(steps: int = 5) -> None:
        nonlocal count
        for _ in range(steps):
            prompts = sample(run.task, run.batch, run.seed, count, dtype=torch.float32).to(device=device)
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                loss = (gpt(prompts) - prompts.y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(gpt.parameters(), run.clip)
            optimizer.step()
            loss.item()
            count += 1

    return work


def engine_steps(engine: Engine, steps: int):
    def work() -> None:
        for _ in range(steps // CHUNK or 1):
            engine.advance(min(steps, CHUNK))

    return work


def rows(run: Run, device: torch.device):
    """(what, models, milliseconds a step, spread) of every variant."""
    cuda = device.type == "cuda"
    for half in (False, True):
        work = eager_loop(run, device, half)
        work(2)
        name = f"eager loop, {'bfloat16' if half else 'float32'}, prompts from the CPU, .item() every step"
        yield (name, 1, *median_ms(work, device, 3, 5))
    steps = 2 * CHUNK if cuda else CHUNK
    variants = [("plain engine, float32", False, "float32", 1), ("plain engine, bfloat16", False, "bfloat16", 1)]
    if cuda:
        variants += [(f"hand-written kernels, {S} stacked", True, "bfloat16", S) for S in (1, 2, 4, 8)]
    for name, fused, precision, S in variants:
        runs = [run.override(precision=precision, seed=s) for s in range(S)]
        engine = Engine(runs, device, fused)
        work = engine_steps(engine, steps)
        work()
        yield (name, S, *median_ms(work, device, 5, steps))
        del engine, work
        if cuda:
            torch.cuda.empty_cache()
    draw_chunk(run, 0, torch.float32, device)
    draws = median_ms(lambda: draw_chunk(run, 1, torch.float32, device), device, 5, CHUNK)
    yield ("sampling alone, one model", 1, *draws)


def profile(run: Run, device: torch.device) -> None:
    """Kernels of one step of four models, by time."""
    engine = Engine([run.override(seed=s) for s in range(4)], device)
    engine.advance(CHUNK)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        engine.advance(10)
        wait(device)
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=28, max_name_column_width=60))


def main(json: bool = False) -> None:
    device = as_device(None)
    cuda = device.type == "cuda"
    run = PRESETS["paper"] if cuda else PRESETS["tiny"]
    steps = PAPER_STEPS if cuda else run.steps
    where = provenance(str(device))
    if not json:
        print(f"training step, batch {run.batch}, {run.model}, T = {2 * (run.task.N + 1)}")
        print(f"{where['device']}, torch {where['torch']}, Python {where['python']}, commit {where['commit']}")
        print(f"{'variant':<72} {'models':>6} {'ms/step':>8} {'±':>6} {'ms/model':>9} {'min/run':>8}")
    variants = []
    for name, S, ms, spread in rows(run, device):
        minutes = ms / S * steps / 60_000
        variants.append({"variant": name, "models": S, "ms_step": ms, "spread": spread, "minutes_run": minutes})
        if not json:
            print(f"{name:<72} {S:>6} {ms:>8.3f} {spread:>6.3f} {ms / S:>9.3f} {minutes:>8.1f}", flush=True)
    if json:
        print(json_module.dumps({"benchmark": "training", **where, "run": run.to_dict(), "variants": variants}))
    elif cuda and "--profile" in sys.argv:
        profile(run, device)


if __name__ == "__main__":
    main()
