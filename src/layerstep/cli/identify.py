"""layerstep identify: which solver the layers of a model follow, or none."""

from __future__ import annotations

import json as json_module
import math
from pathlib import Path
from typing import Annotated, Any

import tyro

from layerstep.cli.task import Flat, TaskOptions


def run(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    probes: Path | None = None,
    probe_prompts: int = 38_400,
    sequences: int = 256,
    seed: int = 256,
    *,
    task: Flat,
    interventions: bool = True,
    device: str = "cpu",
    figure: Path | None = None,
    json: bool = False,
) -> None:
    """Say which solver the layers of a model follow, with the evidence, or that they follow none.

    Args:
        model: folder of a trained model; a file that `layerstep construct --save` wrote; or the name of a solver, whose
            iterates are then judged as if they were a model's layers, to see what the instrument says.
        probes: file that `layerstep probe` wrote (default: probes.safetensors beside the model; when that is not there,
            probes are fitted and saved there).
        probe_prompts: prompts to fit probes on when there are none.
        sequences: prompts to judge on; the calibration holds for 256.
        seed: seed of these prompts, of the bootstrap and of the interventions.
        task: the prompts.
        interventions: re-run the model with other labels and another order of the examples.
        device: where the model runs.
        figure: draw the evidence into this file (.png, .svg or .pdf).
        json: print the verdict as JSON.
    """
    from layerstep.cli.bar import progress_bar
    from layerstep.errors import require_choice, require_count
    from layerstep.files import require_writable
    from layerstep.measurement import identify
    from layerstep.measurement.identification.pipeline import FEWEST
    from layerstep.tasks import sample

    require_count(probe_prompts=probe_prompts)
    require_count(FEWEST, sequences=sequences)
    if figure is not None:
        require_choice("--figure suffix", figure.suffix, [".png", ".svg", ".pdf"])
        require_writable(figure)
    with progress_bar() as progress:
        bar = progress.add_task("reading the model", total=1.0)

        def show(done: float) -> None:
            progress.update(bar, completed=done)

        rerun, law, source = _open(model, probes, probe_prompts, seed, device, task, show)
        prompts = sample(law, sequences, seed)
        path = rerun(prompts)
        progress.update(bar, description="comparing with every solver", completed=0.0)
        verdict = identify(
            path,
            prompts,
            law,
            # A network with the one context N has bounds on its labels, which other labels may pass.
            rerun=rerun if interventions and path.N > 1 else None,
            seed=seed,
            progress=show,
        )
    if figure is not None and verdict.table is not None:
        verdict.figure(str(figure))
    if json:
        print(json_module.dumps(verdict.to_dict(), allow_nan=False))
        return
    print(verdict)
    if source:
        print(f"  {source}")
    if figure is not None:
        print(f"figure: {figure}" if verdict.table is not None else "figure: not drawn, there is no evidence to draw")


def _open(model: str, probes: Path | None, prompts: int, seed: int, device: str, options: TaskOptions, show):
    """(the model as a function from prompts to its path, its task, words about how it is read)."""
    from layerstep.construction import load
    from layerstep.errors import InputError
    from layerstep.measurement.identification.library import default_contexts
    from layerstep.solvers import SOLVERS, solve

    if model in SOLVERS:
        solver, task = SOLVERS[model], options.task()
        steps = [0.5 * 1.4**k if solver.continuous else k * (k + 3) // 4 for k in range(1, 13)]
        return (lambda prompts: solve(solver, prompts, task, steps)), task, ""
    place = Path(model)
    if place.is_file():
        network = load(place)
        scheme = network.scheme
        own = {"d": scheme.d, "N": scheme.N, "v": scheme.v, "sigma": math.sqrt(scheme.lam), "kernel": "gaussian"}
        task = options.task(own, model)
        stages = sorted({round(network.L ** (k / 23)) for k in range(24)})
        contexts = default_contexts(task.N) if scheme.flexible else [task.N]
        return (lambda prompts: network.path(prompts, stages=stages, contexts=contexts)), task, ""
    if place.is_dir():
        return _trained(place, probes, prompts, seed, device, options, show)
    raise InputError(f"model = {model!r}: must be a folder, a file, or a solver: {', '.join(SOLVERS)}.")


def _trained(folder: Path, file: Path | None, prompts: int, seed: int, device: str, options: TaskOptions, show):
    from layerstep.cli.probe import made_for
    from layerstep.files import require_writable
    from layerstep.measurement import Probes, probe
    from layerstep.tasks import sample
    from layerstep.training import GPT

    gpt = GPT.from_pretrained(folder, device=device)
    task = options.task(made_for(folder, gpt), str(folder))
    place = file or folder / "probes.safetensors"
    if file is not None or place.is_file():
        fitted = Probes.load(place, gpt)
        _require_task(place, fitted.facts.get("task"), task.to_dict())
    else:
        require_writable(place)
        fitted = probe(gpt, task, prompts=prompts, seed=seed, label=folder.name, progress=show)
        fitted.save(place)
    fitted.self_check(sample(task, 4, seed))
    count = fitted.facts.get("prompts")
    return fitted.path, task, f"probes: {place}" + (f", fitted on {count:,} prompts" if count else "")


def _require_task(place: Path, theirs: dict[str, Any] | None, ours: dict[str, Any]) -> None:
    """Raise InputError unless the probes in a file were fitted on this task; older files do not name theirs."""
    from layerstep.errors import InputError

    differs = {name: value for name, value in (theirs or {}).items() if ours.get(name) != value}
    if differs:
        shown = ", ".join(f"{name} = {value} (here {ours.get(name)})" for name, value in differs.items())
        raise InputError(
            f"{place}: these probes were fitted on another task: {shown}. Fit others with `layerstep probe`, "
            "and name their file with its --out and with --probes here."
        )
