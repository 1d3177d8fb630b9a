"""The error rates of the interventions: `layerstep calibrate --interventions`.

Every network is a piece of its own, kept as it is measured; a piece holds what any rule needs, and the record is made
of them by the rule as it is now.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from layerstep.engines.pieces import compute_pieces
from layerstep.errors import FileError
from layerstep.files import provenance, source_digest
from layerstep.measurement.calibration import causal_error_rates as planted
from layerstep.measurement.calibration import trained_controls as trained
from layerstep.measurement.calibration.trained_controls import DEVELOPMENT, Trained, found_in
from layerstep.measurement.interventions.rule import CausalRule

CODE = ("tasks", "solvers", "training", "measurement/interventions", "measurement/reading")
#: Of a directory that the rule was developed on in part, and of others.
DEVELOPED_ON = "controls"


def calibrate(
    seeds: Sequence[int] = planted.TEST_SEEDS,
    controls: Sequence[Path] = (),
    *,
    counts: Mapping[str, int] | None = None,
    jobs: int = 1,
    work: Path = Path("calibration"),
    progress: Callable[[str], None] = print,
    on: Any = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The record of networks that are drawn and of networks that were trained.

    seeds: of planted and untrained networks, `counts` of each kind. controls: directories of trained ones.
    work: where every network's measurement is kept as it is done; the same call does the rest.
    """
    number = planted.COUNTS | dict(counts or {})
    arguments: dict[str, dict[str, Any]] = {}
    for seed in seeds:
        size = len(planted.jobs(seed, number, planted.FEW))
        arguments |= {f"seed{seed}-{at:03}": {"seed": seed, "at": at, "counts": number} for at in range(size)}
    for directory in controls:
        known = found_in(directory)
        if not known:
            raise FileError(f"{directory} has no trained controls: directories with a control.json.")
        for control, variant in itertools.product(known, trained.VARIANTS):
            if control.group == "positive" or not variant:
                name = f"{directory.name}-{control.facts['name']}-{variant}".strip("-")
                arguments[name] = {"folder": str(control.folder), "variant": variant}
    told = {"code": source_digest(CODE), "on": on, "jobs": jobs, "options": options, "say": progress}
    return record_of(list(compute_pieces(piece, arguments, work / "interventions", **told).values()))


def piece(argument: dict[str, Any]) -> dict[str, Any]:
    """The measurement on one network."""
    if "folder" in argument:
        return trained.assess(Trained.at(Path(argument["folder"])), argument["variant"])
    return planted.assess(planted.jobs(argument["seed"], argument["counts"], planted.FEW)[argument["at"]])


def record_of(rows: Sequence[dict[str, Any]], rule: CausalRule | None = None) -> dict[str, Any]:
    """Counts of measurements by the rule: of planted networks by seed, of trained ones by what was known of them."""
    rule = rule or CausalRule()
    drawn, made = [row for row in rows if "folder" not in row], [row for row in rows if "folder" in row]
    seeds = sorted({row["seed"] // 1000 for row in drawn})
    by_seed = {str(seed): planted.score([row for row in drawn if row["seed"] // 1000 == seed], rule) for seed in seeds}
    tested = planted.score([row for row in drawn if row["seed"] // 1000 != planted.CALIBRATION_SEED], rule)
    folders = sorted({Path(row["folder"]).parent for row in made})
    known = [control for folder in folders for control in found_in(folder)]
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in made:
        first = Path(row["folder"]).parent.name == DEVELOPED_ON
        part = ("development" if row["name"] in DEVELOPMENT else "test") if first else Path(row["folder"]).parent.name
        parts.setdefault(part, []).append(row)
    return {
        "rule": rule.to_dict(),
        "prompts": planted.FEW,
        "calibration_seed": planted.CALIBRATION_SEED,
        "seeds": {seed: _plain(scores) for seed, scores in by_seed.items()},
        "test": _plain(tested),
        "controls": {part: trained.score(each, known, rule) for part, each in parts.items()},
        "claims": {part: trained.said(each, known, rule) for part, each in parts.items()},
        "provenance": provenance(),
    }


def _plain(scores: Mapping[str, planted.Counts]) -> dict[str, Any]:
    return {name: dataclasses.asdict(each) for name, each in scores.items()}


def show(record: dict[str, Any]) -> str:
    """The record as the tables of the documentation."""
    counts = {name: planted.Counts(**each) for name, each in record["test"].items()}
    lines = [planted.table({name: each for name, each in counts.items() if "," in name})]
    lines += [
        "",
        "| trained controls | models | right | no claim | wrong | steps left right |",
        "|---|---|---|---|---|---|",
    ]
    for part, groups in record["controls"].items():
        for name, each in groups.items():
            steps = f"{each['steps_right']}/{each['layers']}" if each["right"] else ""
            cells = [f"{part}: {name}", each["models"], each["right"], each["silent"], each["wrong"], steps]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "| control | group | claim | verdict |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for rows in record["claims"].values() for row in rows]
    return "\n".join(lines)
