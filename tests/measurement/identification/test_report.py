"""A verdict in words: three sentences and a legend, every table on request."""

import pytest

import layerstep as ls
from layerstep.measurement.identification.report import LEGEND


@pytest.fixture(scope="module")
def verdicts():
    task = ls.Task(inputs="uniform", d=1, N=6, sigma=0.1)
    prompts = ls.sample(task, 64, seed=0)
    path = ls.solve(ls.ConjugateGradient(), prompts, task, [1, 2, 3, 4])
    mixed = ls.Trajectory(path.values.tanh() + 0.1 * path.values.flip(0), [1, 2, 3, 4], "mixed")
    families = [family for family in ls.FAMILIES if family.kind in ("cg", "richardson", "ridge")]
    return [ls.identify(each, prompts, task, families=families) for each in (path, mixed)]


def test_three_sentences_come_first_then_a_legend(verdicts):
    for verdict, first in zip(verdicts, ("Layer by layer", "No solver can be named"), strict=True):
        lines = [line for line in str(verdict).splitlines() if not line.startswith("  note: ")]
        assert lines[0].startswith(first)
        assert len(lines) == 3 + 1 + len(LEGEND)
        assert all(line.endswith(".") for line in lines[:3])
        assert max(map(len, LEGEND)) <= 120
        assert "score" in verdict.report()
        assert verdict.report().count("\n") > 20


def test_a_notebook_shows_the_sentences_and_folds_the_rest(verdicts):
    shown = verdicts[0]._repr_html_()
    assert shown.startswith("<div><p><b>Layer by layer")
    assert "<details><summary>evidence" in shown


def test_a_verdict_is_drawn_into_the_axes_that_are_given(verdicts):
    ax = verdicts[0].plot()
    assert next(label.get_text() for label in ax.get_yticklabels()) == "cg"
    assert verdicts[1].plot(ax=ax) is ax
