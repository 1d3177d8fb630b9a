"""The suite of linear regression, and its record."""

from pathlib import Path

import pytest
import torch

import layerstep as ls
from layerstep.measurement.calibration.error_rates import count, count_second_answers, suite_rows
from layerstep.measurement.calibration.linear_models import OUTSIDE, SETTINGS, form_of, inside, variant_of
from layerstep.measurement.calibration.planted import calibration_suite
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.calibration.tables import show
from layerstep.measurement.identification.decision import Rule
from layerstep.measurement.identification.domains import contexts_of

ROOT = Path(__file__).parents[3]
TASK = ls.LinearRegression(d=4, N=12, sigma=0.3)


def test_every_class_of_the_library_has_a_planted_model():
    ill = SETTINGS[4]
    assert {kind for _, kind, _ in inside(ill)} == {family.kind for family in ls.linear_families(ill)}
    variants = {family.variant for family in ls.linear_families(TASK)} - {""}
    assert {variant_of(name) for name, *_ in inside(TASK)} - {None} == variants
    assert form_of("gd, doubling") == "geometric"
    assert form_of("kaczmarz") is None


def test_planted_models_are_drawn_by_the_seed_and_finite():
    prompts = ls.sample(TASK, 16, seed=0)

    def values(seed):
        return {(m.name, m.noise): m.values for m in calibration_suite(prompts, TASK, contexts_of(TASK), seed)}

    first, again, other = values(1), values(1), values(2)
    assert all(each.isfinite().all() for each in first.values())
    assert all(torch.equal(first[key], again[key]) for key in first)
    name = ("gd, one step size, quadratic", "none")
    assert not torch.equal(first[name], other[name])
    assert {key[0] for key in first} == {m[0] for m in (*inside(TASK), *OUTSIDE)}


def test_the_suite_answers_for_a_task_of_the_users():
    names = {"newton, linear", "gd in another metric"}
    rule = Rule(**read_record("linear")["rule"])
    prepared = ls.Instrument.prepare(ls.sample(TASK, 96, 3), TASK, ridges=())
    rows = suite_rows(TASK, 3, sequences=96, names=names, instrument=prepared)
    counts = count(rows, rule)["overall"]
    assert counts["inside"]["of"] == 2
    assert counts["inside"]["wrong"] == counts["false"]["claims"] == 0
    second = count_second_answers(rows, rule)["schedule"]
    assert second["wrong"] == 0


def test_the_shipped_record_is_of_these_settings_and_in_the_documentation():
    record = read_record("linear")
    assert record["setting"]["tasks"] == [repr(task) for task in SETTINGS]
    assert record["seeds"]["calibration"] not in record["seeds"]["test"]
    overall = record["test"]["overall"]
    assert overall["inside"]["of"] > 300
    assert overall["false"]["claims"] <= 0.05 * overall["false"]["of"]
    assert show(record) in (ROOT / "docs" / "linear.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (ls.LinearRegression(d=10, N=40, sigma=0.5), "d = 10 (calibrated at 5, 8, 20)"),
        (ls.LinearRegression(d=8, N=16, sigma=0.5, prior="sparse:2"), "other weights than Gaussian ones"),
    ],
)
def test_a_verdict_says_where_its_rates_were_not_measured(task, words):
    prompts = ls.sample(task, 64, seed=0)
    few = [family for family in ls.linear_families(task) if family.name in ("newton", "gd-weights")]
    prepared = ls.Instrument.prepare(prompts, task, families=few, ridges=())
    path = ls.solve(ls.SOLVERS["newton"], prompts, task, [1, 2, 3, 4])
    assert words in str(ls.identify(path, prompts, task, instrument=prepared))
