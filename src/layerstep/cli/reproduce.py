"""layerstep reproduce: the report."""

from __future__ import annotations

import json as json_module
from pathlib import Path


def run(out: Path = Path("report"), json: bool = False) -> None:
    """Build the report: the paper's figures and numbers, and ours beside them.

    Args:
        out: folder for index.html and the figures and data beside it.
        json: print the outcome as JSON.
    """
    from collections import Counter

    from rich.console import Console

    from layerstep.paper.report import reproduce

    console = Console(stderr=True)
    with console.status("looking at what exists") as status:
        report = reproduce(out, progress=lambda name: status.update(f"making: {name}"))
    counts = Counter(row.outcome for row in report.rows)
    if json:
        summary = {
            "page": str(report.page),
            "made": report.made,
            "found": report.found,
            "failed": report.failed,
            "seconds": round(report.seconds, 2),
            "runs": report.runs,
            "outcomes": counts,
            "rows": [row.to_dict() for row in report.rows],
        }
        print(json_module.dumps(summary, indent=1))
        return
    print(f"{report.page}")
    print(f"  {len(report.made)} artefacts made, {len(report.found)} found, in {report.seconds:.1f} s")
    for outcome, count in counts.items():
        print(f"  {count} numbers of the paper {outcome}")
    missing = [run for run in report.runs if run["trained_steps"] is None]
    print(f"  {len(report.runs) - len(missing)} of {len(report.runs)} training runs are here; missing:")
    for run in missing:
        minutes = "" if run["gpu_minutes"] is None else f"   # {run['gpu_minutes']:.0f} min on one H200"
        print(f"    {run['command']}{minutes}")
    for name, reason in report.failed.items():
        print(f"  {name} could not be made: {reason}")
