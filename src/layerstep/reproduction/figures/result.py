"""A result: numbers with a figure, a table (CSV), a summary and the comparisons with the paper's values."""

from __future__ import annotations

import csv
import hashlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from layerstep.errors import FileError
from layerstep.files import digest, write_aside, write_text
from layerstep.plotting import lay_out, save
from layerstep.reproduction.numbers.store import code_identity, read_result, to_json, write_result
from layerstep.reproduction.reference import Comparison

FIGURES = ("svg", "pdf", "png")
#: Where the code that decides a figure is.
FIGURE_CODE = ("layerstep.plotting", "layerstep.reproduction")


class Table(NamedTuple):
    header: list[str]
    lines: list[list[Any]]


@dataclass(frozen=True, kw_only=True)
class Result:
    """`data` and the code of the module `code` decide the figure (`draw`) and the CSV file (`table`). `summary` is a
    short table for the page."""

    name: str
    title: str
    caption: str
    data: Any
    draw: Callable[[], Figure]
    table: Callable[[], Table]
    code: str
    summary: Table | None = None
    comparisons: tuple[Comparison, ...] = ()

    def write(self, folder: Path, progress: Callable[[str], None] = lambda title: None) -> bool:
        """Its CSV and figure (SVG, PDF, PNG) in `folder`, and last the JSON file that names their digests. False where
        all of them were there and whole."""
        data = to_json(self.data)
        identity = digest({"name": self.name, "data": data, "code": code_identity(self.code, FIGURE_CODE)})
        file, parts = folder / f"{self.name}.json", [folder / f"{self.name}.{kind}" for kind in ("csv", *FIGURES)]
        found = read_result(file, identity)
        if found is not None and found.get("files") == _digests(parts):
            return False
        progress(self.title)
        start = time.perf_counter()
        self._write(folder)
        write_result(file, identity, data, start, files=_digests(parts))
        return True

    def _write(self, folder: Path) -> None:
        header, lines = self.table()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)
        write_text(folder / f"{self.name}.csv", text.getvalue())
        figure = self.draw()
        lay_out(figure)
        for kind in FIGURES:
            with write_aside(folder / f"{self.name}.{kind}") as aside:
                save(figure, aside, kind, sheet=kind != "svg")  # the page is its sheet

    def svg(self, folder: Path) -> str:
        """The text of its figure."""
        file = folder / f"{self.name}.svg"
        try:
            text = file.read_text(encoding="utf-8")
            return text[text.index("<svg") :]
        except (OSError, ValueError) as error:
            raise FileError(f"{file} is not an SVG figure ({error}). Delete it and call again.") from error


def _digests(parts: list[Path]) -> dict[str, str | None]:
    """By file name; None where there is no file."""
    return {part.name: hashlib.sha256(part.read_bytes()).hexdigest()[:12] if part.is_file() else None for part in parts}
