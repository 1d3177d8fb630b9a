"""The list of runs: what each directory of results/models holds, and what its training costs on one H200."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from layerstep.errors import FileError, as_float
from layerstep.files import read_json
from layerstep.folders.layout import CONFIG, EVALUATION
from layerstep.reproduction.runs import RUNS, PaperRun, flat, models_folder, preset_of
from layerstep.training import Model, Run
from layerstep.training.directory import Trained

State = Literal["missing", "as listed", "other schedule", "interrupted", "unusable"]


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """What a run's directory holds, in words. `steps`: how long the model there was trained."""

    state: State
    words: str
    steps: int | None = None

    @property
    def usable(self) -> bool:
        """Whether figures may be made from it."""
        return self.state in ("as listed", "other schedule")


def run_status(run: PaperRun) -> RunStatus:
    """Which run the directory says it holds, and whether that is this one."""
    if not (run.folder / CONFIG).exists():
        return _without_model(run)
    try:
        there = Trained.read(run.folder)
    except FileError as error:
        return RunStatus(state="unusable", words=str(error))
    return _compare(run, there.run, there.step)


def _compare(run: PaperRun, found: Run, step: int) -> RunStatus:
    listed, there = flat(run.run), flat(found)
    # What names the run: its task, its model and its seed. The rest is the schedule; the paper states no precision.
    names = {*run.run.task.to_dict(), *run.run.model.to_dict(), "seed"}
    differs = {name for name in listed if listed[name] != there[name]} - {"precision"}
    if wrong := sorted(differs & names):
        words = ", ".join(f"{name} = {there[name]} (listed: {listed[name]})" for name in wrong)
        return RunStatus(
            state="unusable",
            words=f"another run: {run.folder / CONFIG} says {words}. Move it to its own directory.",
        )
    if step < found.steps:
        words = f"stopped after {step:,} of {found.steps:,} steps"
        return RunStatus(state="other schedule", words=words, steps=step)
    if differs:
        kind = "short" if found.steps < run.run.steps else "another"
        rest = [] if preset_of(found) else sorted(differs - {"steps", "lr"})
        words = ", ".join([_in_words(kind, found), *(f"{name} = {there[name]:g}" for name in rest)])
        return RunStatus(state="other schedule", words=words, steps=found.steps)
    as_in_paper = run.preset == "paper"
    words = f"{found.steps:,} steps, as in the paper" if as_in_paper else _in_words("short", found)
    return RunStatus(state="as listed", words=words, steps=found.steps)


def _in_words(kind: str, run: Run) -> str:
    """A schedule that is not the paper's: its length, its rate, and its preset where it has one."""
    preset = preset_of(run)
    return f"{kind} schedule: {run.steps:,} steps, rate {run.lr:g}" + (f", preset {preset}" if preset else "")


def _without_model(run: PaperRun) -> RunStatus:
    try:
        there = [path.name for path in run.folder.iterdir()] if run.folder.is_dir() else []
    except OSError as error:
        return RunStatus(state="unusable", words=f"cannot read {run.folder}: {error.strerror}.")
    if "checkpoints" in there or "runs.json" in there:
        notes = [path.stem.removeprefix("step-") for path in run.folder.glob("checkpoints/step-*.json")]
        steps = sorted(int(note) for note in notes if note.isdecimal())
        done = f"at step {steps[-1]:,}" if steps else "before the first checkpoint"
        words = f"interrupted {done}: {run.training} --resume"
        return RunStatus(state="interrupted", words=words, steps=steps[-1] if steps else None)
    if there:
        words = f"{run.folder / CONFIG} is not there: of which run are these files?"
        return RunStatus(state="unusable", words=words)
    return RunStatus(state="missing", words="not trained here")


@dataclass(frozen=True, kw_only=True)
class Card:
    """What evaluation.json says of a model: NaN and None where it does not say it.

    ratio: error at n = N over that of exact KRR, noiseless targets. seconds: of the training of `stack` runs together,
    `shared` with others of other shapes.
    """

    ratio: float
    seconds: float
    stack: int
    shared: bool

    @staticmethod
    def read(folder: Path) -> Card:
        found = read_json(folder / EVALUATION)
        facts = found if isinstance(found, dict) else {}
        evaluation, stack = facts.get("evaluation"), facts.get("stack")
        return Card(
            ratio=_positive(evaluation.get("ratio") if isinstance(evaluation, dict) else None),
            seconds=_positive(facts.get("seconds")),
            stack=len(stack) if isinstance(stack, list) else 0,
            shared=bool(facts.get("shared")),
        )


def _positive(value: Any) -> float:
    return number if 0 < (number := as_float(value)) < inf else nan


def measured_minutes(run: PaperRun) -> float | None:
    """GPU minutes the model in the directory took, its share where several of its shape were trained stacked.

    None where there is no model, or where other trainings used the GPU at the same time.
    """
    if not (run.folder / EVALUATION).exists():
        return None
    card = Card.read(run.folder)
    if not (card.seconds > 0 and card.stack):
        raise FileError(f"{run.folder / EVALUATION} does not say how long training took. Publish the run again.")
    return None if card.shared else card.seconds / card.stack / 60


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A run as the page and the terminal show it; `command` trains it, or goes on where it was interrupted."""

    name: str
    shows: str
    ours: bool
    identity: str
    state: State
    status: str
    trained_steps: int | None
    command: str
    steps: int
    gpu_minutes: float
    measured_minutes: float | None


def listing(broken: Mapping[str, str] = MappingProxyType({})) -> list[Listed]:
    """Every run: what it shows, what its directory holds, the command, and the GPU minutes it takes or took.

    broken: reasons, by name, why the files of a run cannot be used.
    """
    rows = []
    for run in RUNS.values():
        status = run_status(run)
        if status.usable and run.name in broken:
            status = RunStatus(state="unusable", words=broken[run.name])
        minutes, remark = None, ""
        try:
            minutes = measured_minutes(run) if status.usable else None
        except FileError as error:
            remark = f"; {error}"
        rows.append(
            Listed(
                name=run.name,
                shows=run.shows,
                ours=run.ours,
                identity=run.run.identity,
                state=status.state,
                status=status.words + remark,
                trained_steps=status.steps if status.usable else None,
                command=f"{run.training} --resume" if status.state == "interrupted" else run.command,
                steps=run.run.steps,
                gpu_minutes=gpu_minutes(run),
                measured_minutes=minutes,
            )
        )
    return rows


def unknown_folders() -> dict[str, str]:
    """Directories beside the runs' that no run of the list claims."""
    home = models_folder()
    there = sorted(path.name for path in home.iterdir() if path.is_dir()) if home.is_dir() else []
    unknown = [name for name in there if name not in RUNS and not name.startswith(".")]
    words = f"is not a run of the list and is left out. The runs: {', '.join(RUNS)}."
    return {name: f"{home / name} {words}" for name in unknown}


# What a run costs, from measured steps (LOG.md, "A step") -------------------------------------------------------------

#: Milliseconds of a step: the default model alone, and each of four stacked.
ALONE, OF_FOUR = 2.11, 1.392
#: alone = launches + arithmetic, four = launches + 4 arithmetic.
ARITHMETIC = (4 * OF_FOUR - ALONE) / 3
LAUNCHES = ALONE - ARITHMETIC
#: Milliseconds of a step of six models round-robin (LOG.md, "Models of other shapes at the same time"), and who could
#: be the six: there 8 heads stood for 4.
ROUND_ROBIN = 6.5
INTERLEAVED = ("heads-1", "heads-2", "heads-4", "width-32", "width-64", "width-128")


def step_milliseconds(run: PaperRun) -> float:
    """A step of this run alone: launches grow with the layers, arithmetic with layers and width."""
    model, tokens = run.run.model, 2 * (run.run.task.N + 1)
    default = Model()
    depth = model.layers / default.layers
    work = _products(model.width, tokens) / _products(default.width, tokens)
    return depth * (LAUNCHES + ARITHMETIC * work)


def _products(width: int, tokens: int) -> float:
    """Arithmetic per layer and token: matrix products and attention."""
    return 24 * width**2 + 4 * tokens * width


def stacked_milliseconds(runs: Sequence[PaperRun]) -> float:
    """A step of models of one shape that are stacked: they share their launches."""
    shared = LAUNCHES * runs[0].run.model.layers / Model().layers
    return sum(map(step_milliseconds, runs)) - (len(runs) - 1) * shared


def gpu_minutes(run: PaperRun) -> float:
    """Minutes of a run that has the GPU to itself, at the length of the list."""
    return step_milliseconds(run) * run.run.steps / 60_000


def total_minutes(*, ours: bool, shared: bool = False) -> float:
    """Minutes of the paper's own runs, or of the ones we add, one after another.

    shared: models of one shape are stacked and share their launches, small ones of other shapes go round-robin.
    """
    if not shared:
        return sum(gpu_minutes(run) for run in RUNS.values() if run.ours == ours)
    groups: dict[tuple[Model, int], list[PaperRun]] = {}
    for run in RUNS.values():
        if run.ours == ours and run.name not in INTERLEAVED:
            groups.setdefault((run.run.model, run.run.steps), []).append(run)
    small = 0 if ours else ROUND_ROBIN * RUNS[INTERLEAVED[0]].run.steps
    return (small + sum(stacked_milliseconds(group) * group[0].run.steps for group in groups.values())) / 60_000
