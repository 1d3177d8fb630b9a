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
    behaviour_only: Annotated[bool, Parameter(negative=())] = False,
    interventions: Annotated[bool, Parameter(negative="--no-interventions")] = True,
    probes: Path | None = None,
    probe_prompts: int = 5_120,
    prompts: int = 256,
    seed: int = 256,
    task: Flat = TaskOptions(),  # noqa: B008
    device: str = "cpu",
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative=())] = False,
    plot: Path | None = None,
) -> Output:
    """Say what the layers of a model do: which solver they follow, or none, and what was measured instead.

    Everything the model allows is run: its predictions at every layer, three readings of its layers, and interventions,
    which write into the layers and watch what comes out. Three sentences come first.

    Args:
        model: directory of a trained model, file of `layerstep construct --out`, name of a shipped model (tiny) or of a
            solver, whose iterates stand for layers. A directory without weights may hold predictions.safetensors: those
            are tested alone.
        behaviour_only: test the predictions alone, which takes seconds.
        interventions: write into the layers; with --behaviour-only, re-run the model with other labels and orders.
        probes: file that `layerstep probe` wrote (default: probes.safetensors beside the model; when that is not there,
            probes are fitted and saved there).
        probe_prompts: prompts to fit probes on when there are none; `layerstep probe` takes
            38,400.
        prompts: prompts to compare on; the calibration holds for 256.
        seed: seed of these prompts, of the bootstrap and of the interventions.
        task: the prompts.
        device: where the model runs.
        verbose: print every table.
        plot: draw the result into this file (.png, .svg or .pdf).
    """
    from layerstep.errors import require_count
    from layerstep.measurement.combined.entry import PARTS, identify_subject
    from layerstep.measurement.identification.pipeline import FEWEST
    from layerstep.progress import showing

    require_count(probe_prompts=probe_prompts)
    require_count(FEWEST, prompts=prompts)
    require_plot(plot)
    with showing(words="reading the model", lines=True) as show:
        subject, source = _open(model, probes, probe_prompts, seed, device, task, show)
        if behaviour_only:
            found = _behaviour(subject, prompts, seed, interventions, show)
        else:
            parts = PARTS if interventions else PARTS[:2]
            found = identify_subject(subject, parts=parts, prompts=prompts, seed=seed, progress=show)
        text = found.report() if verbose else str(found)
    lines = [text, *([f"  {source}"] if source else [])]
    if plot is not None and getattr(found, "table", found) is not None:
        found.figure(str(plot))
        lines.append(f"figure: {plot}")
    elif plot is not None:
        lines.append("figure: not drawn, there is nothing to draw")
    return Output(found.to_dict(), lines)


def _behaviour(subject, count: int, seed: int, interventions: bool, show):
    """The verdict on predictions alone."""
    from layerstep.measurement.combined.entry import RELABELLED
    from layerstep.measurement.combined.kept_paths import cached_path
    from layerstep.measurement.identification.pipeline import identify_path
    from layerstep.tasks import sample

    prompts = subject.prompts or sample(subject.task, count, seed)
    model_fn = subject.own or (cached_path(subject.probes) if subject.probes else None)
    path = subject.path
    if path is None:
        assert model_fn is not None  # a model without predictions of its own comes with probes
        path = model_fn(prompts)
    show(0.0, "comparing with every solver")
    # A network with the one context N has bounds on its labels, which other labels may pass.
    again = model_fn if interventions and path.N > 1 else None
    options = {"model_fn": again, "relabelled": RELABELLED, "seed": seed, "progress": show, "cache": True}
    return identify_path(path, prompts, subject.task, **options)


def _open(model: str, probes: Path | None, prompts: int, seed: int, device: str, options: TaskOptions, show):
    """(the subject, words about how it is read)."""
    from layerstep.construction import Construction
    from layerstep.errors import InputError, as_path, quoted
    from layerstep.measurement.combined.subject import open_subject
    from layerstep.solvers import SOLVERS
    from layerstep.training.pretrained import SHIPPED, model_folder

    if model in SOLVERS:
        return open_subject(SOLVERS[model], options.task()), ""
    place = as_path("model", model)
    place = place if place.exists() else model_folder(model)
    if place.is_file():
        network = Construction.load(place)
        problem = network.problem
        own = {"d": problem.d, "N": problem.N, "v": problem.kernel.v, "sigma": math.sqrt(problem.lam)}
        own["kernel"] = "gaussian"
        return open_subject(network, options.task(own, model)), ""
    if place.is_dir():
        stored = None if _has_weights(place) else _stored(place, options)
        return stored or _trained(place, probes, prompts, seed, device, options, show)
    raise InputError(
        f"model = {quoted(model)}: must be a directory, a file, or one of {', '.join((*SHIPPED, *SOLVERS))}."
    )


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("model*.safetensors"))


def _stored(folder: Path, options: TaskOptions):
    """The predictions that were shipped in place of weights, where there are such."""
    from layerstep.measurement.combined.subject import Subject
    from layerstep.reproduction.predictions import FILE, Predictions
    from layerstep.reproduction.settings import SETTINGS, evaluation_prompts
    from layerstep.tasks import Trajectory

    if not (folder / FILE).is_file():
        return None
    stored = Predictions.load(folder)
    setting = stored.facts.get("setting")
    if setting not in SETTINGS:
        return None
    layers = stored.layers
    subject = Subject(
        label=folder.name,
        about=f"stored predictions of {len(layers.stages) - 1} layers",
        task=options.task(SETTINGS[setting].to_dict(), str(folder)),
        path=Trajectory(layers.values[1:], layers.stages[1:], folder.name),
        prompts=evaluation_prompts(setting),
        untestable="its weights are not here, only what probes read off its layers",
    )
    return subject, f"predictions: {folder / FILE}"


def _trained(folder: Path, file: Path | None, prompts: int, seed: int, device: str, options: TaskOptions, show):
    from layerstep.files import require_writable
    from layerstep.measurement import GPTReader, Probes, probe
    from layerstep.measurement.combined.subject import made_for, open_subject
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
    words = f"probes: {place}" + (f", fitted on {count:,} prompts" if count else "")
    reader = fitted.reader if isinstance(fitted.reader, GPTReader) else gpt
    return open_subject(reader, task, probes=fitted, label=folder.name), words


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
