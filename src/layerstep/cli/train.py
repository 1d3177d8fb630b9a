"""`layerstep train`: a preset, changes to any number of the run by its name, and a directory."""

from __future__ import annotations

from dataclasses import field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from layerstep.cli.options import KINDS, TaskOptions, import_named
from layerstep.cli.output import Output
from layerstep.errors import InputError, quoted, require, require_count
from layerstep.files import read_json
from layerstep.folders.layout import CHECKPOINTS, EVALUATION, RUNS
from layerstep.tasks import LinearRegression, Task
from layerstep.training import PRESETS, Model, Run, train
from layerstep.training.config import ATTENTION, PRECISION, scalars
from layerstep.training.directory import places
from layerstep.training.loop import WAIT

HELP = {
    "attention": f"{', '.join(ATTENTION)}.",
    "mask": "causal; or open, where every token sees all others, as in the theorem.",
    "loops": "how often the same blocks are used.",
    "precision": f"of matrix products: {', '.join(PRECISION)}.",
    "batch": "prompts per step.",
    "lr": "highest learning rate.",
    "lr_final": "learning rate at the end.",
    "warmup": "steps in which the rate climbs.",
    "clip": "largest norm of a gradient.",
    "curriculum_start": "points of a prompt that the loss counts at first.",
    "curriculum_add": "points more, each time.",
    "curriculum_every": "steps between two additions; 0 for all points from the start.",
    "curriculum_dims": "coordinates of the inputs at first, one more each time; 0 for all from the start.",
    "pool": "of linear tasks: how many weights there are for prompts to have.",
    "pool_seed": "of linear tasks: seed of the pool.",
    "prior": "of linear tasks: gaussian weights, or sparse:k.",
    "covariance": "of linear tasks: the variance of the inputs.",
    "mean": "of linear tasks: the mean of the inputs.",
}


#: Every scalar of a run, its model's and its task's, whichever of the two kinds that is, by name: its type.
SCALARS: dict[str, type] = {**scalars(), **scalars(LinearRegression()), "pool": int}


def _numbers(run: Run) -> dict[str, Any]:
    return vars(run.task) | vars(run.model) | vars(run)


def _options() -> Any:
    """Every number of a run as an option of its name, those of the model with a prefix; None for the preset's."""
    shapes, made = {each.name for each in fields(Model)}, []
    asked = {each.name for each in fields(TaskOptions)}
    for name, kind in SCALARS.items():
        group = "Model" if name in shapes else "Prompts" if name in asked else "Training"
        option = f"--{'model.' * (name in shapes)}{name.replace('_', '-')}"
        defaults = {preset: _numbers(run)[name] for preset, run in PRESETS.items() if name in _numbers(run)}
        shown = ", ".join(f"{preset} {value}" for preset, value in defaults.items())
        if len(set(defaults.values())) == 1:
            shown = str(next(iter(defaults.values())))
        about = Parameter(name=option, group=group, help=HELP.get(name, ""), show_default=lambda _, shown=shown: shown)
        made.append((name, Annotated[kind | None, about], field(default=None)))
    changes = make_dataclass("Changes", made, frozen=True, kw_only=True)
    changes.__module__ = __name__
    return changes


Changes = _options()


def run(
    preset: Literal["paper", "fast", "tiny", "linear", "linear-tiny"] = "fast",
    /,
    *,
    out: Path,
    kind: Annotated[Literal["gp", "linear"] | None, Parameter(name="--task", group="Prompts")] = None,
    changes: Annotated[Changes, Parameter(name="*")] = Changes(),  # noqa: B008  # type: ignore[reportInvalidTypeForm]
    set: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    stack: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    resume: bool = False,
    device: str | None = None,
    checkpoint_seconds: float = 60.0,
    prompts: int = 2048,
    wait: float = WAIT,
) -> Output:
    """Train a GPT-style model on Gaussian-process prompts, and say how far it is from exact kernel ridge regression.

    Args:
        preset: paper (500,000 steps), fast (the paper's quality sooner), tiny (a minute on a CPU); for in-context
            linear regression linear (d = 20) and linear-tiny (minutes on a CPU).
        out: the directory for weights, log and checkpoints.
        kind: gp, a Gaussian process, or linear, in-context linear regression; by default that of the preset.
        set: the same changes as words: --set steps=1000 lr=5e-4 inputs=uniform layers=4.
        stack: models trained together, each with its own changes: --stack seed=1 seed=2 inputs=uniform,lr=1e-4.
        resume: go on from the last checkpoint in `out`, as the same command does anyway; fail where there is none.
        device: cpu, cuda, cuda:1 or mps; the best there is when not given.
        checkpoint_seconds: seconds between checkpoints; a kill loses at most this.
        prompts: prompts of the evaluation at the end, on streams that training never uses (0: none).
        wait: seconds to wait for a process that trains in `out` already.
    """
    require_count(0, prompts=prompts)
    given = {name: value for name, value in vars(changes).items() if value is not None}
    words = parse(",".join(set))
    twice = sorted(given.keys() & words.keys())
    require(not twice, "--set", ", ".join(twice), "what no other option gives", "Give each number once.")
    base = _of_kind(PRESETS[preset], kind).override(**given, **words)
    runs = [base.override(**parse(changes)) for changes in stack] or [base]
    try:
        train(
            runs if stack else base,
            out,
            device=device,
            resume=True if resume else "auto",
            checkpoint_seconds=checkpoint_seconds,
            progress=True,
            prompts=prompts,
            wait=wait,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_how_to_go_on(out)) from None
    results, lines = [], []
    about = read_json(out / RUNS)
    for each, folder in zip(runs, places(out, about, runs), strict=True):
        result: dict[str, Any] = {"folder": str(folder), "identity": each.identity, "steps": each.steps}
        lines.append(f"{folder}: {each.steps:,} steps")
        if prompts:
            errors = result["evaluation"] = read_json(folder / EVALUATION)["evaluation"]
            mse, krr = errors["mse"][-1], errors["krr"][-1]
            times = "" if errors["ratio"] is None else f": {errors['ratio']:.3f} times"
            lines.append(f"  MSE {mse:.4f} with all examples, exact KRR {krr:.4f}{times}")
        results.append(result)
    return Output(results, lines)


def _of_kind(run: Run, kind: str | None) -> Run:
    """The run on the other kind of task, with the same d, N and sigma."""
    task = run.task
    if kind is None or (kind == "linear") == isinstance(task, LinearRegression):
        return run
    return run.override(task=(LinearRegression if kind == "linear" else Task)(d=task.d, N=task.N, sigma=task.sigma))


def _how_to_go_on(out: Path) -> str:
    if any((out / CHECKPOINTS).glob("step-*.json")):
        return f"The last checkpoint is in {out}: the same command goes on."
    if (out / RUNS).exists():
        return f"There is no checkpoint in {out} yet: the same command starts anew."
    return f"Nothing was written to {out}: the same command starts anew."


def parse(changes: str) -> dict[str, Any]:
    """'lr=1e-3,layers=4' as {'lr': 0.001, 'layers': 4}, each value of its field's type."""
    values: dict[str, Any] = {}
    for change in filter(None, changes.split(",")):
        name, text = named(change, "--set or --stack")
        if name in values:
            raise InputError(f"--set or --stack {quoted(changes)}: {name} is given twice. Give it once.")
        values[name] = scalar(name, text)
    return values


def named(change: str, option: str) -> tuple[str, str]:
    """'lr=1e-3' as ('lr', '1e-3')."""
    name, equals, text = change.partition("=")
    if not equals or name not in SCALARS:
        names = ", ".join(SCALARS)
        raise InputError(f"{option} {quoted(change)}: must be NAME=VALUE with NAME one of {names}.")
    return name, text


def scalar(name: str, text: str) -> Any:
    """A number of a run from its text, of its field's type."""
    kind = SCALARS[name]
    if name == "kernel":
        import_named(text)
    try:
        return kind(text)
    except ValueError:
        require(False, name, quoted(text), KINDS[kind])
