"""The calibration record shipped with the package: thresholds, and the error rates measured with them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("record.json")


@cache
def read_record() -> dict[str, Any]:
    """What `layerstep calibrate` wrote: rule, setting, counts, confusions, provenance."""
    return json.loads(RECORD.read_text(encoding="utf-8"))
