"""What the causal instrument says of networks that were trained to run a solver, or not to.

Each positive is asked about three times: with all solvers; with its own left out, and with the entries of its weights
in another order, when a claim is always wrong.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

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

    @staticmethod
    def at(folder: Path) -> Trained:
        return Trained(folder=folder, facts=json.loads((folder / "control.json").read_text(encoding="utf-8")))

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
    return [Trained.at(file.parent) for file in sorted(directory.glob("*/control.json"))]


#: How a positive is asked about, and the group that its measurement belongs to.
VARIANTS = {"": "", "left-out": "own solver left out", "shuffled": "weights shuffled"}


def assess(control: Trained, variant: str = "", prompts: dict[str, int] | None = None) -> dict[str, Any]:
    """The measurement on one control, which any rule may judge."""
    torch.set_num_threads(1)
    model = GPT.from_pretrained(control.folder).eval()
    if variant == "shuffled":
        _shuffle(model)
    task = Task(**control.facts["task"])
    without = (control.solver,) if variant == "left-out" else ()
    result = intervene(model, task, prompts=prompts, without=without, checks=False)
    name = control.facts["name"]
    return {"name": name, "folder": str(control.folder), "variant": variant, "result": result.to_dict()}


@torch.no_grad()
def _shuffle(model: torch.nn.Module) -> None:
    """The entries of every matrix in another order."""
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        if weight.dim() > 1:
            order = torch.randperm(weight.numel(), generator=generator)
            weight.copy_(weight.flatten()[order].view_as(weight))


def judge(row: dict[str, Any], control: Trained, rule: CausalRule) -> dict[str, Any]:
    """right, wrong or silent, and how many claimed layers have the right number of steps left."""
    result = CausalResult.from_dict(row["result"], rule)
    claims = result.claims
    good = [not row["variant"] and control.group == "positive" and control.right(claim) for claim in claims]
    verdict = "silent" if not claims else "right" if all(good) else "wrong"
    layers = [layer for run in rule.ranges(result.layers) for layer in run]
    steps = sum(layer.match.steps_left == control.steps_left(layer.site) for layer in layers if layer.match)
    group = VARIANTS[row["variant"]] or control.group
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


def said(rows: Iterable[dict[str, Any]], controls: Sequence[Trained], rule: CausalRule) -> list[list[str]]:
    """Of every network its name, its group, what is claimed of it, and the verdict."""
    by_folder = {str(control.folder): control for control in controls}
    lines = []
    for row in rows:
        judged = judge(row, by_folder[row["folder"]], rule)
        claims = CausalResult.from_dict(row["result"], rule).claims
        lines.append([row["name"], judged["group"], "; ".join(map(str, claims)) or "none", judged["verdict"]])
    return lines
