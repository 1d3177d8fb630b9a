"""Families: needs of a kernel, solvers of the user's, libraries without one or another."""

import re
from dataclasses import dataclass

import pytest

import layerstep as ls
from layerstep.measurement import Instrument, identify
from layerstep.measurement.identification.descriptions import RowSums, Slopes
from layerstep.solvers import Solver
from oracles.planted import planted

TASK = ls.Task(inputs="gaussian")


def linear_regression(monkeypatch):
    monkeypatch.setitem(ls.KERNELS, "linear", lambda x, z, v: x @ z.mT / v**2)
    task = ls.Task(kernel="linear", N=12, inputs="gaussian", sigma=0.3)
    return task, ls.sample(task, 64, seed=1)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (ls.Task(N=12, kernel="arccos1", v=0.5), "need K(x, x) of at most 1"),
        (ls.Task(N=12, sigma=1.0), ""),  # some diverge at the larger ridge, none at both
    ],
    ids=["kernel", "ridge"],
)
def test_families_that_cannot_run_here_do_not_blind_the_instrument(task, words):
    """A step that is safe for the Gaussian kernel or a small ridge is not for others: such families are left out."""
    prompts = ls.sample(task, 64, seed=0)
    small = Instrument.prepare(prompts, task, bandwidths=(0.7, 1.0), ridges=(6.5,))
    assert small.library.table.isfinite().all()
    path = ls.solve(ls.Richardson(), prompts, task, (1, 2, 3, 5, 8, 14))
    verdict = identify(path, prompts, task, instrument=small)
    assert verdict.overall.nearest == "richardson", str(verdict)
    absent = {f.name for f in ls.FAMILIES} - {f.name for f in small.library.families}
    said = [remark for remark in verdict.remarks if "not in the library" in remark]
    assert {name for remark in said for name in re.split(": not in| diverge ", remark)[0].split(", ")} == absent
    assert words in " ".join(said)
    assert bool(words) == bool(absent)


def test_a_kernel_with_values_below_0_is_met_by_the_families_it_allows(monkeypatch):
    task, prompts = linear_regression(monkeypatch)
    path = ls.solve(ls.GradientDescent(), prompts, task, [2, 5, 10, 20])
    small = Instrument.prepare(prompts, task, bandwidths=(1.0,), ridges=())
    verdict = identify(path, prompts, task, instrument=small)
    kinds = {family.kind for family in small.library.families}
    assert kinds == {"richardson", "richardson-fixed", "gd", "nesterov", "cg", "ridge", "shrink", "knn"}
    assert verdict.solver == "gd", str(verdict)
    assert "richardson, richardson-slow, " in verdict.report()
    assert (
        "for they need row sums of K above 0 and kernel values of 0 or more and K(x, x) of at most 1"
        in verdict.report()
    )
    assert "kernel linear (calibrated with gaussian)" in verdict.report()
    with pytest.raises(ls.InputError, match="families = boost: must be some that do not need row sums of K above 0"):
        identify(path, prompts, task, families=[f for f in ls.FAMILIES if f.name == "boost"])


@dataclass(frozen=True, kw_only=True)
class Damped(Solver):
    """Richardson without row sums, every prediction shrunk by 1 - 1 / (t + 2)."""

    label = "Damped"

    def predictions(self, system, steps):
        found = ls.Richardson(preconditioner="none").predictions(system, steps)
        return found * (1 - 1 / (steps + 2))


def test_a_solver_of_the_users_enters_a_verdict(prompts):
    mine = ls.Family(name="mine", kind="mine", solver=Damped(), steps=range(1, 200))
    path = ls.solve(Damped(), prompts, TASK, (3, 8, 20, 50, 120))
    small = {"bandwidths": (0.95, 1.0, 1.05), "ridges": ()}
    for families, solver in (([*ls.FAMILIES, mine], "mine"), (ls.FAMILIES, None)):
        verdict = identify(
            path, prompts, TASK, instrument=Instrument.prepare(prompts, TASK, families=families, **small)
        )
        assert verdict.solver == solver, str(verdict)
        assert ("rates unknown for class mine" in verdict.report()) == (solver == "mine")


class Wrong(Damped):
    """A solver that is not one, in the way named."""

    def __init__(self, way):
        object.__setattr__(self, "way", way)

    def predictions(self, system, steps):
        if self.way == "raises":
            raise KeyError("w")
        if self.way == "shape":
            return system.y
        return system.batch.y[:, -1:].expand(-1, len(steps))


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("raises", "mine: its solver raised KeyError: 'w'"),
        ("shape", r"mine: predictions = a Tensor of shape .*: must be a tensor of shape \[4, 2\], sequences by steps"),
        ("looks", r"mine: predictions = changed by y_\{n\+1\} or a later label"),
    ],
)
def test_a_solver_of_the_users_that_is_not_one_is_refused_in_words(prompts, way, words):
    mine = ls.Family(name="mine", kind="mine", solver=Wrong(way), steps=[1, 2])
    with pytest.raises(ls.InputError, match=words):
        Instrument.prepare(prompts, TASK, families=[mine], bandwidths=(1.0,), ridges=())


def test_a_library_without_richardson_answers(prompts):
    some = [f for f in ls.FAMILIES if f.name in ("gd", "ridge", "cg")]
    small = Instrument.prepare(prompts, TASK, families=some, bandwidths=(1.0,), ridges=())
    verdict = identify(planted(prompts, "gd", std=0), prompts, TASK, instrument=small)
    assert verdict.solver == "gd"
    assert verdict.description(Slopes) is None
    one = Instrument.prepare(prompts, TASK, families=some[:1], bandwidths=(1.0,), ridges=())
    assert identify(planted(prompts, "gd", std=0), prompts, TASK, instrument=one).solver == "gd"


def test_row_sums_are_undecided_when_the_family_without_them_is_not_there(prompts):
    some = [family for family in ls.FAMILIES if family.name != "richardson-plain"]
    fewer = Instrument.prepare(prompts, TASK, families=some, bandwidths=(1.0,), ridges=())
    verdict = identify(planted(prompts, "richardson", std=0), prompts, TASK, instrument=fewer)
    assert verdict.solver == "richardson"
    assert verdict.description(RowSums).row_sums is None
    assert any("row sums" in claim for claim in verdict.cannot_say)
