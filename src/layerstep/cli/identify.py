"""layerstep identify: which solver the layers of a model follow, or none."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from layerstep.cli.options import Flat, TaskOptions, require_plot
from layerstep.cli.output import Output


def run(
    model: str,
    /,
    *,
    probes: Path | None = None,
    probe_prompts: int = 38_400,
    prompts: int = 256,
    seed: int = 256,
    task: Flat = TaskOptions(),  # noqa: B008
    interventions: Annotated[bool, Parameter(negative="--no-interventions")] = True,
    device: str = "cpu",
    plot: Path | None = None,
) -> Output:
    """Say which solver the layers of a model follow, or that they follow none.

    The name of a solver is identified as a model would be: its iterates stand for layers.

    Args:
        model: directory of a trained model, file of `layerstep construct --out`, or name of a solver or of a shipped
            model (tiny).
        probes: file that `layerstep probe` wrote (default: probes.safetensors beside the model; when that is not there,
            probes are fitted and saved there).
        probe_prompts: prompts to fit probes on when there are none.
        prompts: prompts to compare on; the calibration holds for 256.
        seed: seed of these prompts, of the bootstrap and of the interventions.
        task: the prompts.
        interventions: re-run the model with other labels and another order of the examples.
        device: where the model runs.
        plot: draw the result into this file (.png, .svg or .pdf).
    """
    from layerstep.errors import require_count
    from layerstep.measurement import identify
    from layerstep.measurement.identification.pipeline import FEWEST
    from layerstep.progress import showing
    from layerstep.tasks import sample

    require_count(probe_prompts=probe_prompts)
    require_count(FEWEST, prompts=prompts)
    require_plot(plot)
    with showing(words="reading the model") as show:
        model_fn, asked, source = _open(model, probes, probe_prompts, seed, device, task, show)
        drawn = sample(asked, prompts, seed)
        path = model_fn(drawn)
        show(0.0, "comparing with every solver")
        verdict = identify(
            path,
            drawn,
            asked,
            # A network with the one context N has bounds on its labels, which other labels may pass.
            model_fn=model_fn if interventions and path.N > 1 else None,
            seed=seed,
            progress=show,
            cache=True,
        )
    lines = [str(verdict), *([f"  {source}"] if source else [])]
    if plot is not None and verdict.table is not None:
        verdict.figure(str(plot))
        lines.append(f"figure: {plot}")
    elif plot is not None:
        lines.append("figure: not drawn, there is nothing to draw")
    return Output(verdict.to_dict(), lines)


def _open(model: str, probes: Path | None, prompts: int, seed: int, device: str, options: TaskOptions, show):
    """(the model as a function from prompts to its path, its task, words about how it is read)."""
    from layerstep.construction import Construction
    from layerstep.errors import InputError, as_path, quoted
    from layerstep.measurement.identification.library import default_contexts
    from layerstep.solvers import SOLVERS, solve
    from layerstep.training.pretrained import SHIPPED, model_folder

    if model in SOLVERS:
        solver, task = SOLVERS[model], options.task()
        steps = [0.5 * 1.4**k if solver.continuous else k * (k + 3) // 4 for k in range(1, 13)]
        return (lambda prompts: solve(solver, prompts, task, steps)), task, ""
    place = as_path("model", model)
    place = place if place.exists() else model_folder(model)
    if place.is_file():
        network = Construction.load(place)
        problem = network.problem
        own = {"d": problem.d, "N": problem.N, "v": problem.kernel.v, "sigma": math.sqrt(problem.lam)}
        own["kernel"] = "gaussian"
        task = options.task(own, model)
        stages = sorted({round(network.L ** (k / 23)) for k in range(24)})
        contexts = default_contexts(task.N) if network.scheme.flexible else [task.N]
        return (lambda prompts: network.path(prompts, stages=stages, contexts=contexts)), task, ""
    if place.is_dir():
        return _trained(place, probes, prompts, seed, device, options, show)
    raise InputError(
        f"model = {quoted(model)}: must be a directory, a file, or one of {', '.join((*SHIPPED, *SOLVERS))}."
    )


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
