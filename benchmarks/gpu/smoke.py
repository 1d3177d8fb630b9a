"""Before GPU time is spent: do the kernels of the open mask compute its gradient, and how long does a step take?

PYTHONPATH=src python3 benchmarks/gpu/smoke.py
"""

from __future__ import annotations

import statistics
import time

import torch

from layerstep.files import provenance
from layerstep.training import GPT, PRESETS, Run
from layerstep.training.autograd import AutogradNetwork
from layerstep.training.engine import Engine
from layerstep.training.sampling import CHUNK
from layerstep.training.stack import Layout

CLOSE = 0.02  # bfloat16 products carry 8 bits


def gradient_error(run: Run, device: torch.device) -> float:
    """The largest ‖kernels - autograd in float32‖ / ‖autograd‖ over the parameters of two perturbed models."""
    from layerstep.training.fused.network import FusedNetwork

    gpt = GPT(run.model, run.task.d, run.task.N)
    layout, generator = Layout(gpt), torch.Generator().manual_seed(1)
    weights = torch.zeros(2, layout.P)
    used = sum(p.numel() for p in gpt.parameters())
    for s in range(2):
        layout.load(weights, s, gpt.initialise(s))
    weights[:, :used] += 0.03 * torch.randn(2, used, generator=generator)
    weights = weights.to(device)
    shape = (2, run.batch, run.task.N + 1)
    x = torch.randn(*shape, run.task.d, generator=generator).to(device)
    y = torch.randn(*shape, generator=generator).to(device)
    points = torch.full((2,), float(run.task.N + 1), device=device)
    n = None
    if run.model.mask == "open":
        n = torch.randint(0, run.task.N + 1, shape[:2], generator=generator, dtype=torch.int32).to(device)
    plain, fused = torch.zeros_like(weights), torch.full_like(weights, float("nan"))
    losses = AutogradNetwork(gpt.to(device), layout, weights, plain, "float32")(x, y, points, n)
    found = FusedNetwork(run, layout, weights, fused, 2)(x, y, points, n)
    errors = [float(((found - losses) / losses).abs().max())]
    for name in layout.slots:
        a, b = layout.view(plain, name), layout.view(fused, name)
        errors.append(float((a - b).norm() / a.norm()))
    return max(error if error == error else float("inf") for error in errors)


def step_ms(runs: list[Run], device: torch.device, fused: bool | None = None, chunks: int = 3) -> float:
    """Milliseconds of a step of all runs, stacked: the median over chunks of 64."""
    engine, times = Engine(runs, device, fused), []
    for index in range(chunks + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        engine.advance(CHUNK)
        torch.cuda.synchronize()
        if index:
            times.append((time.perf_counter() - began) * 1000 / CHUNK)
    return statistics.median(times)


def main() -> None:
    device, fast = torch.device("cuda"), PRESETS["fast"]
    where = provenance("cuda")
    print(f"{where['device']}, torch {where['torch']}", flush=True)
    cases = {
        "causal": fast.override(layers=3),
        "open": fast.override(layers=3, mask="open", batch=128),
        "open, linear-mean": fast.override(layers=3, mask="open", batch=128, attention="linear-mean"),
    }
    for name, run in cases.items():
        error = gradient_error(run, device)
        print(f"gradient, {name:<20} {error:.1e} {'ok' if error < CLOSE else 'WRONG'}", flush=True)
    four = {
        "causal, batch 64": fast,
        "open, batch 128": fast.override(mask="open", batch=128),
    }
    for name, run in four.items():
        ms = step_ms([run.override(seed=s) for s in range(4)], device)
        print(f"four stacked, {name:<20} {ms:.2f} ms per step, {ms * 82:.0f} s for 82,000", flush=True)
    run = four["open, batch 128"].override(seed=7)
    engines = [Engine([run], device, fused) for fused in (True, False)]
    losses = [torch.cat([engine.advance(CHUNK)[:, 0, 0] for _ in range(2)]).mean().item() for engine in engines]
    print(f"mean loss of 128 open steps: kernels {losses[0]:.4f}, autograd {losses[1]:.4f}", flush=True)


if __name__ == "__main__":
    main()
