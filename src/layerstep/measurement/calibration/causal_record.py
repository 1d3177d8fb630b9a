"""Writes causal_record.json: stored measurements, judged by the rule as it is now.

    python -m layerstep.measurement.calibration.causal_record --planted ROWS... --trained ROWS... [--fresh ROWS...]

ROWS are what causal_error_rates and trained_controls wrote with --rows. Nothing is measured again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layerstep.files import provenance, write_json
from layerstep.measurement.calibration.causal_error_rates import CALIBRATION_SEED, FEW, score, table
from layerstep.measurement.calibration.record import CAUSAL_RECORD
from layerstep.measurement.calibration.trained_controls import DEVELOPMENT, found_in
from layerstep.measurement.calibration.trained_controls import score as score_trained
from layerstep.measurement.calibration.trained_controls import table as table_trained
from layerstep.measurement.interventions.rule import CausalRule


def rows_in(files: Sequence[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines() if line]


def of_planted(rows: list[dict[str, Any]], rule: CausalRule) -> dict[str, Any]:
    """Counts by seed, and of all seeds but the one that limits were set on."""
    seeds = sorted({row["seed"] // 1000 for row in rows})
    groups = {seed: score([row for row in rows if row["seed"] // 1000 == seed], rule) for seed in seeds}
    test = [row for row in rows if row["seed"] // 1000 != CALIBRATION_SEED]
    print(table(score(test, rule)))
    plain = {
        str(seed): {name: dataclasses.asdict(each) for name, each in found.items()} for seed, found in groups.items()
    }
    return {"seeds": plain, "test": {name: dataclasses.asdict(each) for name, each in score(test, rule).items()}}


def of_trained(rows: list[dict[str, Any]], fresh: list[dict[str, Any]], rule: CausalRule) -> dict[str, Any]:
    """Counts of the controls that the rule was developed on, of the others, and of those trained afterwards."""
    known = [each for folder in {Path(row["folder"]).parent for row in [*rows, *fresh]} for each in found_in(folder)]
    parts = {
        "development": [row for row in rows if row["name"] in DEVELOPMENT],
        "test": [row for row in rows if row["name"] not in DEVELOPMENT],
        "fresh": fresh,
    }
    found = {}
    for part, chosen in parts.items():
        if chosen:
            print(f"\n{part}\n{table_trained(chosen, known, rule)}")
            found[part] = score_trained(chosen, known, rule)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planted", type=Path, nargs="+", required=True)
    parser.add_argument("--trained", type=Path, nargs="+", required=True)
    parser.add_argument("--fresh", type=Path, nargs="*", default=[], help="of controls trained later, elsewhere")
    parser.add_argument("--out", type=Path, default=CAUSAL_RECORD)
    given = parser.parse_args(arguments)
    rule = CausalRule()
    record = {"rule": rule.to_dict(), "prompts": FEW, "calibration_seed": CALIBRATION_SEED}
    record |= of_planted(rows_in(given.planted), rule)
    record["controls"] = of_trained(rows_in(given.trained), rows_in(given.fresh), rule)
    write_json(given.out, record | {"provenance": provenance()})


if __name__ == "__main__":
    main()
