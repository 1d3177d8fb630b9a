"""`layerstep train`: a preset, scalars changed by name, and a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from layerstep.cli import KINDS
from layerstep.errors import InputError, require_count


def run(
    preset: Annotated[Literal["paper", "fast", "tiny"], tyro.conf.Positional] = "fast",
    *,
    out: Path,
    set: tuple[str, ...] = (),
    stack: tuple[str, ...] = (),
    resume: bool = False,
    device: str | None = None,
    checkpoint_seconds: float = 60.0,
    prompts: int = 2048,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Train a GPT-style model on Gaussian-process prompts, and say how far it is from exact kernel ridge regression.

    Args:
        preset: paper (500,000 steps), fast (the paper's quality sooner), tiny (a minute on a CPU).
        out: the folder for weights, log and checkpoints.
        set: scalars of the run, its task and its model: --set steps=1000 lr=5e-4 inputs=uniform layers=4.
        stack: models trained side by side, each by its own changes: --stack seed=1 seed=2 inputs=uniform,lr=1e-4.
        resume: go on from the last checkpoint in `out`.
        device: cpu, cuda, cuda:1 or mps; the best there is when not given.
        checkpoint_seconds: seconds between checkpoints; a kill loses at most this.
        prompts: prompts of the evaluation at the end, on streams that training never uses (0: none).
        json_: print the result as JSON.
    """
    from layerstep.training import PRESETS, evaluate, train

    require_count(0, prompts=prompts)
    base = PRESETS[preset].override(**parse(",".join(set)))
    runs = [base.override(**parse(changes)) for changes in stack] or [base]
    try:
        models: Any = train(
            runs if stack else base,
            out,
            device=device,
            resume=resume,
            checkpoint_seconds=checkpoint_seconds,
            progress=True,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_how_to_go_on(out)) from None
    results = []
    for each, model in zip(runs, models if stack else [models], strict=True):
        folder = out / each.name if stack else out
        result: dict[str, Any] = {"folder": str(folder), "identity": each.identity, "steps": each.steps}
        if prompts:
            # Streams of evaluation and training never meet, whatever the seeds.
            errors = evaluate(model, each.task, B=prompts, seed=each.seed)
            result["evaluation"] = errors.to_dict()
        results.append(result)
    if json_:
        json.dump(results, sys.stdout, indent=1)
        print()
        return
    for result in results:
        print(f"{result['folder']}: {result['steps']:,} steps")
        if errors := result.get("evaluation"):
            mse, krr = errors["mse"][-1], errors["krr"][-1]
            print(f"  MSE {mse:.4f} with all examples, exact KRR {krr:.4f}: {errors['ratio']:.3f} times")


def _how_to_go_on(out: Path) -> str:
    from layerstep.training.loop import CHECKPOINTS, RUNS

    if any((out / CHECKPOINTS).glob("step-*.json")):
        return f"The last checkpoint is in {out}: the same command with --resume goes on."
    if (out / RUNS).exists():
        return f"There is no checkpoint in {out} yet: the same command with --resume starts anew."
    return f"Nothing was written to {out}: the same command starts anew."


def parse(changes: str) -> dict[str, Any]:
    """'lr=1e-3,layers=4' as {'lr': 0.001, 'layers': 4}, each value of its field's type."""
    from layerstep.training.config import scalars

    kinds = scalars()
    values: dict[str, Any] = {}
    for change in filter(None, changes.split(",")):
        name, equals, text = change.partition("=")
        if not equals or name not in kinds:
            raise InputError(f"--set or --stack {change!r}: must be NAME=VALUE with NAME one of {', '.join(kinds)}.")
        if name in values:
            raise InputError(f"--set or --stack {changes!r}: {name} is given twice. Give it once.")
        try:
            values[name] = kinds[name](text.replace("_", "") if kinds[name] is int else text)
        except ValueError as error:
            raise InputError(f"{name} = {text!r}: must be {KINDS[kinds[name].__name__]}.") from error
    return values
