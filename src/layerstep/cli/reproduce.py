"""layerstep reproduce: the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from layerstep.cli.output import Output


def run(
    *,
    out: Path = Path("report"),
    models: Path | None = None,
    probe: bool = False,
    recompute: bool = False,
    measure: Literal["kept", "missing", "outdated"] = "kept",
    on: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
) -> Output:
    """Build the report: the paper's figures and numbers, and ours beside them.

    Args:
        out: directory for index.html and the figures and data beside it.
        models: directory of the trained models (default: results/models of this clone or of this directory).
        probe: fit probes of models that have weights and no predictions, even without a GPU (slow).
        recompute: compute every number here instead of taking those shipped beside the trained models (minutes).
        measure: missing: write into models with weights where results/interventions has nothing of them, and measure
            those of results/linear, about a minute each; outdated: and where other code measured it.
        on: slurm or ray for the verdicts, one unit per setting, with the engine's own options; `out` must then be on a
            disk that all machines share.
    """
    from layerstep.cli.sweep import engine_of
    from layerstep.progress import showing
    from layerstep.reproduction.report import reproduce

    with showing(None, "looking at what exists") as show:
        say = lambda name: show(words=f"making: {name}")  # noqa: E731
        engine, options = engine_of(on)
        told = {"probe": probe, "recompute": recompute, "measure": measure}
        report = reproduce(out, models=models, on=engine, options=options, progress=say, **told)
    return Output(report.to_dict(), report.lines())
