"""layerstep bench: the measured claims."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from layerstep.errors import FileError, require_choice

BENCHMARKS = ("solvers", "construction", "training", "measurement", "sweep", "waiting")


@dataclass(frozen=True)
class Benchmarks:
    """Benchmarks print as they run; with --json one line each."""

    files: Sequence[Path]

    def show(self, as_json: bool) -> None:
        for file in self.files:
            runpy.run_path(str(file))["main"](json=as_json)


def run(*, which: str = "all") -> Benchmarks:
    """Run the benchmarks of the clone and print their tables.

    Args:
        which: one benchmark (solvers, construction, training, measurement, sweep, waiting), or all of them.
    """
    require_choice("--which", which, ["all", *BENCHMARKS])
    folder = Path(__file__).parents[3] / "benchmarks"
    if not folder.is_dir():
        raise FileError(f"{folder} is not there: benchmarks are part of the repository. Run this in a clone.")
    return Benchmarks([folder / f"{name}.py" for name in (BENCHMARKS if which == "all" else [which])])
