"""The rule of the combined result: which kind of evidence carries a claim, and what is said when they disagree.

1  interventions claim a solver                      it is the answer: the layers run it
2  the model's own predictions follow a solver       it is the answer: the layers predict as it does
   (its own head, or its own read-out, at every layer)
3  1 and 2 name different solvers                    no answer: two statements about the same predictions conflict
4  only probes fitted on y, or maps to the output,   no answer: what can be read off a layer need not be used
   follow a solver
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RUNS, PREDICTS, CONFLICT, READABLE, NO_SOLVER, NOT_TESTED = (
    "runs",
    "predicts",
    "conflict",
    "readable",
    "none",
    "not tested",
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """solver: None where nothing may be claimed. status: runs, predicts, conflict, readable, none, not tested.

    carried_by: the evidence of the claim, in words. readable: the solver that probes or maps follow, where it is no
    claim about the model.
    """

    solver: str | None
    status: str
    carried_by: str = ""
    readable: str | None = None


def decide(
    own: str | None,
    read: Sequence[str | None],
    causal: str | None,
    *,
    whose: str,
    alternatives: Sequence[str] = (),
    tested: bool = True,
) -> Answer:
    """From solvers, None where there is no claim: that of the model's own predictions at every layer (`whose` says
    how they are made), those of probes and maps, and that of the interventions, beside which they may leave others
    open (`alternatives`). tested: whether anything could be."""
    readable = next((each for each in read if each is not None), None)
    if causal is not None and own in alternatives:
        causal = own  # interventions leave several, and the model's own predictions follow one of them
    if causal is not None and own is not None and causal != own:
        return Answer(solver=None, status=CONFLICT, readable=readable)
    if causal is not None:
        return Answer(solver=causal, status=RUNS, carried_by="interventions", readable=readable)
    if own is not None:
        return Answer(solver=own, status=PREDICTS, carried_by=whose, readable=readable)
    if readable is not None:
        return Answer(solver=None, status=READABLE, readable=readable)
    return Answer(solver=None, status=NO_SOLVER if tested else NOT_TESTED)
