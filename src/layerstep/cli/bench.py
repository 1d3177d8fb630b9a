"""layerstep bench: the measured claims."""

from __future__ import annotations

import runpy
from pathlib import Path

from layerstep.errors import FileError


def run(which: str = "all", json: bool = False) -> None:
    """Run the benchmarks of the clone and print their tables.

    Args:
        which: one benchmark (solvers, construction, training, measurement), or all of them.
        json: print one JSON line a benchmark instead of tables.
    """
    from layerstep.errors import require_choice

    folder = Path(__file__).parents[3] / "benchmarks"
    files = {file.stem: file for file in sorted(folder.glob("*.py")) if file.stem != "literal"}
    if not files:
        raise FileError(f"{folder} is not there: benchmarks are part of the repository. Run this in a clone.")
    require_choice("--which", which, ["all", *files])
    for name, file in files.items():
        if which in ("all", name):
            runpy.run_path(str(file))["main"](json=json)
