"""layerstep bench: the measured claims."""

from __future__ import annotations

import runpy
from pathlib import Path

from layerstep.errors import FileError, require_choice

BENCHMARKS = ("solvers", "construction", "training", "measurement")


def run(which: str = "all", json: bool = False) -> None:
    """Run the benchmarks of the clone and print their tables.

    Args:
        which: one benchmark (solvers, construction, training, measurement), or all of them.
        json: print one JSON line a benchmark instead of tables.
    """
    require_choice("--which", which, ["all", *BENCHMARKS])
    folder = Path(__file__).parents[3] / "benchmarks"
    if not folder.is_dir():
        raise FileError(f"{folder} is not there: benchmarks are part of the repository. Run this in a clone.")
    for name in BENCHMARKS if which == "all" else [which]:
        runpy.run_path(str(folder / f"{name}.py"))["main"](json=json)
