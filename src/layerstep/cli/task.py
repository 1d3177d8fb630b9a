"""The options that make a task, the same for every verb: the prompts of the paper, of a model, or others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from layerstep.errors import require

if TYPE_CHECKING:
    from layerstep.tasks import Task


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The prompts. What is left out is what the model was made for or, where it does not say, as in the paper."""

    inputs: str | None = None
    """law of the inputs: sphere (the paper's), uniform or gaussian."""
    kernel: str | None = None
    """gaussian (the paper's) or arccos1."""
    d: int | None = None
    """dimension of the inputs (the paper's: 5)."""
    N: int | None = None
    """longest context (the paper's: 40)."""
    v: float | None = None
    """bandwidth of the kernel (the paper's: 1)."""
    sigma: float | None = None
    """standard deviation of the label noise; the ridge is its square (the paper's: 0.05)."""
    input_std: float | None = None
    """standard deviation of gaussian inputs (the paper's: 0.6)."""

    def task(self, own: Mapping[str, Any] | None = None, whose: str = "") -> Task:
        """The task of these options and of `own`, what the model `whose` was made for. They must not contradict."""
        from layerstep.tasks import Task

        own = own or {}
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        for name in given.keys() & own.keys():
            made_for, asked = own[name], given[name]
            same = made_for == asked if isinstance(asked, str) else math.isclose(made_for, asked)
            remedy = "Leave the option out; other prompts are judged with ls.identify in Python."
            require(same, f"--{name.replace('_', '-')}", asked, f"{made_for}, which {whose} was made for", remedy)
        return Task(**{**given, **own})


#: `task: Flat` in a verb gives it --inputs, --v and the rest, without a prefix.
Flat = Annotated[TaskOptions, tyro.conf.arg(name="")]
