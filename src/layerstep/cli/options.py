"""What verbs share: the options that make a task, the checks of counts and figures, and how text becomes a value."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import Parameter, Token
from cyclopts import convert as convert_token

from layerstep.errors import as_path, require, require_choice

KINDS = {int: "an integer", float: "a number"}
UNNAMED = "<value>"  # what has no option: its name is only known where the error arrives
PLOTS = (".png", ".svg", ".pdf")


def convert(kind: Any, tokens: tuple[Token, ...]) -> Any:
    """The value of an option, or an InputError that names it. 2.5 is not an integer here, as it is to cyclopts."""
    name, text = tokens[0].keyword or UNNAMED, tokens[0].value
    if isinstance(kind, UnionType) or get_origin(kind) is Union:  # a value, or None where the option is left out
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
    if name == "--kernel":
        import_named(text)
    return convert_token(kind, tokens)


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The prompts. What is left out is what the model was made for or, where it does not say, as in the paper."""

    kind: Annotated[Literal["gp", "linear"] | None, Parameter(name="--task")] = None
    """gp, a Gaussian process (the paper's); or linear, in-context linear regression."""
    inputs: str | None = None
    """input distribution: sphere (the paper's), uniform or gaussian."""
    kernel: str | None = None
    """gaussian (the paper's), linear, matern32, polynomial:3, ..., or package.module:function, which is imported."""
    d: int | None = None
    """dimension of the inputs (the paper's: 5; linear: 20)."""
    N: int | None = None
    """longest context (the paper's: 40)."""
    v: float | None = None
    """bandwidth of the kernel (the paper's: 1)."""
    sigma: float | None = None
    """standard deviation of the label noise; the ridge is its square (the paper's: 0.05; linear: 0)."""
    input_std: float | None = None
    """standard deviation of gaussian inputs (the paper's: 0.6)."""
    covariance: str | None = None
    """of linear tasks: the variance of the inputs, or d of them, separated by commas (1)."""
    mean: str | None = None
    """of linear tasks: the mean of the inputs, one number or d of them (0)."""
    prior: str | None = None
    """of linear tasks: gaussian weights, or sparse:k."""
    pool: int | None = None
    """of linear tasks: how many weights there are for prompts to have (no end of them)."""

    def task(self, own: Mapping[str, Any] | None = None, whose: str = "") -> Any:
        """The task of these options and of `own`, what the model `whose` was made for. They must not contradict."""
        from layerstep.tasks import LinearRegression, Task, task_from_dict

        own = dict(own or {})
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        given |= {name: numbers(f"--{name}", given[name]) for name in ("covariance", "mean") if name in given}
        kind = given.pop("kind", None)
        whole = "type" in own or "kernel" in own  # more than d and N is known
        mine = "linear" if own.get("type") == "linear-regression" else "gp"
        if whole and kind is not None:
            require(kind == mine, "--task", kind, f"{mine}, which {whose} was made for", "Leave the option out.")
        linear = (mine if whole else kind) == "linear"
        if linear:
            own["type"] = "linear-regression"
        foreign = sorted(given.keys() & ({"inputs", "kernel", "v", "input_std"} if linear else LINEAR_ONLY))
        for name in foreign:
            words = "left out of a linear task" if linear else "left out, or given with --task linear"
            require(False, f"--{name.replace('_', '-')}", given[name], words)
        made = task_from_dict(own) if whole else None
        for name in given.keys() & own.keys():
            made_for, asked = getattr(made, name, own[name]), given[name]
            close = isinstance(asked, (int, float)) and isinstance(made_for, (int, float))
            same = math.isclose(made_for, asked) if close else made_for == asked  # type: ignore[arg-type]
            remedy = "Leave the option out; other prompts are compared with ls.identify in Python."
            require(same, f"--{name.replace('_', '-')}", asked, f"{made_for}, which {whose} was made for", remedy)
        if whole:
            return task_from_dict({**given, **own})
        own.pop("type", None)
        return (LinearRegression if linear else Task)(**{**given, **own})


LINEAR_ONLY = {"covariance", "mean", "prior", "pool"}


def import_named(kernel: str) -> None:
    """Import a kernel that is asked for as package.module:function, from the current directory too."""
    from layerstep.tasks import import_kernel
    from layerstep.tasks.kernels import WITH_PARAMETERS

    if ":" in kernel and kernel.partition(":")[0] not in WITH_PARAMETERS:
        with current_directory():
            import_kernel(kernel)


def import_module(name: str) -> None:
    """Run a module of the user's, which registers tasks, kernels, inputs or solvers."""
    from layerstep.errors import InputError

    try:
        with current_directory():
            importlib.import_module(name)
    except Exception as error:  # a module of the user's may raise anything
        words = f"{type(error).__name__}: {error}"
        raise InputError(f"--import {name}: cannot be imported ({words}). Is it here, or installed?") from error


@contextlib.contextmanager
def current_directory() -> Iterator[None]:
    """Modules of the current directory can be imported, as `python -m` does it."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def numbers(option: str, text: str) -> float | tuple[float, ...]:
    """One number, or several separated by commas."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        require(False, option, repr(text), "a number, or several separated by commas")
        raise
    return found[0] if len(found) == 1 else found


#: `task: Flat` in a verb gives it --inputs, --v and the rest, without a prefix.
Flat = Annotated[TaskOptions, Parameter(name="*")]


def require_plot(file: Path | None) -> None:
    """An InputError or a FileError, before the work, where a figure cannot be drawn into `file`."""
    from layerstep.files import require_writable

    if file is not None:
        require_choice("--plot suffix", file.suffix, PLOTS)
        require_writable(file)
