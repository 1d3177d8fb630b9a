"""The rule of the combined result: what carries a claim, and what is said when the parts disagree."""

import pytest

from layerstep.measurement.combined.decision import decide


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
