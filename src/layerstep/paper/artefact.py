"""An artefact of the paper: numbers computed once into a result file, and a figure drawn from that file only."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from matplotlib.figure import Figure

from layerstep.errors import FileError
from layerstep.files import digest, provenance, read_json, source_digest, write_aside, write_json, write_text
from layerstep.paper.quoted import Row

Data = dict[str, Any]
FIGURES = ("svg", "pdf", "png")


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
    rooms: tuple[str, ...] = ("tasks", "solvers", "paper")

    @property
    def identity(self) -> str:
        return digest({"name": self.name, "config": self.config, "source": source_digest(self.rooms)})

    def load(self, folder: FilePath) -> Data | None:
        """The result in `folder` if it is there, whole and of this identity."""
        if not all((folder / f"{self.name}.{kind}").is_file() for kind in ("csv", *FIGURES)):
            return None
        try:
            result = read_json(folder / f"{self.name}.json")
        except FileError:
            return None
        return result if isinstance(result, dict) and result.get("identity") == self.identity else None

    def make(self, folder: FilePath) -> Data:
        """Compute, and keep numbers, CSV and figure (SVG, PDF, PNG) in `folder`."""
        start = time.perf_counter()
        data = self.compute(self.config)
        result = {
            "name": self.name,
            "identity": self.identity,
            "config": self.config,
            "provenance": provenance(),
            "data": data,
        }
        header, lines = self.table(data)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)
        write_text(folder / f"{self.name}.csv", text.getvalue())
        figure = self.draw(data)
        for kind in FIGURES:
            with write_aside(folder / f"{self.name}.{kind}") as aside:
                figure.savefig(aside, format=kind, dpi=160)
        result["seconds"] = time.perf_counter() - start
        write_json(folder / f"{self.name}.json", result)  # last: its presence says that the rest is there
        return result
