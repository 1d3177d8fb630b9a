"""Error rates of the causal instrument on planted mechanisms (`layerstep calibrate --interventions`).

The limits of the rule were set on one seed; others are drawn here. Every positive is asked about twice: with
all solvers, and with its own left out, when a claim is always wrong.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from layerstep.measurement.calibration.mechanisms import Mechanism, near_misses, positives
from layerstep.measurement.interventions.instrument import intervene
from layerstep.measurement.interventions.result import CausalResult, Contender
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.tasks import Task
from layerstep.training import GPT, Model

#: The seed the limits were set on, those they are tested on, and how many networks of each kind a seed has.
CALIBRATION_SEED, TEST_SEEDS = 10, (11, 12)
COUNTS = {"positive": 28, "negative": 40, "untrained": 4}
#: Fewer prompts and shorter ones than a model of interest gets: what is recognised here is recognised there.
FEW = {"fit": 96, "choose": 24, "score": 48, "check": 12}
LENGTHS = (16, 24)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One model to ask about; `mechanism` is None for an untrained GPT."""

    mechanism: Mechanism | None
    task: Task
    seed: int
    prompts: dict[str, int]
    left_out: bool = False  # the truth's own solver is not among those tried

    @property
    def group(self) -> str:
        if self.mechanism is None:
            return "untrained"
        return "left out" if self.left_out else self.mechanism.group


def jobs(seed: int, counts: dict[str, int], prompts: dict[str, int]) -> list[Job]:
    """The models of one seed; the input distribution and the context length are drawn with them."""
    found = []
    tasks = [Task(inputs=inputs, N=N) for inputs in ("sphere", "uniform", "gaussian") for N in LENGTHS]
    drawn = [*positives(tasks[0], counts["positive"], seed), *near_misses(tasks[0], counts["negative"], seed)]
    for index, mechanism in enumerate(drawn):
        given = {"task": tasks[index % len(tasks)], "seed": 1000 * seed + index, "prompts": prompts}
        found.append(Job(mechanism=mechanism, **given))
        if mechanism.truth:
            found.append(Job(mechanism=mechanism, left_out=True, **given))
    for index in range(counts["untrained"]):
        found.append(Job(mechanism=None, task=tasks[2 * index % 6], seed=1000 * seed + 900 + index, prompts=prompts))
    return found


def assess(job: Job) -> dict[str, Any]:
    """What the instrument says of one model, and what it is."""
    torch.set_num_threads(1)
    spec = job.mechanism
    if spec is None:
        shape = Model(layers=6, heads=4, width=64)
        model: Any = GPT(shape, d=job.task.d, N=job.task.N).initialise(job.seed).eval()
        without: tuple[str, ...] = ()
    else:
        model = spec.reader(job.task)
        without = (spec.solver,) if job.left_out else ()
    result = intervene(model, job.task, seed=job.seed, prompts=job.prompts, without=without, checks=False)
    return {
        "group": job.group,
        "task": job.task.to_dict(),
        "seed": job.seed,
        "mechanism": None if spec is None else spec.to_dict(),
        "truth": None if spec is None or job.left_out else spec.truth,
        "steps_left": None if spec is None else spec.steps_left,
        "eta": None if spec is None else spec.eta(job.task),
        "result": result.to_dict(),
    }


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Of the models of one group: how many, and of how many what was said. Steps and bandwidths: of claimed layers."""

    models: int = 0
    right: int = 0  # solver and form of every claim are the truth
    wrong: int = 0  # some claim is not
    silent: int = 0
    layers: int = 0
    steps_right: int = 0
    testable: int = 0  # layers of positives at which a state and a step are left
    bandwidth_right: int = 0  # within 2 %
    size_right: int = 0  # the solver's own, or one for all prompts within 5 %


def score(rows: Iterable[dict[str, Any]], rule: CausalRule) -> dict[str, Counts]:
    """Counts per group (and mask) under a rule; every result keeps what another rule needs."""
    found: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for row in rows:
        result = CausalResult.from_dict(row["result"], rule)
        truth = row["truth"]
        mask = result.facts["mask"]
        counts = collections.Counter(models=1)
        claims = result.claims
        good = [truth is not None and (claim.solver, claim.form) == tuple(truth) for claim in claims]
        counts["silent" if not claims else "right" if all(good) else "wrong"] += 1
        if truth is not None:
            left = dict(zip([layer.site for layer in result.layers], row["steps_left"], strict=True))
            counts["testable"] += max(len(result.layers) - 2, 0)
            for run_ in result.rule.ranges(result.layers):
                for layer in run_:
                    match = layer.match
                    assert match is not None
                    counts["layers"] += 1
                    counts["steps_right"] += match.steps_left == left[layer.site]
                    counts["bandwidth_right"] += abs(math.log(match.bandwidth / row["mechanism"]["v"])) < 0.02
                    counts["size_right"] += _right_size(match.nearest, row["eta"])
        for name in (row["group"], f"{row['group']}, {mask}"):
            found[name].update(counts)
    return {name: Counts(**counts) for name, counts in sorted(found.items())}


def _right_size(found: Contender, eta: float | None) -> bool:
    return not found.fitted if eta is None else abs(math.log(found.eta / eta)) < 0.05


def table(scores: dict[str, Counts]) -> str:
    """One line per group."""
    heads = ["group", "models", "right", "no claim", "wrong", "layers claimed", "steps left", "bandwidth", "step size"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, c in scores.items():
        claimed = f"{c.layers}/{c.testable}" if c.testable else ""
        counted = (
            f"{each}/{c.layers}" if c.layers else "" for each in (c.steps_right, c.bandwidth_right, c.size_right)
        )
        lines.append(
            f"| {name} | {c.models} | {c.right} | {c.silent} | {c.wrong} | {claimed} | {' | '.join(counted)} |"
        )
    return "\n".join(lines)
