"""Errors for people: the argument, the value, what is allowed, what to do. And the checks that all entries share."""

from __future__ import annotations

import difflib
import math
import numbers
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

LONGEST_VALUE = 160  # characters of a value that a message repeats
LONGEST_MESSAGE = 1000  # others' exceptions bring pages with them
LONGEST_NAME = 255  # bytes of a file's name, of nearly every file system


class LayerstepError(Exception):
    """A mistake the user can mend. The command line prints its one line and exits with status 2."""

    def __init__(self, message: str = "") -> None:
        words = (shorten(word, 2 * LONGEST_NAME) for word in message.split(" "))
        super().__init__(shorten(" ".join(words), LONGEST_MESSAGE))


class InputError(LayerstepError, ValueError):
    """An argument has a value that is not allowed."""


class FileError(LayerstepError, OSError):
    """A file cannot be read or written. What was on disk before is still there."""


def shorten(text: str, longest: int = LONGEST_VALUE) -> str:
    """`text`, or its start, its end and its length."""
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]}...{text[-longest // 8 :]} ({len(text):,} characters)"


def in_words(value: object) -> str:
    """A value as a message shows it: strings as they are, arrays by their shape, all of them short."""
    try:
        if not isinstance(value, type) and getattr(value, "ndim", 0):
            return f"{_a(type(value).__name__)} of shape {list(value.shape)}"  # type: ignore[attr-defined]
        return shorten(" ".join(str(value).split()))
    except Exception:  # integers of more than 4,300 digits, and classes of the user's whose str fails
        return _a(type(value).__name__) + (" of thousands of digits" if isinstance(value, int) else "")


class quoted:
    """The same with quotation marks around a string, put into words only where a message is made."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __str__(self) -> str:
        return in_words(repr(self.value) if isinstance(self.value, str) else self.value)


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def require(ok: bool, argument: str, value: object, allowed: str, remedy: str = "") -> None:
    """Raise InputError 'argument = value: must be ALLOWED. REMEDY' unless `ok`."""
    if not ok:
        raise InputError(f"{argument} = {in_words(value)}: must be {allowed}." + (f" {remedy}" if remedy else ""))


def require_choice(argument: str, value: object, choices, remedy: str = "") -> None:
    """Raise InputError unless `value` is one of `choices`."""
    if any(isinstance(value, type(choice)) and value == choice for choice in choices):
        return
    near = difflib.get_close_matches(value.lower(), map(str, choices), n=1) if isinstance(value, str) else []
    meant = " ".join(filter(None, [f"Did you mean {near[0]}?" if near else "", remedy]))
    require(False, argument, quoted(value), f"one of {', '.join(map(str, choices))}", meant)


def require_kind(
    argument: str, value: object, kind: type | tuple[type, ...], remedy: str = "", called: str | None = None
) -> None:
    """Raise InputError unless `value` is of the class `kind`: arguments given in another order, or of another kind."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        given = "None" if value is None else _a(type(value).__name__)
        require(False, argument, given, called or " or ".join(_a(each.__name__) for each in kinds), remedy)


def require_callable(argument: str, value: object, allowed: str, remedy: str = "") -> None:
    """Raise InputError unless `value` can be called; `allowed` says from what to what."""
    require(callable(value), argument, quoted(value), allowed, remedy)


def as_float(value: Any) -> float:
    """`value` as a float, infinite where it is too large for one; NaN, which no comparison passes, for other things."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def require_positive(**values: Any) -> None:
    """Raise InputError unless every named value is a finite number above 0."""
    for name, value in values.items():
        require(0 < as_float(value) < math.inf, name, quoted(value), "a finite number above 0")


def require_square(**values: Any) -> None:
    """Raise InputError unless every named value is a number above 0 whose square is one too."""
    require_positive(**values)
    for name, value in values.items():
        allowed = f"from 1e-150 to 1e150, so that {name}² is neither 0 nor infinite"
        require(1e-150 <= float(value) <= 1e150, name, value, allowed)


def require_count(minimum: int = 1, maximum: int | None = None, /, **values: Any) -> None:
    """Raise InputError unless every named value is an integer of at least `minimum` and at most `maximum`."""
    allowed = f"an integer of at least {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"
    for name, value in values.items():
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        inside = whole and minimum <= int(value) and (maximum is None or int(value) <= maximum)
        require(inside, name, quoted(value), allowed)


def require_flag(**values: Any) -> None:
    """Raise InputError unless every named value is True or False: arrays and strings have truths of their own."""
    for name, value in values.items():
        require(type(value).__name__ in ("bool", "bool_"), name, quoted(value), "True or False")


def require_seed(**values: Any) -> None:
    """Raise InputError unless every named value is a seed: an integer from 0 to 2**64 - 1."""
    for name, value in values.items():
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        require(whole and 0 <= int(value) < 2**64, name, quoted(value), "an integer from 0 to 2**64 - 1")


def coerce_numbers(value: Any) -> None:
    """Give the checked numbers of a frozen dataclass the types of their defaults: JSON files take none of NumPy's."""
    for each in fields(value):
        kind = type(each.default)
        if kind in (int, float):
            object.__setattr__(value, each.name, kind(getattr(value, each.name)))


def as_path(argument: str, value: Any, remedy: str = "") -> Path:
    """`value`, a string or a path, as a path that a file system can hold. Whether something is there, others ask."""
    found: Any = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    require(isinstance(found, str), argument, quoted(value), "the path of a file or directory", remedy)
    try:
        names = [os.fsencode(name) for name in (found, *Path(found).parts)]
    except UnicodeEncodeError:
        names = []
    require(bool(found and names) and "\0" not in found, argument, repr(found), "a path, not empty", remedy)
    short = len(names[0]) < 4096 and all(len(name) <= LONGEST_NAME for name in names[1:])
    allowed = f"a path whose names have at most {LONGEST_NAME} bytes"
    require(short, argument, repr(found), allowed, "Choose a shorter one.")
    try:
        Path(found).resolve()
    except (RuntimeError, OSError):
        require(False, argument, repr(found), "a path whose links do not lead back to themselves")
    return Path(found)


def as_device(device: Any = None) -> Any:
    """The torch.device asked for, or the best there is: CUDA, then MPS, then the CPU. Else an InputError."""
    import torch

    there = ["cpu"]
    if torch.backends.mps.is_available():
        there.insert(0, "mps")
    if torch.cuda.is_available():
        there.insert(0, "cuda")
    if device is None:
        return torch.device(there[0])
    name = in_words(device)
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


def as_dtype(
    dtype: Any, allowed: tuple[str, ...] = ("float64", "float32", "bfloat16", "float16"), remedy: str = ""
) -> Any:
    """The torch.dtype asked for, by itself, by name or as NumPy's; an InputError unless its name is `allowed`."""
    import torch

    name = getattr(dtype, "__name__", None) or in_words(dtype)  # np.float32 is a class
    name = name.removeprefix("torch.")
    require_choice("dtype", name, allowed, remedy)
    return getattr(torch, name)
