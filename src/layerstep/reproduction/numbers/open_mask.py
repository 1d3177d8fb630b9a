"""The default model with an open mask, trained on labels: its error and how its loss went. Read from results/open."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from layerstep.errors import FileError, as_float
from layerstep.folders.layout import LOG
from layerstep.reproduction.runs import results_folder
from layerstep.reproduction.status import Card
from layerstep.tasks import Task
from layerstep.training.directory import Trained

#: Records of a log that are kept, about; a record's loss is the mean over so many.
POINTS = 60


@dataclass(frozen=True, kw_only=True)
class OpenMask:
    """over_krr: error at n = N over that of exact KRR. loss: of training, by step."""

    name: str
    inputs: str
    steps: list[int]
    loss: list[float]
    over_krr: float

    @property
    def lowest(self) -> tuple[int, float]:
        """(step, loss) where it was least."""
        loss, step = min(zip(self.loss, self.steps, strict=True))
        return step, loss


def open_mask_models() -> dict[str, OpenMask]:
    """By name; what cannot be read is left out."""
    home, found = results_folder() / "open", {}
    for folder in sorted(home.glob("open-*")) if home.is_dir() else []:
        with contextlib.suppress(FileError, KeyError, TypeError, ValueError, OSError):
            task, card = Trained.read(folder).run.task, Card.read(folder)
            records = map(json.loads, (folder / LOG).read_text(encoding="utf-8").splitlines())
            points = [(int(each["step"]), as_float(each["loss"])) for each in records]
            steps, loss = _thinned(*zip(*points, strict=True))
            if isinstance(task, Task) and card.ratio > 0:
                found[folder.name] = OpenMask(
                    name=folder.name, inputs=task.inputs, steps=steps, loss=loss, over_krr=card.ratio
                )
    return found


def _thinned(steps: Sequence[int], loss: Sequence[float]) -> tuple[list[int], list[float]]:
    """Means over as many neighbours as leave about POINTS of them; the first records are as they are."""
    size = max(1, len(steps) // POINTS)
    groups = [slice(start, start + size) for start in range(0, len(steps), size)]
    return [steps[group][-1] for group in groups], [sum(loss[group]) / len(loss[group]) for group in groups]
