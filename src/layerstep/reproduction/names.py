"""Names of runs for people."""

from __future__ import annotations

from layerstep.reproduction.reference import PAPER_STEPS
from layerstep.reproduction.runs import RUNS
from layerstep.reproduction.settings import TITLES
from layerstep.training import PRESETS


def human_name(name: str) -> str:
    """A run by what it is; other names as they are."""
    if name not in RUNS:
        return name
    run, default = RUNS[name].run, PRESETS[RUNS[name].preset].model
    shape = run.model
    words = [TITLES[RUNS[name].setting]]
    words += [f"{shape.layers} layers"] if shape.layers != default.layers else []
    words += [f"width {shape.width}"] if shape.width != default.width else []
    words += [f"{shape.heads} head{'s' * (shape.heads > 1)}"] if shape.heads != default.heads else []
    words += {"linear": ["linear attention"], "linear-mean": ["averaged linear attention"]}.get(shape.attention, [])
    words += [f"{run.steps:,} steps"] if run.steps < PAPER_STEPS else []
    words += [f"seed {run.seed}"] if run.seed != PRESETS[RUNS[name].preset].seed else []
    return ", ".join(words)
