"""Verdicts on an engine: a unit per setting, so that one process builds one library. They come by the store's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from layerstep.engines import compute_pieces
from layerstep.files import source_digest
from layerstep.reproduction import runs
from layerstep.reproduction.numbers.model import ModelNumbers, Models
from layerstep.reproduction.numbers.store import Store, from_json, to_json
from layerstep.reproduction.numbers.verdicts import model_verdicts

CODE = ("tasks", "solvers", "construction", "measurement", "reproduction")


def make_verdicts(
    store: Store, models: Models, on: Any, options: dict[str, Any], progress: Callable[[str], None]
) -> None:
    """Put the verdicts that the store has not into it."""
    places = {
        "models": str(runs.MODELS.absolute()),
        "store": str(store.folder.absolute()),
        "shipped": None if store.shipped is None else str(store.shipped.absolute()),
    }
    settings = sorted({"sphere", *(model.setting for model in models.values())})
    arguments = {
        setting: {"setting": setting, "places": places}
        | {"numbers": to_json({name: model for name, model in models.items() if model.setting == setting})}
        for setting in settings
    }
    told = {"code": source_digest(CODE), "on": on, "options": options, "say": progress}
    compute_pieces(verdicts_of_setting, arguments, store.folder / "units", **told)


def verdicts_of_setting(argument: dict[str, Any]) -> list[str]:
    """Make them, each kept as it is done; their names."""
    places, shipped = argument["places"], argument["places"]["shipped"]
    models = from_json(dict[str, ModelNumbers], argument["numbers"])
    store = Store(Path(places["store"]), None if shipped is None else Path(shipped))
    with runs.models_in(Path(places["models"])):
        found, _ = model_verdicts(store, models, only=argument["setting"])
    return sorted(found)
