"""The calibration record shipped with the package: thresholds, and the error rates measured with them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from layerstep.files import read_json

RECORD = Path(__file__).with_name("record.json")


@cache
def read_record() -> dict[str, Any]:
    """What `layerstep calibrate` wrote: rule, panel, counts, confusions, provenance."""
    return read_json(RECORD)
