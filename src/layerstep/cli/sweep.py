"""layerstep sweep: many runs, here or on an engine. The same command goes on where it stopped."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from layerstep.cli.output import Output
from layerstep.errors import InputError, quoted, require

if TYPE_CHECKING:
    from layerstep.training import Run

MOST_RUNS = 100_000


def run(
    *names: str,
    out: Path = Path("runs"),
    grid: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    set: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    on: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    status: bool = False,
    index: int | None = None,
    stack: int | None = None,
    threads: int | None = None,
    device: str | None = None,
    minutes: float | None = None,
    leave: bool = False,
    checkpoint_seconds: float = 300.0,
    prompts: int = 2048,
    publish: bool = False,
    results: Path | None = None,
) -> Output:
    """Train many runs, each to a directory of its own, here or on a cluster. The same command goes on.

    Args:
        names: a preset (paper, fast, tiny, linear, linear-tiny) that --grid varies; or runs of the paper's list, which
            `layerstep reproduce` names, as they are or as NAME:PRESET on the schedule of that preset (paper or fast).
        out: the directory of all runs, on a disk that all machines share.
        grid: --grid seed=0:5 width=64,128 kernel=gaussian,matern32: all combinations; 0:5 are the five seeds 0 to 4.
        set: changes that all runs have: --set steps=1000 inputs=uniform.
        on: slurm or ray, with the engine's own options: --on slurm gpus=1 timeout_min=240 slurm_partition=gpu.
        status: say how far the runs are, and train nothing.
        index: train the unit of this number alone (from 0), for array jobs of your own.
        stack: runs trained together as one unit of work (default: up to four where that leaves no GPU idle).
        threads: threads of a unit (default: one on an engine; on a CPU their number decides the last bits).
        device: cpu, cuda, cuda:1 or mps; the best there is when not given.
        minutes: stop after this time, with checkpoints; not with an engine, which has its own limits.
        leave: hand the work to the engine and return; the same command without it collects.
        checkpoint_seconds: seconds between checkpoints; a kill loses at most this.
        prompts: prompts of the evaluation at the end (0: none).
        publish: put each run of the paper's list in its place among the results when it is trained.
        results: where --publish puts them (default: results/models of this clone or of this directory).
    """
    from layerstep.training import sweep

    if status:
        from layerstep.cli.runs import listed

        return listed(out)
    require(len(names) > 0, "names", "none", "a preset, or runs of the paper's list", "Such as layerstep sweep fast.")
    runs = runs_of(names, grid, set)
    engine, options = engine_of(on)
    options |= {"stack": stack, "threads": threads, "device": device, "index": index, "minutes": minutes}
    options |= {"checkpoint_seconds": checkpoint_seconds, "prompts": prompts, "wait": not leave, "progress": True}
    try:
        if publish:
            from layerstep.reproduction.sweep import train_and_publish

            require(isinstance(runs, dict), "--publish", "with a preset or a grid", "for runs of the paper's list")
            found = train_and_publish(names, out, on=engine, results=results, **options)
        else:
            require(results is None, "--results", results, "given with --publish")
            found = sweep(runs, out, engine, **options)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"The same command goes on; how far it is: layerstep runs {out}") from None
    data = [
        {"folder": str(each.folder), "identity": each.run.identity, "state": each.state, "result": each.result}
        | {"evaluation": each.evaluation}
        for each in found
    ]
    counts = Counter(each.state.partition(":")[0] for each in found)
    words = ", ".join(f"{number:,} {state}" for state, number in counts.items())
    lines = [f"{each.folder}{'' if each.result is None else f' -> {each.result}'}" for each in found]
    lines = [*(lines if publish else []), f"{len(found):,} run{'s' * (len(found) > 1)}: {words}"]
    failed = [f"{each.folder.name}: {each.state}" for each in found if each.state.startswith("failed")]
    told = f"{failed[0]} ({len(failed):,} failed; all: layerstep runs {out})" if failed else ""
    return Output(data, [*lines, f"what they are like: layerstep runs {out}"], failed=told)


def runs_of(names: Sequence[str], grid: Sequence[str], changes: Sequence[str]) -> list[Run] | dict[str, Run]:
    """All combinations of a preset's changes, or runs of the paper's list by name."""
    from layerstep.cli.train import parse
    from layerstep.training import PRESETS

    common = parse(",".join(changes))
    if len(names) == 1 and names[0] in PRESETS:
        bases = [PRESETS[names[0]].override(**common)]
    else:
        from layerstep.reproduction.sweep import listed_run

        twice = sorted({name for name in names if names.count(name) > 1})
        require(not twice, "names", ", ".join(twice), "given once")
        if len(names) > 1 and (presets := [name for name in names if name in PRESETS]):
            raise InputError(f"{presets[0]}: a preset is swept alone. Give one preset, or names of the paper's list.")
        if ":" not in names[0] and names[0] not in _listed():
            require(False, "name", quoted(names[0]), f"one of {', '.join([*PRESETS, *_listed()])}")
        by_name = {name: listed_run(name).override(**common) for name in names}
        if not grid and not common:
            return by_name
        bases = list(by_name.values())
    fields = [axis(words) for words in grid]
    chosen = [name for name, _ in fields]
    twice = sorted({name for name in chosen if chosen.count(name) > 1 or name in common})
    require(not twice, "--grid", ", ".join(twice), "what is given once, here or in --set")
    number = len(bases)
    for _, values in fields:
        number *= len(values)
    require(number <= MOST_RUNS, "--grid", f"{number:,} runs", f"at most {MOST_RUNS:,}")
    return [
        base.override(**dict(zip(chosen, values, strict=True)))
        for base in bases
        for values in product(*(values for _, values in fields))
    ]


def _listed() -> tuple[str, ...]:
    from layerstep.reproduction.runs import RUNS

    return tuple(RUNS)


def axis(words: str) -> tuple[str, list[Any]]:
    """'seed=0:5' or 'width=64,128' as a name and its values."""
    from layerstep.cli.train import SCALARS, named, scalar

    name, text = named(words, "--grid")
    values: list[Any] = []
    for part in text.split(","):
        if SCALARS[name] is int and ":" in part:
            bounds = [scalar(name, bound) for bound in part.split(":")]
            wrong = len(bounds) > 3 or (len(bounds) == 3 and bounds[2] < 1) or bounds[0] >= bounds[1]
            require(not wrong, "--grid", quoted(words), f"as {name}=0:5, five values, or {name}=0:10:2")
            steps = range(*bounds)
            require(len(steps) <= MOST_RUNS, "--grid", quoted(words), f"at most {MOST_RUNS:,} values")
            values += steps
        elif SCALARS[name] is str and values and part[:1].isdecimal():  # polynomial:3,0.5 is one kernel
            values[-1] += f",{part}"
        else:
            values.append(part if SCALARS[name] is str else scalar(name, part))
    values = [scalar(name, value) if SCALARS[name] is str else value for value in values]
    require(len({repr(value) for value in values}) == len(values), "--grid", quoted(words), "each value once")
    return name, values


def engine_of(words: Sequence[str]) -> tuple[str | None, dict[str, Any]]:
    """'slurm gpus=1 slurm_partition=gpu' as the engine and its options."""
    if not words:
        return None, {}
    options: dict[str, Any] = {}
    for word in words[1:]:
        name, equals, text = word.partition("=")
        require(bool(equals) and name.isidentifier(), "--on", quoted(word), "NAME=VALUE after the engine")
        require(name not in options, "--on", quoted(word), "given once")
        options[name] = text
        with contextlib.suppress(ValueError):
            options[name] = json.loads(text)
    mine = sorted(options.keys() & {"stack", "device", "index", "minutes", "then", "wait", "progress", "threads"})
    require(not mine, "--on", ", ".join(mine), "what the engine has an option for", "Give it as an option of its own.")
    return words[0], options
