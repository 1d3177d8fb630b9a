"""layerstep probe: one linear probe per layer of a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from layerstep.cli.options import Flat, TaskOptions
from layerstep.cli.output import Output, table


def run(
    model: Path,
    /,
    *,
    prompts: int = 38_400,
    batch: int = 64,
    seed: int = 0,
    method: Literal["least-squares", "gradient"] = "least-squares",
    attention: bool = False,
    task: Flat = TaskOptions(),  # noqa: B008
    test_prompts: int = 256,
    device: str = "cpu",
    out: Path | None = None,
) -> Output:
    """Fit one linear probe per layer and print the error of every layer beside exact kernel ridge regression.

    Args:
        model: directory of a model that `layerstep train` or save_pretrained wrote.
        prompts: fresh prompts the probes are fitted on.
        batch: prompts at a time.
        seed: seed of all prompts.
        method: least-squares, the minimum itself; gradient, Adam as the paper trains its probes.
        attention: also probe half-way through every block, after its attention.
        task: the prompts.
        test_prompts: fresh prompts the errors are measured on.
        device: where the model runs.
        out: file for the probes (default: probes.safetensors beside the model, which `layerstep identify` reads;
            with --attention probes-attention.safetensors).
    """
    from layerstep.errors import require_count
    from layerstep.files import require_writable
    from layerstep.measurement import GPTReader, probe
    from layerstep.measurement.combined.subject import made_for
    from layerstep.progress import showing
    from layerstep.solvers import exact
    from layerstep.tasks import sample
    from layerstep.training import GPT

    require_count(prompts=prompts, test_prompts=test_prompts)
    gpt = GPT.from_pretrained(model, device=device)
    asked = task.task(made_for(model, gpt), str(model))
    file = out or model / ("probes-attention.safetensors" if attention else "probes.safetensors")
    require_writable(file)
    with showing(words=f"probes from {prompts:,} prompts") as show:
        fitted = probe(
            GPTReader(gpt, attention),
            asked,
            prompts=prompts,
            batch=batch,
            seed=seed,
            method=method,
            label=model.name,
            progress=show,
        )
    fitted.save(file)
    held_out = sample(asked, test_prompts, seed)
    mse = fitted.path(held_out).mse(held_out.target).tolist()
    krr = (exact(held_out, asked) - held_out.target).square().mean(0).tolist()
    sites = fitted.reader.sites
    data = {"probes": str(file), "sites": list(sites), "mse": mse, "krr": krr}
    data |= {"task": asked.to_dict(), "prompts": prompts, "test_prompts": test_prompts, "seed": seed}
    shown = sorted({max(1, round(asked.N * n / 40)) for n in (2, 10, 20, 40)})
    errors = zip([*sites, "exact KRR"], [*mse, krr], strict=True)
    rows = [[site, *(f"{error[n - 1]:.4f}" for n in shown)] for site, error in errors]
    title = f"mean squared error of the probes on {test_prompts} fresh prompts"
    return Output(data, [title, table(["site", *(f"n = {n}" for n in shown)], rows), f"probes: {file}"])
