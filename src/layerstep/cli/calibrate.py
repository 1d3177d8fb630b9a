"""layerstep calibrate: the error rates of identify, measured on models whose solver is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

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
) -> Output:
    """Measure the error rates of `layerstep identify` (about an hour of a core), or print the shipped ones.

    Args:
        prompts: prompts per model.
        jobs: processes here.
        on: slurm or ray instead, with the engine's own options: --on slurm timeout_min=120.
        work: directory where each of the 15 pieces is kept as it is done; the same command does the rest.
        out: file for the record (default: the one shipped with the package).
        keep: keep the shipped threshold and run the test seeds only.
        show: print the tables of the shipped record and run nothing.
    """
    import sys

    from layerstep.cli.sweep import engine_of
    from layerstep.errors import require_count
    from layerstep.files import require_writable, write_json
    from layerstep.measurement.calibration.error_rates import calibrate
    from layerstep.measurement.calibration.record import RECORD, read_record
    from layerstep.measurement.calibration.tables import show as show_tables

    require_count(prompts=prompts, jobs=jobs)
    if show:
        return Output(read_record(), [show_tables(read_record())])
    place = out or RECORD
    require_writable(place)
    kept = read_record() if keep else None
    engine, options = engine_of(on)
    say = lambda line: print(line, file=sys.stderr)  # noqa: E731
    told = {"work": work, "on": engine, "options": options, "progress": say}
    record = calibrate(sequences=prompts, jobs=jobs, kept=kept, **told)
    write_json(place, record)
    return Output(record, [show_tables(record), f"record: {place}"])
