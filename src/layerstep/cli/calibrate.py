"""layerstep calibrate: the error rates of identify, measured on models whose solver is known."""

from __future__ import annotations

from pathlib import Path

from layerstep.cli.output import Output


def run(
    *, prompts: int = 256, jobs: int = 1, out: Path | None = None, keep: bool = False, show: bool = False
) -> Output:
    """Measure the error rates of `layerstep identify` (about an hour of a core), or print the shipped ones.

    Args:
        prompts: prompts per model.
        jobs: processes.
        out: file for the record (default: the one shipped with the package).
        keep: keep the shipped threshold and run the test seeds only.
        show: print the tables of the shipped record and run nothing.
    """
    import sys

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
    record = calibrate(sequences=prompts, jobs=jobs, kept=kept, progress=lambda line: print(line, file=sys.stderr))
    write_json(place, record)
    return Output(record, [show_tables(record), f"record: {place}"])
