"""Kinds of tasks by the `type` that stands in files. A kind of the user's is a class and its entry in TASKS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerstep.errors import quoted, require, require_kind
from layerstep.tasks.regression import LinearRegression
from layerstep.tasks.task import Task

TASKS: dict[str, Any] = {"linear-regression": LinearRegression}


def task_from_dict(values: Mapping[str, Any]) -> Any:
    """The task of `to_dict`. Nothing is imported because a file names it."""
    require_kind("task", values, Mapping, "Such as ls.Task().to_dict().")
    if "type" not in values:
        return Task.from_dict(values)
    kind = values["type"]
    remedy = "Register the class of that task, ls.TASKS['name'] = Class, or run with --import MODULE that does."
    known = isinstance(kind, str) and kind in TASKS
    require(known, "task type", quoted(kind), f"one of {', '.join(TASKS)}, or none for a Gaussian process", remedy)
    return TASKS[kind].from_dict(values)
