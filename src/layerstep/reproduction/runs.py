"""The paper's training runs as values, what each folder of results/models holds, and what a run costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from layerstep.errors import FileError, InputError
from layerstep.files import read_json
from layerstep.reproduction.reference import PROTOCOL
from layerstep.reproduction.settings import SETTINGS
from layerstep.tasks import Task
from layerstep.training import PRESETS, Model, Run

#: Where trained models, their probes and their predictions are kept: in the clone, beside the code.
MODELS = Path(__file__).parents[3] / "results" / "models"

#: Milliseconds of a step on one H200 (LOG.md, "A step"): the default model alone, and each of four side by side.
ALONE, OF_FOUR = 2.11, 1.392
#: alone = launches + arithmetic, four = launches + 4 arithmetic.
ARITHMETIC = (4 * OF_FOUR - ALONE) / 3
LAUNCHES = ALONE - ARITHMETIC
#: Milliseconds of a step of six models in turn (LOG.md, "Models of other shapes at the same time"), and who could be
#: the six: there 8 heads stood for 4.
IN_TURN = 6.5
TURNS = ("heads-1", "heads-2", "heads-4", "width-32", "width-64", "width-128")

State = Literal["missing", "as listed", "other schedule", "interrupted", "unusable"]


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a run's folder holds, in words. `steps`: how long the model there was trained."""

    state: State
    words: str
    steps: int | None = None

    @property
    def usable(self) -> bool:
        """Whether figures may be made from it."""
        return self.state in ("as listed", "other schedule")


@dataclass(frozen=True, kw_only=True)
class PaperRun:
    """One training run: its place in the paper (or among ours), its setting, and its every number."""

    name: str
    setting: str
    shows: str
    run: Run
    preset: str = "paper"
    ours: bool = False

    @property
    def folder(self) -> Path:
        return MODELS / self.name

    @property
    def command(self) -> str:
        """What trains it and puts its results in place."""
        return f"layerstep sweep {self.name}"

    @property
    def training(self) -> str:
        """What trains it in its own folder."""
        base, mine = _flat(PRESETS[self.preset]), _flat(self.run)
        changes = [f"{name}={value}" for name, value in mine.items() if value != base[name]]
        words = ["layerstep", "train", self.preset, "--out", f"results/models/{self.name}"]
        return " ".join([*words, *(["--set", *changes] if changes else [])])

    @property
    def held(self) -> Held:
        """Which run the folder says it holds, and whether that is this one."""
        config = self.folder / "config.json"
        if not config.exists():
            return self._without_model()
        try:
            about = read_json(config)["about"]
            found, step = Run.from_dict(about["run"]), int(about.get("step", about["run"]["steps"]))
        except FileError as error:
            return Held(state="unusable", words=str(error))
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error) if isinstance(error, InputError) else "it has no about.run"
            return Held(state="unusable", words=f"{config} does not say which run this is: {reason}. Write it again.")
        return self._compare(found, step)

    def _compare(self, found: Run, step: int) -> Held:
        listed, there = _flat(self.run), _flat(found)
        # What names the run: its task, its model and its seed. The rest is the schedule; the paper states no precision.
        names = {*self.run.task.to_dict(), *self.run.model.to_dict(), "seed"}
        differs = {name for name in listed if listed[name] != there[name]} - {"precision"}
        if wrong := sorted(differs & names):
            words = ", ".join(f"{name} = {there[name]} (listed: {listed[name]})" for name in wrong)
            return Held(
                state="unusable",
                words=f"another run: {self.folder / 'config.json'} says {words}. Move it to its own folder.",
            )
        if step < found.steps:
            words = f"stopped after {step:,} of {found.steps:,} steps"
            return Held(state="other schedule", words=words, steps=step)
        if differs:
            kind = "short" if found.steps < self.run.steps else "another"
            rest = [] if preset_of(found) else sorted(differs - {"steps", "lr"})
            words = ", ".join([_in_words(kind, found), *(f"{name} = {there[name]:g}" for name in rest)])
            return Held(state="other schedule", words=words, steps=found.steps)
        as_in_paper = self.preset == "paper"
        words = f"{found.steps:,} steps, as in the paper" if as_in_paper else _in_words("short", found)
        return Held(state="as listed", words=words, steps=found.steps)

    def _without_model(self) -> Held:
        try:
            there = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        except OSError as error:
            return Held(state="unusable", words=f"cannot read {self.folder}: {error.strerror}.")
        if "checkpoints" in there or "runs.json" in there:
            steps = sorted(int(note.stem.split("-")[1]) for note in self.folder.glob("checkpoints/step-*.json"))
            done = f"at step {steps[-1]:,}" if steps else "before the first checkpoint"
            words = f"interrupted {done}: {self.training} --resume"
            return Held(state="interrupted", words=words, steps=steps[-1] if steps else None)
        if there:
            return Held(state="unusable", words=f"{self.folder / 'config.json'} is not there: whose files are these?")
        return Held(state="missing", words="not trained here")

    @property
    def milliseconds(self) -> float:
        """A step of this run alone on one H200: launches grow with the layers, arithmetic with layers and width."""
        model, tokens = self.run.model, 2 * (self.run.task.N + 1)
        default = Model()
        depth = model.layers / default.layers
        work = _products(model.width, tokens) / _products(default.width, tokens)
        return depth * (LAUNCHES + ARITHMETIC * work)

    @property
    def gpu_minutes(self) -> float:
        """Estimated minutes on one H200, the GPU to itself, at the length of this list."""
        return self.milliseconds * self.run.steps / 60_000

    @property
    def measured_minutes(self) -> float | None:
        """GPU minutes the model in the folder took, its share where several of its shape were trained side by side.

        None where there is no model, or where other trainings used the GPU at the same time.
        """
        file = self.folder / "evaluation.json"
        if not file.exists():
            return None
        facts = read_json(file)
        try:
            return None if facts.get("shared") else facts["seconds"] / len(facts["stack"]) / 60
        except (KeyError, TypeError, ZeroDivisionError):
            raise FileError(f"{file} does not say how long training took. Publish the run again.") from None


def _flat(run: Run) -> dict[str, Any]:
    values = run.to_dict()
    return {**values.pop("task"), **values.pop("model"), **values}


def preset_of(run: Run) -> str | None:
    """The preset whose schedule a run follows, whatever its task, its shape and its seed."""
    return next((name for name, each in PRESETS.items() if _schedule(each) == _schedule(run)), None)


def _in_words(kind: str, run: Run) -> str:
    """A schedule that is not the paper's: its length, its rate, and its preset where it has one."""
    preset = preset_of(run)
    return f"{kind} schedule: {run.steps:,} steps, rate {run.lr:g}" + (f", preset {preset}" if preset else "")


def _schedule(run: Run) -> Run:
    """The run on the default task, model and seed: two are equal when their schedules are."""
    return replace(run, task=Task(), model=Model(), seed=0)


def _products(width: int, tokens: int) -> float:
    """Arithmetic of a layer and token: matrix products and attention."""
    return 24 * width**2 + 4 * tokens * width


def _run(name: str, setting: str, shows: str, preset: str = "paper", ours: bool = False, **changes) -> PaperRun:
    run = PRESETS[preset].override(**SETTINGS[setting].to_dict(), **changes)
    return PaperRun(name=name, setting=setting, shows=shows, run=run, preset=preset, ours=ours)


LAWS = ("sphere", "uniform", "gaussian")
DEEP = ("sphere-24", "sphere-24-v2")  # of twice the depth
_ALL = [
    _run("sphere", "sphere", "Figures 1, 2, 5, 10; noise table"),
    _run("uniform", "uniform", "Figures 2c, 3, 4, 5, 10; noise table"),
    _run("gaussian", "gaussian", "Figures 2c, 3, 4, 5, 10; noise table"),
    _run("sphere-24", "sphere", "Figures 6a, 7", layers=24),
    _run("sphere-24-v2", "sphere-v2", "Figures 6b, 7", layers=24),
    *(_run(f"linear-{law}", law, "Figure 8", attention="linear") for law in ("uniform", "gaussian", "sphere")),
    _run("arccos1", "arccos1", "section on the arc-cosine kernel"),
    *(_run(f"heads-{heads}", "sphere", "Figure 9a", heads=heads) for heads in (1, 2, 4)),
    *(_run(f"width-{width}", "sphere", "Figure 9b", width=width) for width in (32, 64, 128, 512)),
    # Ours: without other seeds no number of a single run has an error bar.
    _run("gaussian-1.0", "gaussian-1.0", "noise table, the Gaussian column at s.d. 1.0", ours=True),
    *(_run(f"{law}-fast", law, "beside other models of the short schedule", "fast", True) for law in LAWS),
    *(
        _run(f"sphere-fast-seed-{seed}", "sphere", "spread over seeds, short schedule", "fast", True, seed=seed)
        for seed in (1, 2, 3, 4)
    ),
    *(
        _run(f"linear-mean-{law}", law, "Figure 8, divided by the visible keys", ours=True, attention="linear-mean")
        for law in ("uniform", "gaussian", "sphere")
    ),
]
RUNS: dict[str, PaperRun] = {run.name: run for run in _ALL}
SEEDS = tuple(name for name in RUNS if name.startswith("sphere-fast"))


def listing(broken: Mapping[str, str] = MappingProxyType({})) -> list[dict[str, Any]]:
    """Every run: what it shows, what its folder holds, the command, and the GPU minutes it takes or took.

    broken: reasons, by name, why the files of a run cannot be used.
    """
    rows = []
    for run in RUNS.values():
        held = run.held
        if held.usable and run.name in broken:
            held = Held(state="unusable", words=broken[run.name])
        minutes, remark = None, ""
        try:
            minutes = run.measured_minutes if held.usable else None
        except FileError as error:
            remark = f"; {error}"
        rows.append(
            {
                "name": run.name,
                "shows": run.shows,
                "ours": run.ours,
                "identity": run.run.identity,
                "state": held.state,
                "held": held.words + remark,
                "trained_steps": held.steps if held.usable else None,
                "command": f"{run.training} --resume" if held.state == "interrupted" else run.command,
                "steps": run.run.steps,
                "gpu_minutes": run.gpu_minutes,
                "measured_minutes": minutes,
            }
        )
    return rows


def protocol() -> list[tuple[str, float, float]]:
    """The paper's tables of hyperparameters: what, the paper's value, and that of our preset `paper`."""
    ours = _flat(PRESETS["paper"])
    return [(words, quoted, ours[name]) for name, (words, quoted) in PROTOCOL.items()]


def total_minutes(*, ours: bool, shared: bool = False) -> float:
    """Estimated GPU minutes of the paper's own runs, or of the ones we add, one after another.

    shared: models of one shape are trained side by side and share their launches, small ones of other shapes take
    turns.
    """
    if not shared:
        return sum(run.gpu_minutes for run in RUNS.values() if run.ours == ours)
    groups: dict[tuple[Model, int], list[PaperRun]] = {}
    for run in RUNS.values():
        if run.ours == ours and run.name not in TURNS:
            groups.setdefault((run.run.model, run.run.steps), []).append(run)
    turns = 0 if ours else IN_TURN * RUNS[TURNS[0]].run.steps
    return (turns + sum(together(group) * group[0].run.steps for group in groups.values())) / 60_000


def together(runs: Sequence[PaperRun]) -> float:
    """Milliseconds of a step of models of one shape, side by side on one H200: they share their launches."""
    shared = LAUNCHES * runs[0].run.model.layers / Model().layers
    return sum(run.milliseconds for run in runs) - (len(runs) - 1) * shared


def strangers() -> dict[str, str]:
    """Folders beside the runs' that no run of the list claims."""
    there = sorted(path.name for path in MODELS.iterdir() if path.is_dir()) if MODELS.is_dir() else []
    unknown = [name for name in there if name not in RUNS and not name.startswith(".")]
    return {
        name: f"{MODELS / name} is no run of the list and is left out. The runs: {', '.join(RUNS)}." for name in unknown
    }
