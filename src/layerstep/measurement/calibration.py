"""Calibration: judge every planted model, count right answers and false claims, set the threshold, write the record.

    python -m layerstep.measurement.calibration --jobs 2     # all seeds and laws; rewrites calibration.json
    python -m layerstep.measurement.calibration --show       # the tables of the shipped record

The V limit is set on one seed and the error rates are reported on two others, with other prompts, schedules,
bandwidths, ridges and noise. Every inside model is judged twice: with the full library, and with its own class taken
out, when the only right answer is not to claim.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from typing import Any

import torch

from layerstep.files import provenance, write_json
from layerstep.measurement.decision import IDENTIFIED, Judgement, Rule, decide, judge
from layerstep.measurement.evidence import Instrument
from layerstep.measurement.library import Library
from layerstep.measurement.panel import Planted, panel
from layerstep.measurement.record import RECORD, read_record
from layerstep.tasks import Task, sample

VERSION = 1
LAWS = ("sphere", "uniform", "gaussian")
CALIBRATION_SEED, TEST_SEEDS = 11, (16, 17)
V_LIMITS = (0.004, 0.006, 0.008, 0.01, 0.012, 0.015, 0.02, 0.03)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One judgement of one planted model: what is right, and the numbers the rule decides on."""

    name: str
    group: str
    noise: str
    law: str
    seed: int
    scope: str  # overall, removed (own class taken out), window, layer
    truth: str | None
    nearest: str | None
    U: float
    V: float
    margin: float

    def claim(self, rule: Rule) -> str | None:
        """The class claimed under a rule."""
        if self.nearest is None:
            return None
        return self.nearest if decide(self.V, self.margin, self.U, rule) == IDENTIFIED else None


def judge_panel(
    law: str,
    seed: int,
    *,
    sequences: int = 256,
    rule: Rule | None = None,
    only: Callable[[Planted], bool] = lambda planted: True,
    parts: bool = True,
    instrument: Instrument | None = None,
) -> list[Row]:
    """All judgements on one law and seed. parts=True adds windows of four layers and single layers, with noise."""
    rule = rule or Rule()
    task = Task(inputs=law)
    prompts = sample(task, sequences, seed)
    instrument = instrument or Instrument.prepare(Library.build(prompts, task))
    rows: list[Row] = []
    for planted in panel(prompts, task, instrument.library.contexts, seed):
        if not only(planted):
            continue
        L = len(planted.values)
        evidence = instrument.collect(planted.values, torch.arange(1, L + 1, dtype=torch.float64))

        def add(scope: str, truth: str | None, judged: Judgement, planted: Planted = planted) -> None:
            numbers = {"nearest": judged.nearest, "U": judged.U, "V": judged.V, "margin": judged.margin}
            about = {"name": planted.name, "group": planted.group, "noise": planted.noise, "law": law, "seed": seed}
            rows.append(Row(scope=scope, truth=truth, **about, **numbers))

        add("overall", planted.solver, judge(evidence, rule, seed=seed))
        if planted.group == "inside" and planted.solver is not None:
            add("removed", None, judge(evidence, rule, without=[planted.solver], seed=seed))
        if parts and planted.noise != "none":
            for first in range(0, L, 4):
                truths = set(planted.truth[first : first + 4])
                truth = planted.truth[first] if len(truths) == 1 else None
                add("window", truth, judge(evidence, rule, layers=range(first, min(first + 4, L)), seed=seed))
            for index in range(1, L, 3):
                add("layer", planted.truth[index], judge(evidence, rule, layers=[index], seed=seed))
    return rows


def count(rows: Sequence[Row], rule: Rule) -> dict[str, Any]:
    """Per scope: inside right / wrong / of; false: claims where the truth is outside, or of another class."""
    out: dict[str, Any] = {}
    for scope in ("overall", "window", "layer"):
        judged = [row for row in rows if row.scope == scope and row.group != "borderline"]
        inside = [row for row in judged if row.truth is not None]
        outside = [row for row in judged if row.truth is None]
        claims = [row.claim(rule) for row in inside]
        right = sum(claim == row.truth for claim, row in zip(claims, inside, strict=True))
        wrong = sum(claim not in (None, row.truth) for claim, row in zip(claims, inside, strict=True))
        out[scope] = {
            "inside": {"right": right, "wrong": wrong, "of": len(inside)},
            "outside": {"claims": sum(row.claim(rule) is not None for row in outside), "of": len(outside)},
        }
    removed = [row for row in rows if row.scope == "removed"]
    overall = out["overall"]
    overall["removed"] = {"claims": sum(row.claim(rule) is not None for row in removed), "of": len(removed)}
    overall["false"] = {
        "claims": overall["outside"]["claims"] + overall["removed"]["claims"],
        "of": overall["outside"]["of"] + overall["removed"]["of"],
    }
    return out


def choose_limit(rows: Sequence[Row], rule: Rule) -> Rule:
    """The V limit with the fewest mistakes on these rows, missed inside or claimed outside; the middle of ties."""
    mistakes = {}
    for limit in V_LIMITS:
        counts = count(rows, replace(rule, v_limit=limit))["overall"]
        missed = counts["inside"]["of"] - counts["inside"]["right"]
        mistakes[limit] = missed + counts["false"]["claims"]
    best = [limit for limit, number in mistakes.items() if number == min(mistakes.values())]
    return replace(rule, v_limit=best[len(best) // 2])


def confusion(rows: Sequence[Row], rule: Rule) -> dict[str, dict[str, int]]:
    """Answers by planted model, over all layers: the class claimed, or none; also with its own class left out."""
    table: dict[str, Counter] = defaultdict(Counter)
    for row in rows:
        if row.scope == "overall":
            table[row.name][row.claim(rule) or "none"] += 1
        elif row.scope == "removed":
            claim = row.claim(rule)
            table[row.name][f"{claim} when left out" if claim else "none when left out"] += 1
    return {name: dict(counts) for name, counts in table.items()}


def calibrate(
    laws: Sequence[str] = LAWS,
    calibration_seed: int = CALIBRATION_SEED,
    test_seeds: Sequence[int] = TEST_SEEDS,
    sequences: int = 256,
    jobs: int = 1,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """The whole procedure; the record it returns is what `identify` reads its thresholds and error rates from."""
    rows: dict[int, list[Row]] = defaultdict(list)
    start = time.time()
    work = [(law, seed, sequences) for seed in (calibration_seed, *test_seeds) for law in laws]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for (law, seed, _), judged in zip(work, pool.map(_judge_panel, work), strict=True):
            rows[seed] += judged
            progress(f"seed {seed}, {law}: {len(judged)} judgements, {time.time() - start:.0f} s")
    rule = choose_limit(rows[calibration_seed], Rule())
    test = [row for seed in test_seeds for row in rows[seed]]
    inside = [row.V for row in test if row.scope == "overall" and row.group == "inside"]
    others = [row for row in test if row.nearest is not None and row.group != "borderline"]
    outside = [row.V for row in others if row.scope == "removed" or (row.scope == "overall" and row.group == "outside")]
    task = Task()
    return {
        "version": VERSION,
        "rule": asdict(rule),
        "setting": {
            "N": task.N,
            "d": task.d,
            "v": task.v,
            "sigma": task.sigma,
            "sequences": sequences,
            "laws": list(laws),
        },
        "seeds": {"calibration": calibration_seed, "test": list(test_seeds)},
        "calibration": count(rows[calibration_seed], rule),
        "test": count(test, rule),
        "by_law": {law: count([row for row in test if row.law == law], rule)["overall"] for law in laws},
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
    }


def show(record: dict[str, Any]) -> str:
    """The record as the tables of the documentation."""
    lines = ["| | calibration seed | test seeds |", "|---|---|---|"]
    names = {"inside": "inside: right class", "removed": "own class left out: claims", "outside": "outside: claims"}
    pair = [record[part]["overall"] for part in ("calibration", "test")]
    for key, words in (names | {"false": "**all false claims**"}).items():
        cells = [f"{part[key].get('right', part[key].get('claims'))} of {part[key]['of']}" for part in pair]
        lines.append(f"| {words} | {cells[0]} | {cells[1]} |")
    lines.append(f"| inside: wrong class | {pair[0]['inside']['wrong']} | {pair[1]['inside']['wrong']} |")
    for scope, words in (("window", "four layers"), ("layer", "one layer")):
        parts = [record[part][scope] for part in ("calibration", "test")]
        right = [f"{part['inside']['right']} of {part['inside']['of']}" for part in parts]
        wrong = [
            f"{part['inside']['wrong'] + part['outside']['claims']} of {part['inside']['of'] + part['outside']['of']}"
            for part in parts
        ]
        lines += [
            f"| {words}: right class | {right[0]} | {right[1]} |",
            f"| {words}: false | {wrong[0]} | {wrong[1]} |",
        ]
    lines += ["", "| V limit (test seeds) | right | false claims |", "|---|---|---|"]
    for limit, counts in record["limits"].items():
        inside, false = counts["inside"], counts["false"]
        mark = "**" if float(limit) == record["rule"]["v_limit"] else ""
        cells = f"{inside['right']} of {inside['of']} | {false['claims']} of {false['of']}"
        lines.append(f"| {mark}{limit}{mark} | {cells} |")
    quantiles = record["V_quantiles"]
    shown = {key: ", ".join(f"{name} {value:.4f}" for name, value in part.items()) for key, part in quantiles.items()}
    lines += ["", f"V inside: {shown['inside']}. V outside or with the own class left out: {shown['outside']}."]
    lines += ["", "| planted model | answers (test seeds) |", "|---|---|"]
    for name, counts in record["confusion"].items():
        answers = ", ".join(
            f"{answer} {number}" for answer, number in sorted(counts.items(), key=lambda item: -item[1])
        )
        lines.append(f"| {name} | {answers} |")
    return "\n".join(lines)


def _judge_panel(work: tuple[str, int, int]) -> list[Row]:
    torch.set_num_threads(1)
    law, seed, sequences = work
    return judge_panel(law, seed, sequences=sequences)


def _q(*levels: float) -> torch.Tensor:
    return torch.tensor(levels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", default=str(RECORD))
    parser.add_argument("--show", action="store_true", help="print the tables of the shipped record, run nothing")
    arguments = parser.parse_args()
    if arguments.show:
        print(show(read_record()))
        return
    write_json(arguments.out, calibrate(sequences=arguments.sequences, jobs=arguments.jobs))


if __name__ == "__main__":
    main()
