"""What the causal instrument says of networks that were trained to run a solver, or not to.

    python -m layerstep.measurement.calibration.trained_controls results/controls [--only development | test]

Each positive is asked about twice: with all solvers, and with its own left out, when a claim is always wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from layerstep.files import write_text
from layerstep.measurement.interventions.candidates import SOLVERS
from layerstep.measurement.interventions.instrument import intervene
from layerstep.measurement.interventions.result import CausalResult, Claim
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.tasks import Task
from layerstep.training import GPT

#: Those that the measurement and the limits were developed on (docs/interventions.md).
DEVELOPMENT = (
    "richardson-functional",
    "richardson-dual",
    "boost",
    "near-two-in-turn",
    "decoy-dual",
    "labels",
    "causal-richardson",
)
#: How far a claimed bandwidth may be off.
WIDTH = 1.1


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A control in its directory, as its `control.json` describes it. A network that runs a solver with a bandwidth of
    its own is a positive: a claim must name the bandwidth."""

    folder: Path
    facts: dict[str, Any]

    @property
    def mechanism(self) -> dict[str, Any]:
        return self.facts["mechanism"] or {}

    @property
    def solver(self) -> str:
        return self.mechanism.get("solver", "")

    @property
    def group(self) -> str:
        """positive, untried (a solver the search does not have), near-miss, decoy or labels."""
        kind = self.facts["kind"]
        if kind in ("positive", "near-miss") and self.solver in SOLVERS[self.facts["mask"]]:
            return "positive"
        return "untried" if kind == "positive" else kind

    @property
    def bandwidth(self) -> float:
        return self.mechanism["parameters"]["v"] or self.facts["task"]["v"]

    def steps_left(self, site: str) -> int:
        """After `block l`."""
        layers, block = len(self.facts["state_rms"]), int(site.split()[-1])
        if self.mechanism["class"] == "Descent":  # the residual is noted in odd blocks, w moves in even ones
            return sum(1 for move in range(block + 2, layers) if move % 2 == 0)
        return layers - block - (self.mechanism["class"] == "Dual")  # the output is made of w one block later

    def right(self, claim: Claim) -> bool:
        same = (claim.solver, claim.form) == (self.solver, self.mechanism.get("form"))
        return same and abs(math.log(claim.bandwidth / self.bandwidth)) < math.log(WIDTH)


def found_in(directory: Path) -> list[Trained]:
    files = sorted(directory.glob("*/control.json"))
    return [Trained(folder=file.parent, facts=json.loads(file.read_text(encoding="utf-8"))) for file in files]


def assess(control: Trained, left_out: bool = False, prompts: dict[str, int] | None = None) -> dict[str, Any]:
    """The measurement on one control, which any rule may judge."""
    torch.set_num_threads(1)
    model = GPT.from_pretrained(control.folder).eval()
    task = Task(**control.facts["task"])
    without = (control.solver,) if left_out else ()
    result = intervene(model, task, prompts=prompts, without=without, checks=False)
    name = control.facts["name"]
    return {"name": name, "folder": str(control.folder), "left_out": left_out, "result": result.to_dict()}


def judge(row: dict[str, Any], control: Trained, rule: CausalRule) -> dict[str, Any]:
    """right, wrong or silent, and how many claimed layers have the right number of steps left."""
    result = CausalResult.from_dict(row["result"], rule)
    claims = result.claims
    good = [not row["left_out"] and control.group == "positive" and control.right(claim) for claim in claims]
    verdict = "silent" if not claims else "right" if all(good) else "wrong"
    layers = [layer for run in rule.ranges(result.layers) for layer in run]
    steps = sum(layer.match.steps_left == control.steps_left(layer.site) for layer in layers if layer.match)
    group = "own solver left out" if row["left_out"] else control.group
    return {
        "group": group,
        "verdict": verdict,
        "layers": len(layers),
        "steps_right": steps if verdict == "right" else 0,
    }


def score(rows: Iterable[dict[str, Any]], controls: Sequence[Trained], rule: CausalRule) -> dict[str, dict[str, int]]:
    """Counts by group."""
    by_folder = {str(control.folder): control for control in controls}
    found: dict[str, Counter] = {}
    for row in rows:
        judged = judge(row, by_folder[row["folder"]], rule)
        counts = found.setdefault(
            judged["group"], Counter(models=0, right=0, silent=0, wrong=0, layers=0, steps_right=0)
        )
        counts.update({"models": 1, judged["verdict"]: 1, "steps_right": judged["steps_right"]})
        counts["layers"] += judged["layers"]
    return {group: dict(counts) for group, counts in sorted(found.items())}


def table(rows: Iterable[dict[str, Any]], controls: Sequence[Trained], rule: CausalRule) -> str:
    """A line per network: what is claimed, or what speaks against its best site."""
    by_folder = {str(control.folder): control for control in controls}
    lines = ["| control | group | claim | verdict |", "|---|---|---|---|"]
    for row in rows:
        judged = judge(row, by_folder[row["folder"]], rule)
        result = CausalResult.from_dict(row["result"], rule)
        said = "; ".join(map(str, result.claims)) or "none"
        lines.append(f"| {row['name']} | {judged['group']} | {said} | {judged['verdict']} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", choices=["development", "test"], help="one part of the shipped controls")
    parser.add_argument("--rows", type=Path, help="write every measurement to this file")
    given = parser.parse_args(arguments)
    controls = found_in(given.directory)
    if given.only:
        wanted = given.only == "development"
        controls = [each for each in controls if (each.facts["name"] in DEVELOPMENT) == wanted]
    rows = []
    for control in controls:
        for left_out in (False, True) if control.group == "positive" else (False,):
            rows.append(assess(control, left_out))
            print(table(rows[-1:], controls, CausalRule()).splitlines()[-1], flush=True)
    print(
        json.dumps({"rule": dataclasses.asdict(CausalRule()), "counts": score(rows, controls, CausalRule())}, indent=1)
    )
    if given.rows:
        write_text(given.rows, "\n".join(json.dumps(row) for row in rows))


if __name__ == "__main__":
    main()
