"""layerstep: which solver does a transformer run, and can we write one down?

Names are loaded when first used, so that `layerstep --help` answers without importing torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_ROOMS = {
    "tasks": ["INPUTS", "KERNELS", "Path", "Prompts", "Task", "sample"],
    "solvers": [
        "Boosting",
        "CausalBoosting",
        "CausalRichardson",
        "Chebyshev",
        "ConjugateGradient",
        "GradientDescent",
        "HeavyBall",
        "NadarayaWatson",
        "NearestNeighbors",
        "Nesterov",
        "NewtonSchulz",
        "RecursiveKRR",
        "Richardson",
        "RidgePath",
        "SOLVERS",
        "Shrinkage",
        "Solver",
        "exact",
        "solve",
        "solve_all",
    ],
    "errors": ["FileError", "InputError", "LayerstepError"],
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = ["__version__", *sorted(_ROOM_OF)]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"layerstep.{name}")
    if name not in _ROOM_OF:
        raise AttributeError(f"layerstep has no {name!r}")
    return getattr(importlib.import_module(f"layerstep.{_ROOM_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
