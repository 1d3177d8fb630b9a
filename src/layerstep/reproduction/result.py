"""An artefact of the paper: numbers computed once into a result file, and a figure drawn from that file only."""

from __future__ import annotations

import contextlib
import csv
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from layerstep.errors import FileError
from layerstep.files import digest, provenance, read_json, source_digest, write_aside, write_json, write_text
from layerstep.reproduction.reference import Row

Data = dict[str, Any]
FIGURES = ("svg", "pdf", "png")


def kept(
    file: Path, of: Data, rooms: tuple[str, ...], compute: Callable[[], Data], *, whole: bool = True
) -> tuple[Data, bool]:
    """The result in `file` if it was made from `of` by the code of `rooms`, else computed and kept there; and whether
    it was found. whole: what belongs beside it is there."""
    if whole and (found := result_in(file, of, rooms)) is not None:
        return found, True
    start = time.perf_counter()
    data = compute()
    facts = {"provenance": provenance(), "seconds": time.perf_counter() - start}
    write_json(file, {"identity": _identity(of, rooms), "config": of, **facts, "data": data})
    return read_json(file), False  # as the next call will read it


def result_in(file: Path, of: Data, rooms: tuple[str, ...]) -> Data | None:
    """The result in `file`, None where it is absent, broken, or made from something else."""
    with contextlib.suppress(FileError):
        found = read_json(file)
        if isinstance(found, dict) and found.get("identity") == _identity(of, rooms):
            return found
    return None


def _identity(of: Data, rooms: tuple[str, ...]) -> str:
    return digest({**of, "source": source_digest(rooms)})


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """`compute` makes the numbers, `draw` the figure, `rows` the comparisons, `table` the CSV, `summary` a short table.

    `config` and the code of `rooms` decide the identity of a result: a file made from others is made anew.
    """

    name: str
    title: str
    caption: str
    config: Data
    compute: Callable[[Data], Data]
    draw: Callable[[Data], Figure]
    table: Callable[[Data], tuple[list[str], list[list[Any]]]]
    rows: Callable[[Data], list[Row]] = lambda data: []
    summary: Callable[[Data], tuple[list[str], list[list[str]]]] | None = None
    rooms: tuple[str, ...] = ("tasks", "solvers", "reproduction")

    def result(self, folder: Path, progress: Callable[[str], None] = lambda title: None) -> tuple[Data, bool]:
        """Its result in `folder`, with CSV and figure (SVG, PDF, PNG) beside it, made if need be; and whether it was
        found."""
        of = {"name": self.name, **self.config}
        whole = all((folder / f"{self.name}.{kind}").is_file() for kind in ("csv", *FIGURES))
        return kept(folder / f"{self.name}.json", of, self.rooms, lambda: self._make(folder, progress), whole=whole)

    def _make(self, folder: Path, progress: Callable[[str], None]) -> Data:
        progress(self.title)
        data = self.compute(self.config)
        header, lines = self.table(data)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)
        write_text(folder / f"{self.name}.csv", text.getvalue())
        figure = self.draw(data)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once for all kinds
        for kind in FIGURES:
            with write_aside(folder / f"{self.name}.{kind}") as aside:
                figure.savefig(aside, format=kind, dpi=160)
        return data
