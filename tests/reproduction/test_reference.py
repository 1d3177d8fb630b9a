"""The rule that compares the paper's numbers with ours: ranges over prompts, variation over seeds."""

import numpy as np
import pytest
from scipy import stats

from layerstep.reproduction.claims.findings import key_findings
from layerstep.reproduction.numbers import Numbers
from layerstep.reproduction.reference import Comparison, outcomes, seed_variation
from layerstep.reproduction.settings import TITLES


def compared(paper, **more):
    return Comparison(**{"quantity": "q", "where": "w", "ours": 1.0, "low": 0.9, "high": 1.1, **more}, paper=paper)


def test_the_variation_of_seeds_is_what_student_says():
    seeds = [0.7, 0.8, 1.0]
    expected = stats.t.ppf(0.975, 2) * np.std(seeds, ddof=1) * np.sqrt(2)
    assert seed_variation(seeds) == pytest.approx(expected)
    three = expected * stats.t.ppf(1 - 0.025 / 3, 2) / stats.t.ppf(0.975, 2)
    assert seed_variation(seeds, 3) == pytest.approx(three)
    assert seed_variation([1.0]) == seed_variation([1.0, np.nan]) == np.inf


@pytest.mark.parametrize(
    ("paper", "seeds", "outcome"),
    [
        (1.05, [], "reproduced"),
        (1.2, [], "not reproduced"),
        (1.2, [1.0], "not reproduced"),
        (1.2, [1.0, np.nan], "not reproduced"),
        (1.2, [1.0, 1.01, 1.02], "not reproduced"),
        (1.2, [0.95, 1.0, 1.05], "inconclusive"),
        (1.05, [0.95, 1.0, 1.05], "reproduced"),
    ],
    ids=str,
)
def test_a_number_outside_its_range_may_be_within_the_variation_of_seeds(paper, seeds, outcome):
    assert compared(paper).with_seeds(seeds).outcome == outcome


@pytest.mark.parametrize(
    ("paper", "outcome"),
    [(3.8, "inconclusive"), (4.0, "not reproduced"), (0.26, "inconclusive"), (0.25, "not reproduced")],
)
def test_ratios_of_errors_differ_by_a_factor(paper, outcome):
    seeds = [0.8, 1.0, 1.25]
    found = compared(paper).with_seeds(seeds, factor=True)
    factor = np.exp(stats.t.ppf(0.975, 2) * np.std(np.log(seeds), ddof=1) * np.sqrt(2))  # 3.89
    assert found.seed_variation == pytest.approx(factor)
    assert found.outcome == outcome


def test_a_number_of_the_paper_is_counted_once():
    def row(setting, paper, counted):
        return compared(paper, quantity=f"q, {TITLES[setting]}, level", counted=counted)

    rows = [row("sphere", 1.0, True), row("gaussian", 2.0, True), row("gaussian-1.0", 1.0, False)]
    assert outcomes(rows) == {"reproduced": 1, "not reproduced": 1}
    words = "fit s.d. 1.0 (1 of 1 reproduced) better than the s.d. 0.6 it states (0 of 1)"
    assert words in key_findings(Numbers(), (), rows)[0]
    assert key_findings(Numbers(), (), [row("gaussian", 1.0, True), row("gaussian-1.0", 1.0, False)]) == []
    assert key_findings(Numbers(), (), rows[:2]) == []
