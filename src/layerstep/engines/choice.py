"""on=...: an engine by its name, or anything that has submit(function, argument)."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerstep.engines.pool import Engine
from layerstep.errors import InputError, quoted, require

NAMED = ("slurm", "ray")
INSTALLED_BY = {"submitit": "slurm", "ray": "ray"}


def require_engine(on: Any, options: Mapping[str, Any]) -> None:
    """An InputError, before anything is written or started, where `on` cannot be used here."""
    if on is None:
        require(not options, "options", ", ".join(options), "left out without an engine", "Choose one: on='slurm'.")
    elif on == "slurm" or _is_submitit_on_slurm(on):
        installed("submitit")
        there = shutil.which("sbatch") and shutil.which("squeue")
        require(bool(there), "on", "'slurm'", "used where sbatch and squeue are", "Log in to the cluster first.")
    elif on == "ray":
        from layerstep.engines.ray_tasks import address_in, require_token

        require_token(address_in(options))
        installed("ray")
    else:
        allowed = f"None, one of {', '.join(NAMED)}, or an executor with submit(function, argument)"
        require(callable(getattr(on, "submit", None)), "on", quoted(on), allowed, "Such as a ProcessPoolExecutor.")
        require(not options, "options", ", ".join(options), "left out", "An executor comes with its own.")


def choose_engine(
    on: Any, folder: Path, *, gpus: int | None, threads: int | None, options: Mapping[str, Any]
) -> Engine:
    """The engine `on`. gpus: of a unit; threads: of a unit; what it writes for itself goes to `folder`."""
    require_engine(on, options)
    if on == "slurm" or _is_submitit_on_slurm(on):
        from layerstep.engines.slurm import Slurm

        return Slurm(folder / ".jobs", None if on == "slurm" else on, gpus=gpus, threads=threads, options=options)
    if on == "ray":
        from layerstep.engines.ray_tasks import RayTasks

        return RayTasks(folder / ".ray", gpus=gpus, threads=threads, options=options)
    return Engine(on, gpus=gpus, threads=threads)


def _is_submitit_on_slurm(on: Any) -> bool:
    return type(on).__module__.startswith("submitit.") and getattr(on, "cluster", type(on).__name__) in (
        "slurm",
        "SlurmExecutor",
    )


def installed(package: str) -> Any:
    """A package that an engine needs, or an InputError with the line that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        extra = INSTALLED_BY[package]
        raise InputError(
            f"on = {extra!r}: {package} is not installed here. Run: pip install 'layerstep[{extra}]'"
        ) from error


def visible_gpus() -> int:
    """GPUs of this machine that this process may use."""
    import torch

    return torch.cuda.device_count()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
