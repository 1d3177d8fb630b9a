"""layerstep probe: one linear probe per layer of a trained model."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import tyro

from layerstep.cli.task import Flat


def run(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    prompts: int = 38_400,
    batch: int = 64,
    seed: int = 0,
    method: str = "least-squares",
    attention: bool = False,
    *,
    task: Flat,
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
        task: the prompts.
        sequences: fresh prompts the errors are measured on.
        device: where the model runs.
        out: file for the probes (default: probes.safetensors beside the model, which `layerstep identify` reads;
            with --attention probes-attention.safetensors).
        json: print errors as JSON.
    """
    from layerstep.cli.bar import progress_bar
    from layerstep.errors import require_count
    from layerstep.files import require_writable
    from layerstep.measurement import GPTReader, probe
    from layerstep.solvers import exact
    from layerstep.tasks import sample
    from layerstep.training import GPT

    require_count(sequences=sequences)
    gpt = GPT.from_pretrained(model, device=device)
    law = task.task(made_for(model, gpt), str(model))
    file = out or model / ("probes-attention.safetensors" if attention else "probes.safetensors")
    require_writable(file)
    with progress_bar() as progress:
        bar = progress.add_task(f"probes from {prompts:,} prompts", total=1.0)
        fitted = probe(
            GPTReader(gpt, attention),
            law,
            prompts=prompts,
            batch=batch,
            seed=seed,
            method=method,  # type: ignore[arg-type]
            label=model.name,
            progress=lambda done: progress.update(bar, completed=done),
        )
    fitted.save(file)
    held_out = sample(law, sequences, seed)
    path = fitted.path(held_out)
    mse = path.mse(held_out.target)
    krr = (exact(held_out, law) - held_out.target).square().mean(0)
    shown = sorted({max(1, round(law.N * n / 40)) for n in (2, 10, 20, 40)})
    if json:
        result = {"probes": str(file), "sites": list(fitted.reader.sites), "mse": mse.tolist(), "krr": krr.tolist()}
        print(json_module.dumps(result | {"task": law.to_dict(), "sequences": sequences, "seed": seed}))
        return
    from rich import box
    from rich.table import Table

    from layerstep.cli.table import print_table

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("site", no_wrap=True)
    for n in shown:
        table.add_column(f"n = {n}", justify="right")
    for site, errors in zip(fitted.reader.sites, mse.tolist(), strict=True):
        table.add_row(site, *(f"{errors[n - 1]:.4f}" for n in shown))
    table.add_row("exact KRR", *(f"{float(krr[n - 1]):.4f}" for n in shown))
    print(f"mean squared error of the probes on {sequences} fresh prompts")
    print_table(table)
    print(f"probes: {file}")


def made_for(folder: Path, gpt) -> dict[str, Any]:
    """What a saved model says about its task: all of it when layerstep trained it, else d and N."""
    from layerstep.errors import FileError, InputError
    from layerstep.files import read_json
    from layerstep.tasks import Task

    about = read_json(folder / "config.json").get("about") or {}
    try:
        task = about.get("run", {}).get("task") or about.get("task")
        return Task(**task).to_dict() if task else {"d": gpt.d, "N": gpt.N}
    except (AttributeError, TypeError, InputError) as error:
        raise FileError(f"{folder / 'config.json'} describes no task ({error}). Copy or write it again.") from error
