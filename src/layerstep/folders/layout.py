"""What a run's directory holds, read without torch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RUNS, LOG, CHECKPOINTS, SNAPSHOTS, LOCK = "runs.json", "log.jsonl", "checkpoints", "snapshots", ".lock"
CONFIG, EVALUATION, FAILED = "config.json", "evaluation.json", "failed.json"
TAIL = 8192  # bytes of a log: several records, of one run or of four


def last_records(folder: Path) -> list[dict[str, Any]]:
    """The last records of the log, oldest first; what a kill cut short is left out."""
    try:
        with open(folder / LOG, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    records = []
    for line in lines:
        try:
            record = json.loads(line)
            records.append({**record, "step": int(record["step"]), "seconds": float(record["seconds"])})
        except (ValueError, TypeError, KeyError):
            continue
    return records


def facts_of(folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of training, and the runs that were trained stacked."""
    records = last_records(folder)
    return {"seconds": records[-1]["seconds"] if records else None, "stack": list(about.get("folders", []))}
