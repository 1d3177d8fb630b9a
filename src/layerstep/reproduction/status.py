"""What each directory of results/models holds: a run as listed, another schedule, or something that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Literal

from layerstep.errors import FileError, InputError, as_float
from layerstep.files import read_json
from layerstep.reproduction import runs
from layerstep.reproduction.costs import gpu_minutes
from layerstep.reproduction.runs import RUNS, PaperRun, flat, preset_of
from layerstep.training import Run

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
    config = run.folder / "config.json"
    if not config.exists():
        return _without_model(run)
    try:
        about = read_json(config)["about"]
        found = Run.from_dict(about["run"])
        return _compare(run, found, int(about.get("step", found.steps)))
    except FileError as error:
        return RunStatus(state="unusable", words=str(error))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        reason = str(error) if isinstance(error, InputError) else "it has no about.run"
        return RunStatus(state="unusable", words=f"{config} does not say which run this is: {reason}. Write it again.")


def _compare(run: PaperRun, found: Run, step: int) -> RunStatus:
    listed, there = flat(run.run), flat(found)
    # What names the run: its task, its model and its seed. The rest is the schedule; the paper states no precision.
    names = {*run.run.task.to_dict(), *run.run.model.to_dict(), "seed"}
    differs = {name for name in listed if listed[name] != there[name]} - {"precision"}
    if wrong := sorted(differs & names):
        words = ", ".join(f"{name} = {there[name]} (listed: {listed[name]})" for name in wrong)
        return RunStatus(
            state="unusable",
            words=f"another run: {run.folder / 'config.json'} says {words}. Move it to its own directory.",
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
        words = f"{run.folder / 'config.json'} is not there: of which run are these files?"
        return RunStatus(state="unusable", words=words)
    return RunStatus(state="missing", words="not trained here")


def measured_minutes(run: PaperRun) -> float | None:
    """GPU minutes the model in the directory took, its share where several of its shape were trained stacked.

    None where there is no model, or where other trainings used the GPU at the same time.
    """
    file = run.folder / "evaluation.json"
    if not file.exists():
        return None
    facts = read_json(file)
    try:
        seconds, stacked = as_float(facts["seconds"]), len(facts["stack"])
    except (KeyError, TypeError):
        seconds, stacked = inf, 0
    if not (0 < seconds < inf and stacked):
        raise FileError(f"{file} does not say how long training took. Publish the run again.")
    return None if facts.get("shared") else seconds / stacked / 60


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
    there = sorted(path.name for path in runs.MODELS.iterdir() if path.is_dir()) if runs.MODELS.is_dir() else []
    unknown = [name for name in there if name not in RUNS and not name.startswith(".")]
    words = f"is not a run of the list and is left out. The runs: {', '.join(RUNS)}."
    return {name: f"{runs.MODELS / name} {words}" for name in unknown}
