"""A training run as a value: the task, the model, and every number of the protocol (section 5 of the paper)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch

from layerstep.errors import (
    InputError,
    as_float,
    coerce_numbers,
    quoted,
    require,
    require_choice,
    require_count,
    require_kind,
    require_positive,
)
from layerstep.files import digest
from layerstep.reprs import brief
from layerstep.tasks import KernelTask, LinearRegression, Task, require_task, task_from_dict
from layerstep.tasks.task import from_fields

ATTENTION = ("softmax", "linear", "linear-mean")
MASK = ("causal", "open")
OPTIMIZER = ("adamw", "muon")
PRECISION = ("bfloat16", "float32", "float64")


@dataclass(frozen=True, kw_only=True)
class Model:
    """The shape of a transformer: `layers` blocks of attention and MLP on a residual stream of `width` numbers.

    attention: softmax; linear, (q·k/√d_head) v with no normaliser; linear-mean, that divided by the visible keys.
    mask: causal, tokens x_1, y_1, x_2, ... that see what came before, a prediction at every x; or open, the paper's
    theorem: one token per example, all see all examples, and queries that no other token sees.
    loops: how often the same blocks are used, z <- f(x + z) with the tokens x again before each (Yang et al. 2023).
    """

    layers: int = 12
    heads: int = 8
    width: int = 256
    attention: str = "softmax"
    mask: str = "causal"
    loops: int = 1

    def __post_init__(self) -> None:
        require_count(layers=self.layers, heads=self.heads, width=self.width, loops=self.loops)
        require_choice("attention", self.attention, ATTENTION)
        require_choice("mask", self.mask, MASK)
        require(
            self.width % self.heads == 0,
            "width",
            self.width,
            f"divisible by heads = {self.heads}",
            f"Try width = {self.heads * max(1, (2 * self.width + self.heads - 1) // (2 * self.heads))}.",
        )
        coerce_numbers(self)

    def to_dict(self) -> dict[str, Any]:
        """The fields. A causal mask and one loop go without saying: models from before there was another keep their
        identity."""
        values = asdict(self)
        for name, usual in {"mask": "causal", "loops": 1}.items():
            if values[name] == usual:
                del values[name]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Model:
        return from_fields(cls, values, "model")


@dataclass(frozen=True, kw_only=True)
class Run:
    """Train `model` on fresh prompts of `task`: `steps` of AdamW on `batch` prompts. The defaults are the paper's.

    optimizer: adamw; or muon, which moves the matrices of the blocks along the polar factor of their momentum.
    The rate climbs for `warmup` steps to `lr`, then follows a cosine to `lr_final`. The loss counts the first
    `curriculum_start` points, `curriculum_add` more every `curriculum_every` steps (0: all points from the start).
    Inputs have `curriculum_dims` coordinates that are not 0, one more every `curriculum_every` steps (0: all of them).
    precision is that of the matrix products; bfloat16 and float32 runs keep float32 weights.
    """

    task: Any = field(default_factory=Task)
    model: Model = field(default_factory=Model)
    steps: int = 500_000
    batch: int = 64
    seed: int = 0
    lr: float = 1e-4
    lr_final: float = 1e-5
    warmup: int = 0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-4
    clip: float = 1.0
    optimizer: str = "adamw"
    curriculum_start: int = 11
    curriculum_add: int = 2
    curriculum_every: int = 2000
    curriculum_dims: int = 0
    precision: str = "float32"

    __repr__ = brief

    def __post_init__(self) -> None:
        require_task(self.task, "sample", "exact", "to_dict", remedy="Try ls.Task() or ls.LinearRegression().")
        require_kind("model", self.model, Model, "Try ls.Model().")
        require_count(
            steps=self.steps,
            batch=self.batch,
            curriculum_start=self.curriculum_start,
            curriculum_add=self.curriculum_add,
        )
        require_count(0, warmup=self.warmup, curriculum_every=self.curriculum_every, seed=self.seed)
        require_count(0, self.task.d, curriculum_dims=self.curriculum_dims)
        require(self.seed < 2**63, "seed", self.seed, "below 2**63")
        require(
            self.warmup < self.steps, "warmup", self.warmup, f"below steps = {self.steps}", "Take 0 for a short run."
        )
        require_positive(lr=self.lr, lr_final=self.lr_final, eps=self.eps, clip=self.clip)
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            require(0 <= as_float(value) < 1, name, quoted(value), "a number of at least 0 and below 1")
        finite = 0 <= as_float(self.weight_decay) < math.inf
        require(finite, "weight_decay", quoted(self.weight_decay), "a finite number of at least 0")
        require_choice("optimizer", self.optimizer, OPTIMIZER)
        require_choice("precision", self.precision, PRECISION)
        coerce_numbers(self)
        self._require_noise()

    def _require_noise(self) -> None:
        """Noise that labels can be drawn with in the precision of this run."""
        task, dtype = self.task, self.dtype
        if not isinstance(task, KernelTask):
            whole = self.curriculum_dims == 0
            require(whole, "curriculum_dims", self.curriculum_dims, "0 for a task that does not draw from normals")
            return
        least = task.least_sigma(dtype)
        require(
            task.sigma >= least,
            "sigma",
            task.sigma,
            f"at least {least:.2g} for prompts of {task.N + 1} points drawn in {str(dtype).removeprefix('torch.')}",
            "Use a larger sigma" + (", or precision = float64." if dtype == torch.float32 else "."),
        )

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and prompts. Matrix products may be coarser."""
        return torch.float64 if self.precision == "float64" else torch.float32

    @property
    def identity(self) -> str:
        """12 hex digits that runs share only when every number above is the same, and every function of the user's."""
        return digest(self.to_dict())

    @property
    def name(self) -> str:
        """A name for directories: the inputs, the seed and the identity."""
        kind = getattr(self.task, "type", "") or getattr(self.task, "inputs", "task")
        return f"{kind}-seed{self.seed}-{self.identity}"

    def to_dict(self) -> dict[str, Any]:
        """The fields. AdamW and no curriculum in dimension go without saying: runs from before there was another
        optimizer, or a curriculum, keep their identity."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, usual in {"optimizer": "adamw", "curriculum_dims": 0}.items():
            if values[name] == usual:
                del values[name]
        return values | {"task": self.task.to_dict(), "model": self.model.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Run:
        require_kind("run", values, Mapping, "Such as Run().to_dict().")
        parts = {"task": task_from_dict, "model": Model.from_dict}
        read = {name: parts[name](values[name]) for name in parts if isinstance(values.get(name), Mapping)}
        return from_fields(cls, {**values, **read}, "run")

    def override(self, **changes: Any) -> Run:
        """This run with scalars changed by name, wherever they live: override(lr=1e-3, layers=4, inputs="uniform").

        task= and model= replace the whole, before the others change it.
        """
        whole = replace(self, **{name: changes.pop(name) for name in ("task", "model") if name in changes})
        parts: dict[str, dict[str, Any]] = {"": {}, "task": {}, "model": {}}
        for name, value in changes.items():
            parts[whole._home(name)][name] = value
        task, model = whole.task, whole.model
        return replace(
            whole,
            task=replace(task, **parts["task"]) if parts["task"] else task,
            model=replace(model, **parts["model"]),
            **parts[""],
        )

    def _home(self, name: str) -> str:
        """Whose field it is."""
        for home, part in {"": self, "task": self.task, "model": self.model}.items():
            if dataclasses.is_dataclass(part) and name in {each.name for each in fields(part)}:
                return home
        raise InputError(f"{name} is not a scalar of a run. There are: {', '.join(scalars(self.task))}.")


def scalars(task: Any = None) -> dict[str, type]:
    """The name and type of every scalar of a run, its model's and its task's included (by default those of Task)."""
    asked = Task() if task is None else task
    return {
        each.name: type(each.default)
        for part in (Run, Model, *([asked] if dataclasses.is_dataclass(asked) else []))
        for each in fields(part)
        if isinstance(each.default, (int, float, str))
    }


# `fast` reaches the paper's quality in a small part of its steps; LOG.md says what else was tried.
PRESETS: dict[str, Run] = {
    "paper": Run(precision="bfloat16"),
    "fast": Run(steps=82_000, lr=6e-4, warmup=1000, curriculum_every=0, precision="bfloat16"),
    "tiny": Run(
        task=Task(inputs="uniform", d=1, N=10, sigma=0.1),
        model=Model(layers=3, heads=2, width=32),
        steps=2000,
        lr=4e-3,
        lr_final=1e-4,
        warmup=100,
        curriculum_every=0,
    ),
    # Without the curriculum in dimension, d = 20 stays at the loss of a constant (results/linear).
    "linear": Run(
        task=LinearRegression(d=20, N=40, sigma=0.5),
        steps=164_000,
        lr=3e-4,
        warmup=1000,
        curriculum_dims=5,
        precision="bfloat16",
    ),
    "linear-tiny": Run(
        task=LinearRegression(d=3, N=10, sigma=0.1),
        model=Model(layers=3, heads=2, width=32),
        steps=3000,
        lr=4e-3,
        lr_final=1e-4,
        warmup=100,
        curriculum_every=200,
        curriculum_dims=1,
        curriculum_start=5,
        optimizer="muon",
    ),
}
