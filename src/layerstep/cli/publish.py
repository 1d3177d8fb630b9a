"""layerstep publish: a finished training run, in its place among the results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from layerstep.cli.output import Output


def run(
    trained: Path,
    name: str,
    /,
    *,
    weights: Annotated[bool, Parameter(negative="--no-weights")] = True,
    out: Path | None = None,
) -> Output:
    """Write what the figures need of a finished run: errors, predictions, probes, its card and its weights.

    Args:
        trained: directory that `layerstep train` wrote.
        name: the run of the list that it is; `layerstep reproduce` names them.
        weights: keep the weights too, in float16.
        out: where it goes (default: results/models/NAME of this clone or of this directory).
    """
    from layerstep.reproduction.publish import publish_run

    place = str(publish_run(trained, name, out, weights=weights))
    return Output({"folder": place}, [place])
