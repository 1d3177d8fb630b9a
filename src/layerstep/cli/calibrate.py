"""layerstep calibrate: the error rates of identify, measured on models whose solver is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from layerstep.cli.options import Flat, TaskOptions
from layerstep.cli.output import Output


def run(
    *,
    prompts: int = 256,
    jobs: int = 1,
    on: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    work: Path = Path("calibration"),
    out: Path | None = None,
    keep: bool = False,
    show: bool = False,
    interventions: bool = False,
    seeds: tuple[int, ...] | None = None,
    controls: tuple[Path, ...] = (),
    task: Flat = TaskOptions(),  # noqa: B008
) -> Output:
    """Measure the error rates of `layerstep identify` (about an hour of a core), or print the shipped ones.

    --task linear measures those of linear regression (a quarter of an hour); with --d, --N, --sigma, --covariance or
    --mean those of the shipped limits on a task of your own (a few minutes).
    --interventions measures those of writing into the layers, on networks whose layers are known (half an hour).

    Args:
        prompts: prompts per model.
        jobs: processes here.
        on: slurm or ray instead, with the engine's own options: --on slurm timeout_min=120.
        work: directory where each piece is kept as it is done (15, or 18 of linear tasks); the same command does the
            rest.
        out: file for the record (default: the one shipped with the package; for a task of your own none).
        keep: keep the shipped threshold and run the test seeds only.
        show: print the tables of the shipped record and run nothing.
        interventions: measure the error rates of interventions instead.
        seeds: of the planted and untrained networks that interventions are measured on.
        controls: directories of networks trained to run a solver or not to, as results/controls, for interventions.
        task: gp, the paper's, or linear, and what a linear task is like.
    """
    import sys

    from layerstep.cli.sweep import engine_of
    from layerstep.errors import InputError, require_count
    from layerstep.files import require_writable, write_json
    from layerstep.measurement.calibration.error_rates import INPUTS, calibrate
    from layerstep.measurement.calibration.linear_models import SETTINGS
    from layerstep.measurement.calibration.record import RECORDS, read_record
    from layerstep.measurement.calibration.tables import show as show_tables

    require_count(prompts=prompts, jobs=jobs)
    if interventions:
        if keep or any(getattr(task, f.name) is not None for f in dataclasses.fields(task)):
            name = "keep" if keep else "task"
            raise InputError(
                f"--{name}: the networks that interventions are measured on have tasks and limits of their own."
            )
        return _interventions(jobs, on, work, out, show, seeds, controls)
    for name, given in {"seeds": seeds, "controls": controls}.items():
        if given:
            raise InputError(f"--{name}: is about interventions. Say --interventions, or leave it out.")
    linear = task.kind == "linear"
    domain = "linear" if linear else "kernel"
    given = {f.name for f in dataclasses.fields(task) if getattr(task, f.name) is not None} - {"kind"}
    if given and (not linear or given & {"prior", "pool"}):
        name = sorted(given if not linear else given & {"prior", "pool"})[0]
        raise InputError(
            f"--{name}: the suite has no planted models of such tasks. It has those of the paper's task, and of linear "
            "regression with Gaussian weights: --task linear, then --d, --N, --sigma, --covariance or --mean."
        )
    if show:
        return Output(read_record(domain), [show_tables(read_record(domain))])
    own = bool(given)
    place = out if own else out or RECORDS[domain]
    if place is not None:
        require_writable(place)
    engine, options = engine_of(on)
    say = lambda line: print(line, file=sys.stderr)  # noqa: E731
    told = {"work": work, "on": engine, "options": options, "progress": say}
    asked = [task.task()] if own else SETTINGS if linear else INPUTS
    kept = read_record(domain) if keep or own else None
    record = calibrate(asked, sequences=prompts, jobs=jobs, kept=kept, **told)
    if place is not None:
        write_json(place, record)
    return Output(record, [show_tables(record), *([f"record: {place}"] if place else [])])


def _interventions(
    jobs: int,
    on: tuple[str, ...],
    work: Path,
    out: Path | None,
    show: bool,
    seeds: tuple[int, ...] | None,
    controls: tuple[Path, ...],
) -> Output:
    import sys

    from layerstep.cli.sweep import engine_of
    from layerstep.errors import require_seed
    from layerstep.files import require_writable, write_json
    from layerstep.measurement.calibration.causal_error_rates import TEST_SEEDS
    from layerstep.measurement.calibration.causal_record import calibrate
    from layerstep.measurement.calibration.causal_record import show as show_tables
    from layerstep.measurement.calibration.record import CAUSAL_RECORD, read_causal_record

    if show:
        return Output(read_causal_record(), [show_tables(read_causal_record())])
    for seed in seeds or ():
        require_seed(seeds=seed)
    place = out or CAUSAL_RECORD
    require_writable(place)
    engine, options = engine_of(on)
    told = {"jobs": jobs, "work": work, "on": engine, "options": options}
    record = calibrate(seeds or TEST_SEEDS, controls, progress=lambda line: print(line, file=sys.stderr), **told)
    write_json(place, record)
    return Output(record, [show_tables(record), f"record: {place}"])
