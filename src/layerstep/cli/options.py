"""What verbs share: the options that make a task, the checks of counts and figures, and how text becomes a value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from cyclopts import Parameter, Token
from cyclopts import convert as convert_token

from layerstep.errors import as_path, require, require_choice

if TYPE_CHECKING:
    from layerstep.tasks import Task

KINDS = {int: "an integer", float: "a number"}
UNNAMED = "<value>"  # what has no option: its name is only known where the error arrives
PLOTS = (".png", ".svg", ".pdf")


def convert(kind: Any, tokens: tuple[Token, ...]) -> Any:
    """The value of an option, or an InputError that names it. 2.5 is not an integer here, as it is to cyclopts."""
    name, text = tokens[0].keyword or UNNAMED, tokens[0].value
    if isinstance(kind, UnionType):  # a value, or None where the option is left out
        kind = get_args(kind)[0]
    if kind in KINDS:
        try:
            return kind(text)
        except ValueError:
            require(False, name, repr(text), KINDS[kind])
    if kind is Path:
        return as_path(name, text)
    if get_origin(kind) is Literal:
        require_choice(name, text, get_args(kind))
    return convert_token(kind, tokens)


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The prompts. What is left out is what the model was made for or, where it does not say, as in the paper."""

    inputs: str | None = None
    """input distribution: sphere (the paper's), uniform or gaussian."""
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
            remedy = "Leave the option out; other prompts are compared with ls.identify in Python."
            require(same, f"--{name.replace('_', '-')}", asked, f"{made_for}, which {whose} was made for", remedy)
        return Task(**{**given, **own})


#: `task: Flat` in a verb gives it --inputs, --v and the rest, without a prefix.
Flat = Annotated[TaskOptions, Parameter(name="*")]


def require_plot(file: Path | None) -> None:
    """An InputError or a FileError, before the work, where a figure cannot be drawn into `file`."""
    from layerstep.files import require_writable

    if file is not None:
        require_choice("--plot suffix", file.suffix, PLOTS)
        require_writable(file)
