"""A result: numbers with a figure, a table (CSV), a summary and the comparisons with the paper's values.

Below it the words and tables that results of several models share.
"""

from __future__ import annotations

import csv
import hashlib
import io
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from matplotlib.figure import Figure

from layerstep.errors import FileError
from layerstep.files import digest, write_aside, write_text
from layerstep.plotting import lay_out, save
from layerstep.reproduction.numbers import (
    EVALUATION_SEQUENCES,
    SEEDS,
    SOLVER_LABELS,
    TITLES,
    ModelNumbers,
    Models,
    SolverMatch,
    code_identity,
    human_name,
    read_result,
    to_json,
    write_result,
)
from layerstep.reproduction.reference import BEST_STEP_R2, LAYERS_WON, PAPER_STEPS, R2_ROUNDING, Comparison
from layerstep.reproduction.runs import RUNS

T = TypeVar("T")

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


# Words and tables that results share ----------------------------------------------------------------------------------


def model_title(model: ModelNumbers) -> str:
    """A model in a few words: its setting, its depth, and what of its attention and training is not the paper's."""
    shape = RUNS[model.name].run.model
    words = [TITLES[model.setting], f"{shape.layers} layers"]
    words += [] if shape.attention == "softmax" else [f"{shape.attention.replace('-mean', '')} attention"]
    words += [] if model.trained_steps == PAPER_STEPS else [f"{model.trained_steps:,} training steps"]
    return ", ".join(words)


def select(found: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    """What is here of `names`, in their order."""
    return {name: found[name] for name in names if name in found}


def trained(models: Models, wanted: Sequence[str] = ()) -> str:
    """For a caption: how the models of a figure were trained, and which of the `wanted` are not here."""
    groups: dict[str, list[str]] = {}
    for name, model in models.items():
        groups.setdefault(model.training, []).append(human_name(name))
    of = {how: f" ({'; '.join(names)})" if len(groups) > 1 else "" for how, names in groups.items()}
    words = " Training: " + "; ".join(how + names for how, names in of.items()) + "."
    missing = [name for name in wanted if name not in models]
    return words + (f" Not here yet: {', '.join(missing)} (see the training runs)." if missing else "")


STEPS_CAPTION = (
    "The step most similar to each layer, mean over {prompts} prompts (band: one standard deviation), within the "
    "paper's budget ({budget} steps, {cg} for conjugate gradients), and the line through layers {first} to "
    "{last} (cut at the edges). R² says how linear the steps are: 1 means that every layer takes the same number of "
    "steps. In brackets, where it is given: its 95 % range over prompts. Hollow: for more than a tenth of the prompts "
    "it is the last step of the budget, so that the mean is too small; where that is so in more than a third of the "
    "layers of a line, its R² has a †."
)


def steps_caption(models: Models) -> str:
    some = next(iter(models.values()))
    budgets = sorted({int(model.richardson.steps[-1]) for model in models.values()})
    return STEPS_CAPTION.format(
        prompts=EVALUATION_SEQUENCES,
        budget=" or ".join(f"{each:,}" for each in budgets),
        cg=int(some.solvers["cg"].steps[-1]),
        first=some.alignment.first,
        last=some.alignment.last,
    )


def table_steps(models: Models) -> Table:
    lines = [
        [name, solver, int(layer), *values]
        for name, model in models.items()
        for solver, found in model.solvers.items()
        for layer, *values in zip(model.layers[1:], found.mean, found.sd, found.at_cap, strict=True)
    ]
    return Table(["model", "solver", "layer", "mean_best_step", "sd_over_sequences", "share_at_last_step"], lines)


def summary_steps(models: Models) -> Table:
    """R² with its range over prompts, by model and solver."""

    def cell(found: SolverMatch) -> str:
        reach = "" if isnan(found.r2) else f" [{found.r2_low:.3f}, {found.r2_high:.3f}]"
        return found.r2_text + reach

    lines = [
        [human_name(name), *(cell(model.solvers[solver]) + cut_mark(model, solver) for solver in SOLVER_LABELS)]
        for name, model in models.items()
    ]
    return Table(["model", *(f"R², {label}" for label in SOLVER_LABELS.values())], lines)


def cut_mark(model: ModelNumbers, solver: str) -> str:
    """† where more than a third of the layers of a line are cut off by the budget of steps."""
    return "\N{NO-BREAK SPACE}†" if model.alignment.is_cut_off(solver) else ""


def compare_steps(model: ModelNumbers, models: Mapping[str, ModelNumbers]) -> tuple[Comparison, ...]:
    """The paper's R² and layers won beside ours, with their range over prompts and their variation over the seeds among
    `models`."""
    name, seeds = model.name, select(models, SEEDS).values()
    richardson, setting = model.richardson, TITLES[model.setting]
    found = []
    if name in BEST_STEP_R2:
        compared = Comparison(
            quantity=f"R² of best Richardson step against layer, {setting}",
            where="Figure 2b and text" if name == "sphere" else "text on the arc-cosine kernel",
            paper=BEST_STEP_R2[name],
            ours=richardson.r2,
            low=richardson.r2_low,
            high=richardson.r2_high,
            rounding=R2_ROUNDING[name],
            note=model.training,
        )
        found.append(compared.with_seeds([seed.richardson.r2 for seed in seeds]))
    if name in LAYERS_WON:
        compared = Comparison(
            quantity=f"layers of 12 where Richardson is most similar, {setting}",
            where="text on the arc-cosine kernel",
            paper=LAYERS_WON[name],
            ours=model.won,
            low=model.alignment.won_low,
            high=model.alignment.won_high,
            note=model.training,
            whole=True,
        )
        found.append(compared.with_seeds([seed.won for seed in seeds]))
    return tuple(found)
