"""The rule of the combined result: what carries a claim, and what is said when the parts disagree."""

import pytest

import layerstep as ls
from layerstep.measurement import Identification
from layerstep.measurement.combined.decision import decide
from oracles.planted import TASK, planted


@pytest.mark.parametrize(
    ("own", "read", "causal", "solver", "status", "carried_by"),
    [
        ("richardson", [None], "richardson", "richardson", "runs", "interventions"),
        (None, [None], "boost", "boost", "runs", "interventions"),
        (None, ["ridge"], "boost", "boost", "runs", "interventions"),  # a probe reads what is not used
        ("absent", ["ridge"], "gd", "gd", "runs", "interventions"),
        ("richardson", [None], None, "richardson", "predicts", "its own head"),
        ("richardson", ["ridge"], None, "richardson", "predicts", "its own head"),
        ("richardson", [None], "absent", "richardson", "predicts", "its own head"),
        ("gd", [None], "richardson", None, "conflict", ""),
        (None, ["richardson"], None, None, "readable", ""),
        ("absent", ["richardson"], "absent", None, "readable", ""),
        (None, [None], None, None, "none", ""),
        ("absent", [], "absent", None, "not tested", ""),
    ],
)
def test_the_rule(own, read, causal, solver, status, carried_by):
    tested = {own, causal} != {"absent"} or read != []
    said = [None if name == "absent" else name for name in (own, causal)]
    found = decide(said[0], read, said[1], whose="its own head", tested=tested)
    assert (found.solver, found.status, found.carried_by) == (solver, status, carried_by)
    assert found.readable == next((each for each in read if each), None)


def test_the_models_own_predictions_decide_between_what_interventions_leave_open():
    left = {"whose": "its own head", "alternatives": ("richardson-fixed",)}
    assert decide("richardson-fixed", [], "richardson", **left).solver == "richardson-fixed"
    assert decide("richardson", [], "richardson", **left).solver == "richardson"
    assert decide(None, [], "richardson", **left).solver == "richardson"
    assert decide("gd", [], "richardson", **left).status == "conflict"


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (range(5), ""),
        ((4, 3, 2, 1, 0), "the fitted steps fall at layers"),
        ((0, 1, 3, 2, 4), "the fitted steps fall at layers 4"),
        ((2, 2, 2, 2, 2), "predict what the layer before does"),
    ],
)
def test_an_order_that_no_solver_has_is_part_of_the_sentence(prompts, instrument, order, words):
    path = planted(prompts, "richardson")
    moved = ls.Trajectory(path.values[list(order)], range(1, 6), "moved")
    verdict = ls.identify(moved, prompts, TASK, instrument=instrument)
    assert verdict.solver == "richardson"
    found = Identification(
        label="moved",
        about="",
        task=TASK,
        read_by="its own read-out",
        own=verdict,
        behaviour=verdict,
        readings=None,
        interventions=None,
        untested={},
        parts=("behaviour",),
        seed=0,
        seconds={},
    )
    first = found.sentences[0]
    assert first.startswith("Layer by layer moved predicts as richardson does, read by its own read-out")
    assert (", but " in first and words in first) if words else ("but" not in first)
