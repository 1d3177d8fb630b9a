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
    """What `layerstep calibrate --interventions` wrote: the rule, its counts by group and seed, trained controls."""
    return json.loads(CAUSAL_RECORD.read_text(encoding="utf-8"))


def trained_positives() -> tuple[int, int] | None:
    """(recognised, of) networks trained to run a solver the interventions try, none of which the rule was made on."""
    parts = read_causal_record().get("controls", {})
    found = [each["positive"] for part, each in parts.items() if part != "development" and "positive" in each]
    return (sum(c["right"] for c in found), sum(c["models"] for c in found)) if found else None


def causal_false_claims() -> tuple[int, int] | None:
    """(claims, of) networks that run none of the solvers tried, planted ones of the test seeds and trained ones that no
    limit was set on; None where not measured."""
    record = read_causal_record()
    later = [each for part, each in record.get("controls", {}).items() if part != "development"]
    parts = [record.get("test", {}), *later]
    found = [c for groups in parts for name, c in groups.items() if "," not in name and name != "positive"]
    return (sum(c["wrong"] for c in found), sum(c["models"] for c in found)) if found else None
