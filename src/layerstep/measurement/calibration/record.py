"""The calibration records shipped with the package: thresholds, and the error rates measured with them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

#: Of which kind of tasks, as `Domain.name`: where its record is.
RECORDS = {"kernel": Path(__file__).with_name("record.json"), "linear": Path(__file__).with_name("linear_record.json")}
CAUSAL_RECORD = Path(__file__).with_name("causal_record.json")


@cache
def read_record(domain: str = "kernel") -> dict[str, Any]:
    """What `layerstep calibrate` wrote: rule, setting, counts, confusions, provenance."""
    return json.loads(RECORDS[domain].read_text(encoding="utf-8"))


@cache
def read_causal_record() -> dict[str, Any]:
    """What `causal_error_rates` wrote: the rule of the interventions, its counts by group and seed, the controls."""
    return json.loads(CAUSAL_RECORD.read_text(encoding="utf-8"))


def trained_positives() -> tuple[int, int] | None:
    """(recognised, of) networks trained to run a solver the interventions try, none of which the rule was made on."""
    parts = read_causal_record().get("controls", {})
    found = [parts[part]["positive"] for part in ("test", "fresh") if "positive" in parts.get(part, {})]
    return (sum(c["right"] for c in found), sum(c["models"] for c in found)) if found else None


def causal_false_claims() -> tuple[int, int] | None:
    """(claims, of) networks that run none of the solvers tried, planted ones of the test seeds and trained ones that no
    limit was set on; None where not measured."""
    record = read_causal_record()
    parts = [record.get("test", {}), *(record.get("controls", {}).get(part, {}) for part in ("test", "fresh"))]
    found = [c for groups in parts for name, c in groups.items() if "," not in name and name != "positive"]
    return (sum(c["wrong"] for c in found), sum(c["models"] for c in found)) if found else None
