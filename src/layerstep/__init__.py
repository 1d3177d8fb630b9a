"""layerstep: which solver does a transformer run, and can we write one down?

Names are loaded when first used, so that `layerstep --help` answers without importing torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerstep.construction import *  # noqa: F403
    from layerstep.errors import *  # noqa: F403
    from layerstep.measurement import *  # noqa: F403
    from layerstep.reproduction import *  # noqa: F403
    from layerstep.solvers import *  # noqa: F403
    from layerstep.tasks import *  # noqa: F403
    from layerstep.training import *  # noqa: F403

__version__ = "0.1.0"

_ROOMS = {
    "tasks": "INPUTS KERNELS Path Prompts Task Trajectory sample",
    "solvers": """SOLVERS Boosting CausalBoosting CausalRichardson Chebyshev ConjugateGradient GradientDescent HeavyBall
        NadarayaWatson NearestNeighbors Nesterov NewtonSchulz RecursiveKRR Richardson RidgePath Shrinkage Solver
        exact solve solve_all""",
    "construction": "Certificate Construction Prediction TransformerKRR construct",
    "training": "GPT Model PRESETS Run train",
    "measurement": "GPTReader Hooked Match Probes Verdict identify layers_won match probe",
    "reproduction": "reproduce",
    "errors": "FileError InputError LayerstepError",
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names.split()}
__all__ = list(_ROOM_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"layerstep.{name}")
    if name not in _ROOM_OF:
        raise AttributeError(f"layerstep has no {name!r}")
    return getattr(importlib.import_module(f"layerstep.{_ROOM_OF[name]}"), name)


def __dir__() -> list[str]:
    return ["__version__", *sorted(_ROOM_OF)]
