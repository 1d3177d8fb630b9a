"""Errors for people: the argument, the value, what is allowed, what to do."""

from __future__ import annotations

import math
import numbers
from dataclasses import fields
from typing import Any


class LayerstepError(Exception):
    """A mistake the user can mend. The command line prints its one line and exits with status 2."""


class InputError(LayerstepError, ValueError):
    """An argument has a value that is not allowed."""


class FileError(LayerstepError, OSError):
    """A file cannot be read or written. What was on disk before is still there."""


def require(ok: bool, argument: str, value: object, allowed: str, remedy: str = "") -> None:
    """Raise InputError 'argument = value: must be ALLOWED. REMEDY' unless `ok`."""
    if not ok:
        raise InputError(f"{argument} = {value}: must be {allowed}." + (f" {remedy}" if remedy else ""))


def require_choice(argument: str, value: object, choices, remedy: str = "") -> None:
    """Raise InputError unless `value` is one of `choices`."""
    names = ", ".join(map(str, choices))
    require(value in list(choices), argument, repr(value), f"one of {names}", remedy)


def require_kind(argument: str, value: object, kind: type, remedy: str = "") -> None:
    """Raise InputError unless `value` is of the class `kind`: arguments given in another order, or of another kind."""
    require(isinstance(value, kind), argument, f"a {type(value).__name__}", f"a {kind.__name__}", remedy)


def as_float(value: Any) -> float:
    """`value` as a float, infinite where it is too large for one; NaN, which no comparison passes, for no number."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def require_positive(**values: Any) -> None:
    """Raise InputError unless every named value is a finite number above 0."""
    for name, value in values.items():
        require(0 < as_float(value) < math.inf, name, repr(value), "a finite number above 0")


def require_square(**values: Any) -> None:
    """Raise InputError unless every named value is a number above 0 whose square is one too."""
    require_positive(**values)
    for name, value in values.items():
        allowed = f"from 1e-150 to 1e150, so that {name}² is neither 0 nor infinite"
        require(1e-150 <= float(value) <= 1e150, name, value, allowed)


def require_count(minimum: int = 1, **values: Any) -> None:
    """Raise InputError unless every named value is an integer of at least `minimum`."""
    for name, value in values.items():
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        require(whole and int(value) >= minimum, name, repr(value), f"an integer of at least {minimum}")


def settle_numbers(value: Any) -> None:
    """Give the checked numbers of a frozen dataclass the types of their defaults: JSON files take none of NumPy's."""
    for each in fields(value):
        kind = type(each.default)
        if kind in (int, float):
            object.__setattr__(value, each.name, kind(getattr(value, each.name)))


def find_device(device: Any = None) -> Any:
    """The torch.device asked for, or the best there is: CUDA, then MPS, then the CPU. Else an InputError."""
    import torch

    there = ["cpu"]
    if torch.backends.mps.is_available():
        there.insert(0, "mps")
    if torch.cuda.is_available():
        there.insert(0, "cuda")
    if device is None:
        return torch.device(there[0])
    name = str(device)
    allowed = f"one of {', '.join(there)}"
    require(name.split(":")[0] in there, "device", repr(name), allowed, "That is what this machine has.")
    try:
        found = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device = {name!r}: must be {allowed}.") from error
    if found.type == "cuda" and found.index is not None:
        count = torch.cuda.device_count()
        require(found.index < count, "device", repr(name), f"cuda:0 to cuda:{count - 1}")
    return found
