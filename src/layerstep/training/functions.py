"""Functions and classes of the user's: how they reach workers, and what they are known by."""

from __future__ import annotations

import base64
import functools
import json
import pickle
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import layerstep
from layerstep.errors import InputError, in_words
from layerstep.files import digest
from layerstep.tasks import INPUTS, KERNELS, TASKS, kernels
from layerstep.tasks import inputs as distributions
from layerstep.training.config import Run

TABLES: dict[str, dict[str, Any]] = {"kernel": KERNELS, "inputs": INPUTS, "task": TASKS}


def functions_of(runs: Sequence[Run]) -> dict[str, Any]:
    """Kernels, input distributions and kinds of tasks that a worker would not have, as "kernel NAME"."""
    found: dict[str, Any] = {}
    for task in [run.task for run in runs]:
        if (kernel := getattr(task, "kernel", None)) in KERNELS and not kernels.is_built_in(KERNELS[kernel]):
            found[f"kernel {kernel}"] = KERNELS[kernel]
        if (inputs := getattr(task, "inputs", None)) in INPUTS and INPUTS[inputs] not in distributions.BUILT_IN:
            found[f"inputs {inputs}"] = INPUTS[inputs]
        if (kind := getattr(task, "type", None)) in TASKS and not TASKS[kind].__module__.startswith("layerstep."):
            found[f"task {kind}"] = TASKS[kind]
    return found


def register(functions: Mapping[str, Any]) -> None:
    """Enter what a driver sent where names are looked up."""
    for name, function in functions.items():
        kind, _, name = name.partition(" ")
        if kind in TABLES:
            TABLES[kind][name] = function


def packed(functions: Mapping[str, Any]) -> str | None:
    """Functions as text: by value where a worker could not import them."""
    if not functions:
        return None
    try:
        import cloudpickle
    except ImportError as error:
        words = (
            f"{', '.join(functions)}: functions of your own reach workers by cloudpickle. Run: pip install cloudpickle"
        )
        raise InputError(words) from error
    mine = {module for function in functions.values() if (module := _module_of_the_user(function)) is not None}
    before = cloudpickle.list_registry_pickle_by_value()
    for module in mine:
        cloudpickle.register_pickle_by_value(module)
    try:
        return base64.b64encode(cloudpickle.dumps(dict(functions))).decode()
    except Exception as error:  # whatever the user's objects raise
        raise InputError(f"{', '.join(functions)}: cannot be sent to workers: {in_words(error)}") from error
    finally:
        for module in mine:
            if module.__name__ not in before:
                cloudpickle.unregister_pickle_by_value(module)


def unpacked(text: str | None) -> dict[str, Any]:
    """Only what the driver of this sweep packed is unpickled."""
    return {} if text is None else pickle.loads(base64.b64decode(text))


def _module_of_the_user(function: Any) -> Any:
    """The module of a function that is not installed, but lies in some directory of the user's."""
    inner = getattr(function, "func", function)
    module = sys.modules.get(getattr(inner, "__module__", None) or type(inner).__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return None
    installed = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed.append(str(Path(layerstep.__file__).parent))
    return None if any(Path(file).is_relative_to(place) for place in installed) else module


def name_of(function: Any) -> str:
    """Module, name and a digest of its code; of a partial function those of what it calls, with the arguments."""
    inner = function.func if isinstance(function, functools.partial) else function
    kind = inner if hasattr(inner, "__qualname__") else type(inner)
    given = [function.args, function.keywords] if isinstance(function, functools.partial) else []
    told = json.dumps([given, _code(getattr(kind, "__code__", None))], default=lambda value: type(value).__qualname__)
    return f"{kind.__module__}.{kind.__qualname__}-{digest(told)}"


def _code(code: Any) -> Any:
    """What a function does, as JSON."""
    if not isinstance(code, CodeType):
        return sorted(map(repr, code)) if isinstance(code, frozenset) else repr(code)
    return [code.co_code.hex(), list(code.co_names), [_code(each) for each in code.co_consts]]
