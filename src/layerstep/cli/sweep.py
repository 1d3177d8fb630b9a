"""layerstep sweep: train runs of the paper on one GPU, and publish them."""

from __future__ import annotations

from pathlib import Path

from layerstep.cli.output import Output


def run(*names: str, minutes: float | None = None, out: Path = Path("runs"), results: Path | None = None) -> Output:
    """Train runs of the paper and publish each when it is done. The same command goes on where it stopped.

    NAME is trained as listed, NAME:PRESET on the schedule of that preset (paper or fast).

    Args:
        names: runs of the list; `layerstep reproduce` names them.
        minutes: stop after this time, to go on in another call.
        out: where training keeps its files.
        results: where results go (default: results/models of this clone or of this directory).
    """
    import sys

    from layerstep.reproduction.sweep import train_and_publish

    say = lambda line: print(line, file=sys.stderr)  # noqa: E731
    folders = train_and_publish(names, minutes=minutes, home=out, results=results, say=say)
    return Output({"folders": [str(folder) for folder in folders]}, [str(folder) for folder in folders])
