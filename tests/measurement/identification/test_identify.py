"""Verdicts: the planted solver is named, what no solver made is not."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import layerstep as ls
from layerstep.measurement import Instrument, identify
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.identification.decision import Rule, result_on
from layerstep.measurement.identification.descriptions import RowSums
from oracles.planted import STEPS, planted

TASK = ls.Task(inputs="gaussian")


@pytest.fixture(scope="module")
def short():
    return ls.sample(replace(TASK, N=12), 64, seed=4)


def judged(prompts, labels=1.0, offset=0.0):
    """The verdict on Richardson, with one bandwidth, on these prompts in other units."""
    given = ls.Prompts(prompts.x + offset, labels * prompts.y)
    small = Instrument.prepare(given, TASK, bandwidths=(1.0,), ridges=())
    return identify(planted(given, "richardson", std=0), given, TASK, instrument=small)


@pytest.mark.parametrize("solver", STEPS)
def test_a_planted_solver_is_named(prompts, instrument, solver):
    verdict = identify(planted(prompts, solver), prompts, TASK, instrument=instrument)
    assert verdict.solver == solver, str(verdict)
    assert verdict.status == "identified"
    assert verdict.overall.margin >= verdict.rule.margin_limit


def test_the_fitted_steps_are_the_planted_ones(prompts, instrument):
    verdict = identify(planted(prompts, "richardson", std=0), prompts, TASK, instrument=instrument)
    fit = verdict.overall.fit("richardson")
    np.testing.assert_allclose(fit.step.numpy(), STEPS["richardson"], rtol=0.1)
    assert fit.v == (1.0, 1.0)
    assert verdict.description(RowSums).row_sums is True


def mixture(prompts):
    return 0.6 * planted(prompts, "richardson").values + 0.4 * planted(prompts, "nadaraya-watson").values


OUTSIDE = {
    "a mixture": mixture,
    "heavy ball": lambda prompts: ls.solve(ls.HeavyBall(), prompts, TASK, (5, 12, 25, 50, 100)).values,
    "krr on the first points": lambda prompts: ls.solve(ls.RecursiveKRR(), prompts, TASK, (4, 9, 15, 22, 30)).values,
    "tanh of richardson": lambda prompts: torch.tanh(2 * planted(prompts, "richardson").values) / 2,
    "other sequences": lambda prompts: planted(prompts, "richardson").values.roll(1, dims=1),
    "krr and noise": lambda prompts: (
        ls.exact(prompts, TASK)
        + 0.2 * torch.from_numpy(np.random.default_rng(0).standard_normal((5, prompts.B, prompts.N)))
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_no_solver_made_is_not_claimed(prompts, instrument, name):
    path = ls.Trajectory(OUTSIDE[name](prompts), range(1, 6), name)
    verdict = identify(path, prompts, TASK, instrument=instrument)
    assert verdict.solver is None, str(verdict)
    assert "calibration" in verdict.report()


@pytest.mark.parametrize("solver", ["richardson", "ridge", "cg", "boost"])
def test_with_its_class_left_out_a_solver_is_not_claimed_as_another(prompts, instrument, solver):
    values = planted(prompts, solver).values[:, :, [n - 1 for n in instrument.library.contexts]]
    residuals = instrument.cross_fit(values, torch.arange(1, 6, dtype=torch.float64))
    assert result_on(residuals, Rule(**read_record()["rule"]), without=[solver], seed=0).solver is None


@pytest.mark.parametrize("solver", STEPS)
def test_a_bandwidth_and_a_ridge_that_are_both_off_may_cost_the_claim_but_make_no_other(prompts, instrument, solver):
    path = planted(prompts, solver, std=0, v=1.1, sigma=0.1)
    values = path.values[:, :, [n - 1 for n in instrument.library.contexts]]
    residuals = instrument.cross_fit(values, path.stages)
    assert result_on(residuals, Rule(**read_record()["rule"]), seed=0).solver in (solver, None)


def test_layers_and_windows_are_judged_apart(prompts, instrument):
    first = planted(prompts, "richardson", std=0.0, steps=(3, 6, 12, 25)).values
    second = planted(prompts, "boost", std=0.0, steps=(3, 6, 12, 25)).values
    path = ls.Trajectory(torch.cat([first, second]), range(1, 9), "two halves")
    verdict = identify(path, prompts, TASK, instrument=instrument)
    assert verdict.solver is None
    assert verdict.ranges[0].solver == "richardson"
    assert verdict.ranges[-1].solver == "boost"
    assert {judged.solver for judged in verdict.layers[:4]} <= {"richardson", None}
    assert {judged.solver for judged in verdict.layers[4:]} <= {"boost", None}


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0, 1, 2, 3, 4), ()),
        ((4, 3, 2, 1, 0), ("steps fall at layers 2, 3, 4, 5",)),
        ((1, 0, 3, 2, 4), ("steps fall at layers 2, 4",)),
        ((0, 2, 2, 2, 4), ("layers 3, 4 predict what the layer before does",)),
    ],
)
def test_layers_out_of_order_or_repeated_get_a_remark(prompts, instrument, order, words):
    path = planted(prompts, "richardson", std=0)
    path = ls.Trajectory(path.values[list(order)], range(1, 6), "moved")
    verdict = identify(path, prompts, TASK, instrument=instrument)
    assert verdict.solver == "richardson"
    said = [remark for remark in verdict.remarks if "steps fall" in remark or "layer before" in remark]
    assert len(said) == len(words)
    assert all(word in remark for word, remark in zip(words, said, strict=True))


def test_none_says_that_predictions_cannot_show_a_solver_inside(prompts, instrument):
    path = ls.Trajectory(mixture(prompts), range(1, 6), "mixture")
    verdict = identify(path, prompts, TASK, instrument=instrument)
    assert verdict.solver is None
    assert any("no solver runs inside" in claim for claim in verdict.cannot_say)
    sound = identify(planted(prompts, "richardson"), prompts, TASK, instrument=instrument)
    assert not any("no solver runs inside" in claim for claim in sound.cannot_say)


def test_order_of_the_sequences_changes_nothing(prompts):
    few = prompts[:64]
    order = torch.from_numpy(np.random.default_rng(1).permutation(64))
    path = planted(few, "gd")
    verdicts = []
    for given, values in ((few, path.values), (few[order], path.values[:, order])):
        small = Instrument.prepare(given, TASK, bandwidths=(1.0,), ridges=())
        verdicts.append(identify(ls.Trajectory(values, path.stages, "m"), given, TASK, instrument=small))
    a, b = (verdict.overall for verdict in verdicts)
    assert (a.status, a.nearest, a.rival) == (b.status, b.nearest, b.rival)
    assert (a.U, a.V, a.margin) == pytest.approx((b.U, b.V, b.margin), rel=1e-4, abs=1e-6)


def test_a_verdict_is_about_the_length_of_the_prompts(short):
    assert any("N = 12 (calibrated at 40)" in claim for claim in judged(short).cannot_say)


def test_units_of_labels_and_origin_of_inputs_change_no_number(short):
    # 2**20 away float64 keeps 2**-33 of an input: round the inputs to that, so that the shift is exact.
    exact = ls.Prompts((short.x * 2**30).round() / 2**30, short.y)
    here = judged(exact)
    for other in (judged(exact, labels=2.0**-46), judged(exact, labels=2.0**27), judged(exact, offset=2.0**20)):
        for mine, theirs in zip(other.overall.fits, here.overall.fits, strict=True):
            assert mine.family == theirs.family
            assert (mine.score, mine.V) == pytest.approx((theirs.score, theirs.V), rel=1e-9)
        torch.testing.assert_close(other.table.cosine, here.table.cosine)
        torch.testing.assert_close(other.table.sime, here.table.sime)


def test_a_constructed_transformer_is_named_with_one_step_an_iteration(prompts, instrument):
    network = ls.construct(TASK.d, TASK.N, TASK.v, TASK.lam, scheme="exact", eta=1.0, L=6)
    path = network.path(prompts, contexts=instrument.library.contexts)
    verdict = identify(path, prompts, TASK, instrument=instrument)
    assert verdict.solver == "richardson"
    assert verdict.overall.fit("richardson").step.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("as_for_a_user")
def test_a_verdict_is_text_json_and_a_figure(prompts, instrument, tmp_path):
    verdict = identify(planted(prompts, "richardson"), prompts, TASK, instrument=instrument, seed=np.int64(0))
    assert "planted richardson: richardson" in verdict.report()
    loaded = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert loaded["solver"] == "richardson"
    assert len(loaded["table"]["U"]) == len(instrument.library.families)
    assert loaded["library_hash"] == instrument.library.hash
    assert any("linear in the labels" in claim for claim in loaded["cannot_say"])
    assert "candidates" not in loaded["overall"]["fits"][0]
    verdict.figure(str(tmp_path / "verdict.png"))
    assert (tmp_path / "verdict.png").stat().st_size > 10_000
    with pytest.raises(ls.InputError, match=r"suffix of file = 'txt': must be one of .*png"):
        verdict.figure(str(tmp_path / "verdict.txt"))
