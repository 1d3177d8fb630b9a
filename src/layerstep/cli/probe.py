"""layerstep probe: one linear probe per layer of a trained model."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import tyro


def run(
    model: Annotated[Path, tyro.conf.Positional],
    prompts: int = 38_400,
    batch: int = 256,
    seed: int = 0,
    method: str = "least-squares",
    attention: bool = False,
    inputs: str = "sphere",
    kernel: str = "gaussian",
    v: float = 1.0,
    sigma: float = 0.05,
    input_std: float = 0.6,
    sequences: int = 256,
    device: str = "cpu",
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Fit one linear probe per layer and print the error of every layer beside exact kernel ridge regression.

    Args:
        model: folder of a model that `layerstep train` or save_pretrained wrote.
        prompts: fresh prompts the probes are fitted on.
        batch: prompts at a time.
        seed: seed of all prompts.
        method: least-squares, the minimum itself; gradient, Adam as the paper trains its probes.
        attention: also probe half-way through every block, after its attention.
        inputs: law of the inputs: sphere, uniform or gaussian. A model trained by layerstep knows its own task.
        kernel: gaussian or arccos1.
        v: bandwidth of the kernel.
        sigma: standard deviation of the label noise.
        input_std: standard deviation of gaussian inputs.
        sequences: fresh prompts the errors are measured on.
        device: where the model runs.
        out: file for the probes (default: probes.safetensors beside the model).
        json: print errors as JSON.
    """
    from rich.console import Console
    from rich.progress import Progress

    from layerstep.measurement import GPTReader, probe
    from layerstep.solvers import exact
    from layerstep.tasks import sample
    from layerstep.training import GPT

    gpt = GPT.from_pretrained(model, device=device)
    task = task_of(model, gpt, inputs=inputs, kernel=kernel, v=v, sigma=sigma, input_std=input_std)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(f"probes from {prompts:,} prompts", total=1.0)
        fitted = probe(
            GPTReader(gpt, attention),
            task,
            prompts=prompts,
            batch=batch,
            seed=seed,
            method=method,  # type: ignore[arg-type]
            label=model.name,
            progress=lambda done: progress.update(bar, completed=done),
        )
    file = out or model / "probes.safetensors"
    fitted.save(file)
    held_out = sample(task, sequences, seed)
    path = fitted.path(held_out)
    mse = path.mse(held_out.target)
    krr = (exact(held_out, task) - held_out.target).square().mean(0)
    shown = sorted({max(1, round(task.N * n / 40)) for n in (2, 10, 20, 40)})
    if json:
        result = {"probes": str(file), "sites": list(fitted.reader.sites), "mse": mse.tolist(), "krr": krr.tolist()}
        print(json_module.dumps(result | {"task": task.to_dict(), "sequences": sequences, "seed": seed}))
        return
    from rich import box
    from rich.table import Table

    title = f"mean squared error of the probes on {sequences} fresh prompts"
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("site", no_wrap=True)
    for n in shown:
        table.add_column(f"n = {n}", justify="right")
    for site, errors in zip(fitted.reader.sites, mse.tolist(), strict=True):
        table.add_row(site, *(f"{errors[n - 1]:.4f}" for n in shown))
    table.add_row("exact KRR", *(f"{float(krr[n - 1]):.4f}" for n in shown))
    Console(width=max(80, Console().width)).print(table)
    print(f"probes: {file}")


def task_of(folder: Path, gpt, **given):
    """The task in the model's own files, or the one given by the options; d and N are the model's."""
    from layerstep.files import read_json
    from layerstep.tasks import Task

    about = read_json(folder / "config.json").get("about", {})
    task = about.get("run", {}).get("task") or about.get("task")
    return Task(**task) if task else Task(d=gpt.d, N=gpt.N, **given)
