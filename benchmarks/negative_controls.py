"""What the rule does on negative controls that no threshold has seen: `python benchmarks/negative_controls.py`.

Claims of a class count as false, over all layers and in windows of four, on three input distributions and fresh seeds.
The limit on class ridge was set on seed 31, where the ridge path of another kernel had been claimed; 32 tests it.
--record writes the counts beside the calibration's own, where every verdict prints them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from layerstep.files import write_json
from layerstep.measurement.calibration.error_rates import INPUTS, Row, suite_rows
from layerstep.measurement.calibration.negatives import LATER
from layerstep.measurement.calibration.record import RECORDS, read_record
from layerstep.measurement.identification.decision import Rule

NAMES = [name for name, *_ in LATER]
SCOPES = ("overall", "window")


def rates(rows: Sequence[Row], rule: Rule, names: Sequence[str] = NAMES) -> dict[str, Any]:
    """Claims on these controls, in all and by name: over all layers and in windows."""
    found: dict[str, Any] = {"seeds": sorted({row.seed for row in rows}), "by": {}}
    for scope in SCOPES:
        tested = [row for row in rows if row.scope == scope and row.name in names]
        found[scope] = {"claims": sum(row.claim(rule) is not None for row in tested), "of": len(tested)}
        for name in names:
            claims = [row.claim(rule) for row in tested if row.name == name]
            named = Counter(claim for claim in claims if claim is not None)
            found["by"].setdefault(name, {})[scope] = {"claims": dict(named), "of": len(claims)}
    return found


def table(found: dict[str, Any]) -> str:
    lines = ["| negative control | all layers | windows of four |", "|---|---|---|"]
    for name, by in found["by"].items():
        cells = []
        for scope in SCOPES:
            named, of = by[scope]["claims"], by[scope]["of"]
            said = ", ".join(f"{kind} {count}" for kind, count in sorted(named.items()))
            cells.append(f"{sum(named.values())} of {of}" + (f" ({said})" if said else ""))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[31, 32])
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--names", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--overall", action="store_true", help="all layers only, no windows: half the time")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    asked: dict[str, Any] = {"sequences": arguments.prompts, "names": arguments.names, "parts": not arguments.overall}
    rows = [row for seed in arguments.seeds for inputs in INPUTS for row in suite_rows(inputs, seed, **asked)]
    found = rates(rows, Rule(**read_record()["rule"]), arguments.names)
    print(table(found))
    if arguments.record:
        write_json(RECORDS["kernel"], read_record() | {"later": found})


if __name__ == "__main__":
    main()
