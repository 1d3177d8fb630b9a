"""layerstep reproduce: the report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from layerstep.cli.output import Output

if TYPE_CHECKING:
    from layerstep.reproduction import Report


def run(*, out: Path = Path("report"), probe: bool = False) -> Output:
    """Build the report: the paper's figures and numbers, and ours beside them.

    Args:
        out: directory for index.html and the figures and data beside it.
        probe: fit probes of models that have weights and no predictions, even without a GPU (slow).
    """
    from layerstep.progress import showing
    from layerstep.reproduction.reference import outcomes
    from layerstep.reproduction.report import reproduce

    with showing(None, "looking at what exists") as show:
        report = reproduce(out, probe=probe, progress=lambda name: show(words=f"making: {name}"))
    data = {
        "page": str(report.page),
        "made": report.made,
        "found": report.found,
        "failed": report.failed,
        "seconds": round(report.seconds, 2),
        "times": {name: round(seconds, 2) for name, seconds in report.times.items()},
        "runs": report.runs,
        "outcomes": outcomes(report.rows),
        "rows": [row.to_dict() for row in report.rows],
        "claims": [{**asdict(claim), "outcome": claim.outcome} for claim in report.claims],
    }
    return Output(data, lines(report))


def lines(report: Report) -> list[str]:
    """The outcome for people: what was made, what of the runs is here, what is missing and what failed."""
    from layerstep.reproduction.claims.statements import in_words
    from layerstep.reproduction.reference import outcomes
    from layerstep.reproduction.runs import total_minutes

    said = [
        str(report.page),
        f"  {len(report.made)} artefacts made, {len(report.found)} found, in {report.seconds:.1f} s",
    ]
    slowest = [f"{name} {seconds:.1f} s" for name, seconds in report.times.items() if seconds >= 1][:5]
    said += [f"  longest: {', '.join(slowest)}"] if slowest else []
    for outcome, count in outcomes(report.rows).items():
        said.append(f"  {count} numbers of the paper {outcome}")
    said.append(f"  {len(report.claims)} claims of the paper: {in_words(report.claims)}")
    here = [run for run in report.runs if run["trained_steps"] is not None]
    missing = [run for run in report.runs if run["trained_steps"] is None]
    said.append(f"  {len(here)} of {len(report.runs)} training runs are here" + (":" if here else ""))
    said += [f"    {run['name']}: {run['held']}" for run in here]
    if missing:
        said.append("  missing:")
    said += [f"    {run['command']}   # {run['gpu_minutes']:.0f} min on one H200" for run in missing]
    paper, together, ours = (
        total_minutes(ours=ours, shared=shared) / 60 for ours, shared in ((False, False), (False, True), (True, False))
    )
    said.append(
        f"  all of the paper's own runs: {paper:.1f} h on one H200, {together:.1f} h with models of one shape side by "
        f"side and small ones in turn; ours {ours:.1f} h more"
    )
    if report.failed:
        said.append("  left out or not made:")
    return said + [f"    {name}: {reason}" for name, reason in report.failed.items()]
