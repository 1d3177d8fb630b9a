"""The panel is drawn by seed, the rule is set by counting mistakes, and the shipped record is the one in the docs."""

from pathlib import Path

import pytest
import torch

import layerstep as ls
from layerstep.measurement.calibration import Row, choose_limit, count, judge_panel, show
from layerstep.measurement.decision import Rule
from layerstep.measurement.library import CLASSES, default_contexts
from layerstep.measurement.outsiders import OUTSIDE
from layerstep.measurement.panel import CONSTRUCTED, INSIDE
from layerstep.measurement.record import read_record


def test_the_panel_has_every_class_and_enough_outsiders():
    assert {kind for _, kind, *_ in INSIDE} == set(CLASSES)
    assert len(INSIDE) + len(CONSTRUCTED) >= 30
    assert len(OUTSIDE) >= 15


def test_planted_models_are_drawn_by_seed():
    from layerstep.measurement.panel import panel

    task = ls.Task(inputs="uniform", N=12)
    prompts = ls.sample(task, 4, seed=0)

    def first(seed):
        return next(iter(panel(prompts, task, default_contexts(12), seed))).values

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def row(scope, truth, V, nearest="gd"):
    about = {"name": "m", "group": "inside" if truth else "outside", "noise": "none", "law": "sphere", "seed": 0}
    return Row(scope=scope, truth=truth, nearest=nearest, U=0.1, V=V, margin=0.1, **about)


def test_the_limit_with_the_fewest_mistakes_is_chosen():
    rows = [row("overall", "gd", 0.007), row("overall", "gd", 0.001), row("overall", None, 0.011)]
    assert choose_limit(rows, Rule()).v_limit in (0.008, 0.01)


def test_counts_separate_right_wrong_and_false():
    rows = [row("overall", "gd", 0), row("overall", "cg", 0), row("overall", "gd", 1), row("overall", None, 0)]
    rows.append(row("removed", None, 0))
    counts = count(rows, Rule())["overall"]
    assert counts["inside"] == {"right": 1, "wrong": 1, "of": 3}
    assert counts["false"] == {"claims": 2, "of": 2}


def test_the_shipped_record_meets_its_targets():
    record = read_record()
    test = record["test"]["overall"]
    assert test["inside"]["right"] >= 0.98 * test["inside"]["of"]
    assert test["false"]["claims"] <= 0.02 * test["false"]["of"]
    assert record["seeds"]["calibration"] not in record["seeds"]["test"]


def test_the_documentation_shows_the_shipped_record():
    docs = Path(__file__).parents[2] / "docs" / "measurement.md"
    assert show(read_record()) in docs.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("law", ["sphere", "uniform", "gaussian"])
def test_the_panel_on_a_fresh_seed_meets_the_targets(law):
    counts = count(judge_panel(law, seed=77, parts=False), Rule(**read_record()["rule"]))["overall"]
    assert counts["inside"]["right"] >= 0.95 * counts["inside"]["of"]
    assert counts["false"]["claims"] <= 0.05 * counts["false"]["of"]
    assert counts["inside"]["wrong"] == 0
