"""The default model with an open mask, trained on labels: its error and how its loss went. Read from results/open."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass

from layerstep.errors import FileError, as_float
from layerstep.files import read_json
from layerstep.reproduction import runs

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
    home, found = runs.MODELS.parent / "open", {}
    for folder in sorted(home.glob("open-*")) if home.is_dir() else []:
        with contextlib.suppress(FileError, KeyError, TypeError, ValueError, OSError):
            run = read_json(folder / "config.json")["about"]["run"]
            text = (folder / "log.jsonl").read_text(encoding="utf-8")
            records = [json.loads(line) for line in text.splitlines()]
            steps, loss = _thinned([int(r["step"]) for r in records], [as_float(r["loss"]) for r in records])
            found[folder.name] = OpenMask(
                name=folder.name,
                inputs=str(run["task"]["inputs"]),
                steps=steps,
                loss=loss,
                over_krr=as_float(read_json(folder / "evaluation.json")["evaluation"]["ratio"]),
            )
    return found


def _thinned(steps: list[int], loss: list[float]) -> tuple[list[int], list[float]]:
    """Means over as many neighbours as leave about POINTS of them; the first records are as they are."""
    size = max(1, len(steps) // POINTS)
    groups = [slice(start, start + size) for start in range(0, len(steps), size)]
    return [steps[group][-1] for group in groups], [sum(loss[group]) / len(loss[group]) for group in groups]
