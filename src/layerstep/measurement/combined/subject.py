"""What is identified: a model in any of the forms a user may have, and what it allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from layerstep.construction import Construction, Matern
from layerstep.construction.kernels import Gaussian
from layerstep.errors import FileError, InputError, LayerstepError, as_path, quoted, require, require_kind
from layerstep.files import read_json
from layerstep.measurement.combined.constructed import constructed_reader, why_no_interventions
from layerstep.measurement.identification.domains import default_contexts
from layerstep.measurement.reading.edits import require_hookable
from layerstep.measurement.reading.hooks import EditableReader, GPTReader, Reader, reader_of, require_causal
from layerstep.measurement.reading.probes import Probes
from layerstep.measurement.reading.readouts import Head
from layerstep.solvers import SOLVERS, Solver, solve
from layerstep.tasks import Prompts, Task, Trajectory, require_task, sample, task_from_dict
from layerstep.tasks.kernels import RationalQuadratic, kernel_name
from layerstep.training import GPT
from layerstep.training.pretrained import SHIPPED, model_folder

PROBES = "probes.safetensors"
STAGES = 24  # of a constructed network's iterations, evenly in their logarithm


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """A model and what can be asked of it.

    own: its own prediction after every step, where it has one; else its states are read. reader: where they can be
    read or edited. probes: fitted before. path, prompts: predictions of its probes that were stored, where these are
    all there is. untestable: why its layers cannot be written into.
    """

    label: str
    about: str
    task: Any
    reader: Reader | None = None
    head: Head | None = None
    probes: Probes | None = None
    own: Callable[[Prompts], Trajectory] | None = None
    path: Trajectory | None = None
    prompts: Prompts | None = None
    untestable: str = ""


def open_subject(
    model: Any, task: Any, *, head: Head | None = None, probes: Probes | None = None, label: str = ""
) -> Subject:
    """The subject a user's model is: a module, a reader, a construction, a solver, or the place of a file."""
    if isinstance(model, str) and model in SOLVERS:
        model = SOLVERS[model]
    if isinstance(model, (str, Path)):
        return _at(as_path("model", model), task, head, probes)
    if isinstance(model, Solver):
        return _solver(model, _given(task))
    if isinstance(model, Construction):
        return _construction(model, task)
    reader = reader_of(model)
    return _readable(reader, _given(task), head, probes, label or type(reader.model).__name__)


def _given(task: Any) -> Any:
    require_task(
        task, "lam", remedy="The model was made for one: ls.identify(model, ls.Task(inputs=..., d=..., N=...))."
    )
    return task


def _at(place: Path, task: Any, head: Head | None, probes: Probes | None) -> Subject:
    place = place if place.exists() else model_folder(place)
    if place.is_file():
        return replace(_construction(Construction.load(place), task), label=place.stem)
    if not place.is_dir():
        names = (*SHIPPED, *SOLVERS)
        raise InputError(f"model = {quoted(str(place))}: must be a directory, a file, or one of {', '.join(names)}.")
    gpt = GPT.from_pretrained(place)
    known = made_for(place, gpt)
    if task is None:
        require(len(known) > 2, "task", "None", "given, for config.json does not say what the model was made for")
        task = task_from_dict(known)
    task = _given(task)
    if probes is None and (place / PROBES).is_file():
        saved = Probes.load(place / PROBES, gpt)
        whole = isinstance(saved.reader, GPTReader) and not saved.reader.attention
        if whole and saved.facts.get("task", task.to_dict()) == task.to_dict():
            probes = saved
    return _readable(GPTReader(gpt), task, head, probes, label=place.name)


def made_for(folder: Path, gpt: GPT) -> dict[str, Any]:
    """What a saved model says about its task: all of it when layerstep trained it, else d and N."""
    about = read_json(folder / "config.json").get("about") or {}
    try:
        task = about.get("run", {}).get("task") or about.get("task")
        return task_from_dict(task).to_dict() if task else {"d": gpt.d, "N": gpt.N}
    except (AttributeError, TypeError, InputError) as error:
        raise FileError(f"{folder / 'config.json'} describes no task ({error}). Copy or write it again.") from error


def _readable(reader: Reader, task: Any, head: Head | None, probes: Probes | None, label: str) -> Subject:
    model = reader.model
    if isinstance(model, GPT):
        require(task.d == model.d, "task.d", task.d, f"{model.d}, the dimension of the inputs this model was made for")
        require(task.N <= model.N, "task.N", task.N, f"at most {model.N}, the longest context of this model")
    else:  # no hooks and no dropout there
        require_hookable(model)
    _trial(reader, task)
    editable = isinstance(reader, EditableReader)
    words = [f"{len(reader.sites)} sites"]
    if isinstance(model, GPT):
        loops = f" used {model.model.loops} times" if model.model.loops > 1 else ""
        words = [f"{model.model.layers} layers{loops} of width {model.model.width}"]
    if editable:
        words.append(f"{reader.mask} mask")
    return Subject(
        label=label,
        about=", ".join(words),
        task=task,
        reader=reader,
        head=head,
        probes=probes,
        untestable="" if editable else "its reader has no run(prompts, edits): wrap the model in ls.Hooked",
    )


def _trial(reader: Reader, task: Any) -> None:
    """One pass over a few prompts: what does not run, or sees the label it should predict, is said at once."""
    few = sample(task, 4, seed=0)
    try:
        with torch.no_grad():
            reader.states(few)
        require_causal(reader, few)
    except LayerstepError:
        raise
    except Exception as error:
        raise InputError(
            f"model: raised {type(error).__name__} on prompts of the task (d = {task.d}, N = {task.N}): {error}"
        ) from error


def _construction(network: Construction, task: Any | None) -> Subject:
    problem = network.problem
    require(problem.scales is None, "model", network, "a network of one length scale", "A task has one v.")
    own = {"d": problem.d, "N": problem.N, "v": problem.kernel.v, "sigma": math.sqrt(problem.lam)}
    kernel = _kernel(problem.kernel)
    if task is None:
        task = Task(**own, kernel=kernel)
    require_kind("task", task, Task, "ls.identify(network) takes its own from the network.")
    for name, made_with in own.items():
        given = getattr(task, name)
        remedy = f"The network was constructed with it; ls.identify(network) takes {name} from there."
        require(math.isclose(given, made_with), f"task.{name}", given, f"{made_with:g}", remedy)
    require(task.kernel == kernel, "task.kernel", task.kernel, f"{kernel}, the kernel that the network was made for")
    stages = sorted({round(network.L ** (k / (STAGES - 1))) for k in range(STAGES)})
    contexts = default_contexts(task.N) if network.scheme.flexible else [task.N]
    reason = why_no_interventions(network)
    return Subject(
        label=f"{network.certificate.scheme} construction",
        about=f"{network.depth:,} blocks, {network.L:,} iterations",
        task=task,
        own=lambda prompts: network.path(prompts, stages=stages, contexts=contexts),
        reader=None if reason else constructed_reader(network),
        untestable=reason,
    )


def _kernel(kernel: Any) -> str:
    """The name that tasks have for the kernel of a constructed transformer."""
    meant = None if isinstance(kernel, Gaussian) else kernel.mixture.target
    allowed = "a network whose kernel has a name, among gaussian, matern12, matern32, matern52, rational-quadratic"
    require(isinstance(kernel, Gaussian) or meant is not None, "model", "of Gaussians of your own", allowed)
    if meant is None or isinstance(meant, Matern):
        return "gaussian" if meant is None else meant.name
    return kernel_name(RationalQuadratic(alpha=meant.alpha))


def _solver(solver: Solver, task: Any) -> Subject:
    steps = [0.5 * 1.4**k if solver.continuous else k * (k + 3) // 4 for k in range(1, 13)]
    return Subject(
        label=type(solver).__name__,
        about="a solver's iterates in place of layers",
        task=task,
        own=lambda prompts: solve(solver, prompts, task, steps),
        untestable="a solver has no states to write into",
    )
