"""Error rates: identify every planted model, count right and false claims, set the threshold, write the record.

    layerstep calibrate --jobs 2     # all seeds and input distributions; rewrites record.json
    layerstep calibrate --on slurm   # the same, a job for each of 15 pieces
    layerstep calibrate --keep       # the test seeds only, with the limit as it is
    layerstep calibrate --show       # the tables of the shipped record
    layerstep calibrate --task linear           # the same for linear regression: linear_record.json
    layerstep calibrate --task linear --d 10    # the shipped limits on a task of your own

The limits are set on one seed and the error rates are reported on two others, with other prompts, schedules,
bandwidths, ridges and noise. Every planted solver is tested twice: with the full library, and with its own class
taken out, when the only right answer is not to claim. Beside the rule itself, the rates of three more results are
measured: row sums or none, the veto on what is not linear in the labels, and the rule on fewer sequences.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from layerstep.engines import compute_pieces
from layerstep.files import provenance, source_digest
from layerstep.measurement.calibration.linear_models import form_of, variant_of
from layerstep.measurement.calibration.planted import Planted, calibration_suite
from layerstep.measurement.identification.crossfit import Instrument, Residuals
from layerstep.measurement.identification.decision import IDENTIFIED, RangeResult, Rule, decide, result_on
from layerstep.measurement.identification.descriptions import RowSums, Schedule, Variants
from layerstep.measurement.identification.domains import LINEAR, domain_of
from layerstep.measurement.identification.families import FAMILIES
from layerstep.measurement.identification.label_interventions import LabelInterventions, intervene_on_labels
from layerstep.tasks import LinearRegression, Task, sample

VERSION = 2
CODE = ("tasks", "solvers", "construction", "training", "measurement")
INPUTS = ("sphere", "uniform", "gaussian")
CALIBRATION_SEED, TEST_SEEDS, LINEAR_TEST_SEEDS = 11, (18, 19), (40, 41)
FEWER = (32, 64, 128)  # sequences, on the first test seed
#: Classes that the veto on layers not linear in the labels does not concern.
NONLINEAR = frozenset({"cg-weights"} | {family.kind for family in FAMILIES if not family.linear})
RELABELLED = 64  # prompts that linear tasks' models are run on with other labels
V_LIMITS = (0.004, 0.006, 0.008, 0.01, 0.012, 0.015, 0.02, 0.03)
#: Margins tried on linear tasks, which have nearer neighbours: a ridge path leaves .006 of GD++ with one step size.
LINEAR_MARGINS = (0.003, 0.004, 0.006, 0.01)
LINEAR_RULE = Rule(ridge_limit=0.004)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One result on one planted model: what is right, and the numbers the rule decides on."""

    name: str
    group: str
    noise: str
    inputs: str
    seed: int
    scope: str  # overall, removed (own class taken out), window, layer
    truth: str | None
    nearest: str | None
    U: float
    V: float
    margin: float
    vetoed: bool = False  # a claim that the test of linearity in the labels withdraws
    row_sums: bool | None = None  # whether the planted model divides by row sums; None: its class does not ask
    says: str | None = None  # row sums, no row sums, undecided; None: not asked
    schedule: str | None = None  # the form of the steps' growth, where the class is claimed; "" where none is named
    variant: str | None = None  # of its class, "" where undecided

    def claim(self, rule: Rule) -> str | None:
        """The class claimed under a rule."""
        if self.nearest is None:
            return None
        return self.nearest if decide(self.V, self.margin, self.U, rule, self.nearest) == IDENTIFIED else None


def suite_rows(
    asked: str | LinearRegression,
    seed: int,
    *,
    sequences: int = 256,
    rule: Rule | None = None,
    names: Collection[str] | None = None,
    parts: bool = True,
    instrument: Instrument | None = None,
) -> list[Row]:
    """All results on one task and seed, or those of the planted models with these names. asked: inputs, of the paper's
    task, or a linear task.

    parts=True adds single layers, windows of four, and interventions; "bent" noise is for these alone.
    """
    rule = rule or Rule()
    task = Task(inputs=asked) if isinstance(asked, str) else asked
    inputs = asked if isinstance(asked, str) else repr(asked)
    few = RELABELLED if domain_of(task) is LINEAR else sequences
    prompts = sample(task, sequences, seed)
    instrument = instrument or Instrument.prepare(prompts, task)
    rows: list[Row] = []
    for planted in calibration_suite(prompts, task, instrument.library.contexts, seed, names):
        if planted.noise == "bent" and not (parts and isinstance(asked, str)):
            continue
        L = len(planted.values)
        residuals = instrument.cross_fit(planted.values, torch.arange(1, L + 1, dtype=torch.float64))

        tests = None
        if parts and planted.noise in ("none", "bent"):
            tests = intervene_on_labels(planted.model_fn, prompts[:few], task, residuals.layers, seed=seed)
        row = partial(_row, inputs, seed, planted, residuals, tests, rule)
        rows.append(row("overall", planted.solver, result_on(residuals, rule, seed=seed)))
        if planted.group == "inside" and planted.solver is not None:
            rows.append(row("removed", None, result_on(residuals, rule, without=[planted.solver], seed=seed)))
        if parts and planted.noise in ("iid", "clutter"):
            for first in range(0, L, 4):
                truths = set(planted.truth[first : first + 4])
                truth = planted.truth[first] if len(truths) == 1 else None
                found = result_on(residuals, rule, layers=range(first, min(first + 4, L)), seed=seed)
                rows.append(row("window", truth, found))
            for index in range(1, L, 3):
                found = result_on(residuals, rule, layers=[index], seed=seed)
                rows.append(row("layer", planted.truth[index], found))
    return rows


def _row(
    inputs: str,
    seed: int,
    planted: Planted,
    residuals: Residuals,
    tests: LabelInterventions | None,
    rule: Rule,
    scope: str,
    truth: str | None,
    found: RangeResult,
) -> Row:
    sums = RowSums.of(residuals, found, rule, seed) if planted.row_sums is not None else None
    schedule = variant = None
    if scope == "overall" and found.solver is not None and residuals.library.domain is LINEAR:
        grown, which = Schedule.of(residuals, found, rule, seed), Variants.of(residuals, found, rule, seed)
        schedule = None if grown is None else grown.form or ""
        variant = None if which is None else which.best if which.decided else ""
    return Row(
        name=planted.name,
        group=planted.group,
        noise=planted.noise,
        inputs=inputs,
        seed=seed,
        scope=scope,
        truth=truth,
        nearest=found.nearest,
        U=found.U,
        V=found.V,
        margin=found.margin,
        vetoed=tests is not None and tests.veto(found) is not found,
        row_sums=planted.row_sums,
        says=None if sums is None else sums.status,
        schedule=schedule,
        variant=variant,
    )


def count(rows: Sequence[Row], rule: Rule) -> dict[str, Any]:
    """Per scope: inside right / wrong / of; false: claims where the truth is outside, or of another class."""
    out: dict[str, Any] = {}
    for scope in ("overall", "window", "layer"):
        tested = [row for row in rows if row.scope == scope and row.group != "borderline" and row.noise != "bent"]
        inside = [row for row in tested if row.truth is not None]
        outside = [row for row in tested if row.truth is None]
        claims = [row.claim(rule) for row in inside]
        right = sum(claim == row.truth for claim, row in zip(claims, inside, strict=True))
        wrong = sum(claim not in (None, row.truth) for claim, row in zip(claims, inside, strict=True))
        out[scope] = {
            "inside": {"right": right, "wrong": wrong, "of": len(inside)},
            "outside": {"claims": sum(row.claim(rule) is not None for row in outside), "of": len(outside)},
        }
    removed = [row for row in rows if row.scope == "removed" and row.noise != "bent"]
    overall = out["overall"]
    overall["removed"] = {"claims": sum(row.claim(rule) is not None for row in removed), "of": len(removed)}
    overall["false"] = {
        "claims": overall["outside"]["claims"] + overall["removed"]["claims"],
        "of": overall["outside"]["of"] + overall["removed"]["of"],
    }
    return out


def count_vetoes(rows: Sequence[Row], rule: Rule) -> dict[str, Any]:
    """Claims the veto withdraws, right ones (a loss) and false ones (a gain), where the model was re-run."""
    tested = [row for row in rows if row.scope in ("overall", "removed") and row.group != "borderline"]
    out: dict[str, Any] = {}
    for noise in ("none", "bent"):
        claims = [row for row in tested if row.noise == noise and row.claim(rule) not in {None, *NONLINEAR}]
        right = [row for row in claims if row.claim(rule) == row.truth]
        false = [row for row in claims if row.claim(rule) != row.truth]
        out[noise] = {
            word: {"withdrawn": sum(row.vetoed for row in these), "of": len(these)}
            for word, these in (("right", right), ("false", false))
        }
    return out


def count_row_sums(rows: Sequence[Row], rule: Rule) -> dict[str, Any]:
    """Row sums or none, where the class is rightly claimed: right, wrong, undecided."""
    out = {}
    for scope in ("overall", "layer"):
        asked = [row for row in rows if row.scope == scope and row.says and row.claim(rule) == row.truth]
        answers = {True: "row sums", False: "no row sums"}
        right = sum(row.says == answers[bool(row.row_sums)] for row in asked)
        undecided = sum(row.says == "undecided" for row in asked)
        out[scope] = {
            "right": right,
            "wrong": len(asked) - right - undecided,
            "undecided": undecided,
            "of": len(asked),
        }
    return out


def count_second_answers(rows: Sequence[Row], rule: Rule) -> dict[str, dict[str, int]]:
    """Schedule and variant where the class is rightly claimed over all layers: right, wrong, not named."""
    asked = [row for row in rows if row.scope == "overall" and row.group == "inside" and row.claim(rule) == row.truth]
    out = {}
    for answer, truth_of in (("schedule", form_of), ("variant", variant_of)):
        given = [(getattr(row, answer), truth_of(row.name)) for row in asked if row.truth is not None]
        given = [(said, truth) for said, truth in given if said is not None and truth is not None]
        right, unnamed = sum(said == truth for said, truth in given), sum(said == "" for said, _ in given)
        wrong = len(given) - right - unnamed
        out[answer] = {"right": right, "wrong": wrong, "undecided": unnamed, "of": len(given)}
    return out


def choose_limit(rows: Sequence[Row], rule: Rule, margins: Sequence[float] = ()) -> Rule:
    """The V limit with the fewest mistakes on these rows, missed inside or claimed outside; the middle of ties.

    margins: with the largest of these margin limits that has as few."""
    mistakes = {}
    for margin in margins or [rule.margin_limit]:
        for limit in V_LIMITS:
            tried = replace(rule, v_limit=limit, margin_limit=margin)
            counts = count(rows, tried)["overall"]
            missed = counts["inside"]["of"] - counts["inside"]["right"]
            mistakes[tried] = missed + counts["false"]["claims"]
    best = [tried for tried, number in mistakes.items() if number == min(mistakes.values())]
    best = [tried for tried in best if tried.margin_limit == max(each.margin_limit for each in best)]
    return best[len(best) // 2]


def confusion(rows: Sequence[Row], rule: Rule) -> dict[str, dict[str, int]]:
    """Results by planted model, over all layers: the class claimed, or none; also with its own class left out."""
    table: dict[str, Counter] = defaultdict(Counter)
    for row in rows:
        if row.noise == "bent":
            continue
        if row.scope == "overall":
            table[row.name][row.claim(rule) or "none"] += 1
        elif row.scope == "removed":
            claim = row.claim(rule)
            table[row.name][f"{claim} when left out" if claim else "none when left out"] += 1
    return {name: dict(counts) for name, counts in table.items()}


def calibrate(
    inputs: Sequence[str | LinearRegression] = INPUTS,
    calibration_seed: int = CALIBRATION_SEED,
    test_seeds: Sequence[int] | None = None,
    sequences: int = 256,
    jobs: int = 1,
    kept: dict[str, Any] | None = None,
    progress: Callable[[str], None] = print,
    work: Path = Path("calibration"),
    on: Any = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole procedure; the record it returns is what `identify` reads its thresholds and error rates from.

    inputs: input distributions of the paper's task, or linear tasks, whose record is one of its own.
    kept: an earlier record, whose limit and whose counts on the calibration seed stay; only the test seeds are run.
    work: where every piece is kept as it is done; the same call does the rest. on: an engine, with its options.
    """
    rows: dict[tuple[int, int], list[Row]] = defaultdict(list)
    kernel = all(isinstance(name, str) for name in inputs)
    test_seeds = test_seeds or (TEST_SEEDS if kernel else LINEAR_TEST_SEEDS)
    seeds = test_seeds if kept else (*test_seeds, calibration_seed)
    fewer = FEWER if kernel else ()
    suites = [(name, seed, sequences) for seed in seeds for name in inputs]
    suites += [(name, test_seeds[0], few) for few in fewer for name in inputs]
    arguments = {
        f"{_short(name, inputs)}-seed{seed}-{few}": {
            "inputs": name if isinstance(name, str) else name.to_dict(),
            "seed": seed,
            "sequences": few,
        }
        for name, seed, few in suites
    }
    told = {"code": source_digest(CODE), "on": on, "jobs": jobs, "options": options, "say": progress}
    pieces = compute_pieces(suite_piece, arguments, work, **told)
    for (_, seed, few), found in zip(suites, pieces.values(), strict=True):
        rows[seed, few] += [Row(**row) for row in found]
    return record_of(rows, inputs, calibration_seed, test_seeds, sequences, kept)


def _short(asked: str | LinearRegression, inputs: Sequence[str | LinearRegression]) -> str:
    """A name for files: the inputs, or the place of a linear task."""
    return asked if isinstance(asked, str) else f"linear-{inputs.index(asked) + 1}"


def record_of(
    rows: Mapping[tuple[int, int], list[Row]],
    inputs: Sequence[str | LinearRegression],
    calibration_seed: int,
    test_seeds: Sequence[int],
    sequences: int,
    kept: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The record made from the rows of every (seed, sequences)."""
    if kept:
        rule, calibration = Rule(**kept["rule"]), kept["calibration"]
    else:
        start, margins = (Rule(), ()) if isinstance(inputs[0], str) else (LINEAR_RULE, LINEAR_MARGINS)
        rule = choose_limit(rows[calibration_seed, sequences], start, margins)
        calibration = count(rows[calibration_seed, sequences], rule)
    test = [row for seed in test_seeds for row in rows[seed, sequences]]
    tested = [row for row in test if row.nearest is not None and row.group != "borderline" and row.noise != "bent"]
    inside = [row.V for row in tested if row.scope == "overall" and row.group == "inside"]
    outside = [row.V for row in tested if row.scope == "removed" or (row.scope == "overall" and row.group == "outside")]
    fewer = [few for few in FEWER if (test_seeds[0], few) in rows]
    linear = {"second_answers": count_second_answers(test, rule)} if not isinstance(inputs[0], str) else {}
    return {
        "version": VERSION,
        "rule": asdict(rule),
        "setting": _setting(inputs, sequences),
        "seeds": {"calibration": calibration_seed, "test": list(test_seeds)},
        "calibration": calibration,
        "test": count(test, rule),
        "vetoes": count_vetoes(test, rule),
        "row_sums": count_row_sums(test, rule),
        "fewer": {few: count(rows[test_seeds[0], few], rule)["overall"] for few in fewer},
        "limits": {f"{v:g}": count(test, replace(rule, v_limit=v))["overall"] for v in V_LIMITS},
        "confusion": confusion(test, rule),
        "V_quantiles": {
            "inside": dict(
                zip(("50%", "99%", "max"), torch.tensor(inside).quantile(_q(0.5, 0.99, 1)).tolist(), strict=True)
            ),
            "outside": dict(
                zip(("min", "1%", "5%"), torch.tensor(outside).quantile(_q(0, 0.01, 0.05)).tolist(), strict=True)
            ),
        },
        "provenance": provenance(),
    } | linear


def _setting(inputs: Sequence[str | LinearRegression], sequences: int) -> dict[str, Any]:
    """What the rates were measured on; lists where there were several."""
    tasks = [each for each in inputs if isinstance(each, LinearRegression)]
    if tasks:
        several = {name: sorted({getattr(task, name) for task in tasks}) for name in ("N", "d", "sigma")}
        return several | {"kernel": "linear", "sequences": sequences, "tasks": [repr(task) for task in tasks]}
    task = Task()
    own = {"N": task.N, "d": task.d, "v": task.v, "sigma": task.sigma}
    return own | {"sequences": sequences, "laws": list(inputs)}


def suite_piece(argument: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one input distribution or linear task, seed and number of sequences, as JSON."""
    inputs, few = argument["inputs"], argument["sequences"]
    asked = inputs if isinstance(inputs, str) else LinearRegression.from_dict(inputs)
    rows = suite_rows(asked, argument["seed"], sequences=few, parts=few not in FEWER)
    return [asdict(row) for row in rows]


def _q(*levels: float) -> torch.Tensor:
    return torch.tensor(levels)
