"""What conftest.py puts on every function: checks of shapes and types, where an int may stand for a float.

Checks cost more than what small functions do, and some of those are called ten thousand times in a test. So the first
calls in every test are checked, and a function gets its checks when it is called for the first time.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

CALLS = 30  # of a function that are checked in one test
_jaxtyped = jaxtyping.jaxtyped
_tests = 0  # that have begun

check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def begin_test() -> None:
    global _tests
    _tests += 1


def first_calls(fn: Any = None, *, typechecker: Any) -> Any:
    """In place of `jaxtyping.jaxtyped`, which checks every call."""
    again = functools.partial(first_calls, typechecker=typechecker)
    if fn is None:
        return again
    if inspect.isclass(fn):
        if dataclasses.is_dataclass(fn) and not hasattr(fn.__init__, "is_checked"):
            fn.__init__ = again(fn.__init__)
        return fn
    if isinstance(fn, (classmethod, staticmethod)):
        return type(fn)(again(fn.__func__))
    if isinstance(fn, property):
        return property(*(each and again(each) for each in (fn.fget, fn.fset, fn.fdel)))
    return _function(fn, typechecker)


def _function(fn: Callable, typechecker: Any) -> Callable:
    checked: Callable | None = None
    test, left = -1, 0

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked, test, left
        if test != _tests:
            test, left = _tests, CALLS
        if not left:
            return fn(*args, **kwargs)
        left -= 1
        checked = checked or _jaxtyped(fn, typechecker=typechecker)
        return checked(*args, **kwargs)

    call.is_checked = True  # type: ignore[attr-defined]
    return call
