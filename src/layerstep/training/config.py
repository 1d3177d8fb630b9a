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
from layerstep.tasks import Task
from layerstep.tasks.prompts import normals
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
    """

    layers: int = 12
    heads: int = 8
    width: int = 256
    attention: str = "softmax"
    mask: str = "causal"

    def __post_init__(self) -> None:
        require_count(layers=self.layers, heads=self.heads, width=self.width)
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
        """The fields. A causal mask goes without saying: models from before there was another keep their identity."""
        values = asdict(self)
        if self.mask == "causal":
            del values["mask"]
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
    precision is that of the matrix products; bfloat16 and float32 runs keep float32 weights.
    """

    task: Task = field(default_factory=Task)
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
    precision: str = "float32"

    def __post_init__(self) -> None:
        require_kind("task", self.task, Task, "Try ls.Task().")
        require_kind("model", self.model, Model, "Try ls.Model().")
        require_count(
            steps=self.steps,
            batch=self.batch,
            curriculum_start=self.curriculum_start,
            curriculum_add=self.curriculum_add,
        )
        require_count(0, warmup=self.warmup, curriculum_every=self.curriculum_every, seed=self.seed)
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
        """sigma² >= 4 (N+1) eps E K(x, x): less is lost in K, whose factor makes the labels.

        Rounding moves the eigenvalues of K by a fraction of eps trace K = (N+1) eps E K(x, x), so the smallest stays
        above 0.
        """
        task, dtype = self.task, self.dtype
        x = task.draw_inputs(normals(0, 0, 0, (256, 1, task.d)))
        least = math.sqrt(4 * (task.N + 1) * torch.finfo(dtype).eps * float(task.gram(x, x).mean()))
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
        return f"{self.task.inputs}-seed{self.seed}-{self.identity}"

    def to_dict(self) -> dict[str, Any]:
        """The fields. AdamW goes without saying: runs from before there was another optimizer keep their identity."""
        values = asdict(self)
        if self.optimizer == "adamw":
            del values["optimizer"]
        return values | {"task": self.task.to_dict(), "model": self.model.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Run:
        require_kind("run", values, Mapping, "Such as Run().to_dict().")
        parts = {"task": Task, "model": Model}
        read = {name: parts[name].from_dict(values[name]) for name in parts if isinstance(values.get(name), Mapping)}
        return from_fields(cls, {**values, **read}, "run")

    def override(self, **changes: Any) -> Run:
        """This run with scalars changed by name, wherever they live: override(lr=1e-3, layers=4, inputs="uniform")."""
        parts: dict[str, dict[str, Any]] = {"": {}, "task": {}, "model": {}}
        for name, value in changes.items():
            parts[_home(name)][name] = value
        return replace(
            self,
            task=replace(self.task, **parts["task"]),
            model=replace(self.model, **parts["model"]),
            **parts[""],
        )


def scalars() -> dict[str, type]:
    """The name and type of every scalar of a run, its task's and its model's included."""
    return {
        f.name: type(f.default)
        for part in (Run, Model, Task)
        for f in fields(part)
        if f.default is not dataclasses.MISSING
    }


def _home(name: str) -> str:
    for home, part in {"": Run, "task": Task, "model": Model}.items():
        if name in {f.name for f in fields(part)}:
            return home
    raise InputError(f"{name} is not a scalar of a run. There are: {', '.join(scalars())}.")


# `fast` reaches the paper's quality in a small part of its steps; LOG.md says what else was tried.
PRESETS = {
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
}
