"""Artefacts: their numbers against independent ones, their files, and what happens to a broken file."""

import csv
import dataclasses

import numpy as np
import pytest
import scipy.linalg

import layerstep as ls
from layerstep.reproduction.figures import cg_precision, conditioning, convergence, noise
from layerstep.reproduction.reference import SIGMA_TEST, Row
from layerstep.reproduction.result import kept
from layerstep.reproduction.settings import CONTEXTS, SETTINGS, evaluation_prompts

SMALL = [
    dataclasses.replace(convergence.artefact("sphere"), config={"setting": "sphere", "sequences": 8, "budget": 200}),
    dataclasses.replace(noise.ARTEFACT, config={"sequences": 64, "bootstrap": 50, "seed": 1}),
    dataclasses.replace(conditioning.ARTEFACT, config={"sequences": 20, "bootstrap": 50, "seed": 1}),
    dataclasses.replace(cg_precision.ARTEFACT, config={"sequences": 8, "steps": 6}),
]


@pytest.mark.parametrize("artefact", SMALL, ids=lambda artefact: artefact.name)
def test_an_artefact_is_numbers_figure_and_csv_and_is_not_made_twice(artefact, tmp_path):
    result, found = artefact.result(tmp_path)
    assert not found
    assert {file.suffix for file in tmp_path.iterdir()} == {".json", ".csv", ".svg", ".pdf", ".png"}
    assert artefact.result(tmp_path) == (result, True)
    assert result["provenance"]["torch"]
    with open(tmp_path / f"{artefact.name}.csv") as file:
        header, *lines = csv.reader(file)
    assert lines
    assert {len(line) for line in lines} == {len(header)}


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"identity": "other"}'])
def test_a_broken_or_foreign_result_is_made_anew(damage, tmp_path):
    file = tmp_path / "numbers.json"
    file.write_text(damage)
    result, found = kept(file, {"n": 1}, ("tasks",), lambda: {"answer": 42})
    assert not found
    assert kept(file, {"n": 1}, ("tasks",), dict) == (result, True)
    assert kept(file, {"n": 2}, ("tasks",), dict)[0]["data"] == {}


def test_an_artefact_whose_figure_is_gone_is_made_anew(tmp_path):
    artefact = SMALL[-1]
    artefact.result(tmp_path)
    (tmp_path / f"{artefact.name}.svg").unlink()
    said = []
    assert not artefact.result(tmp_path, said.append)[1]
    assert said == [artefact.title]
    assert (tmp_path / f"{artefact.name}.svg").is_file()


def test_solver_panels_show_the_errors_of_the_solvers():
    data = SMALL[0].compute(SMALL[0].config)
    prompts = evaluation_prompts("sphere", 8)
    path = ls.solve(ls.GradientDescent(), prompts, SETTINGS["sphere"], 200)
    expected = (path.values[:, :, [n - 1 for n in CONTEXTS]] - prompts.y[:, list(CONTEXTS)]).square().mean(1).T
    np.testing.assert_allclose(data["solvers"]["gd"]["mse"], expected, atol=1e-10)
    krr = (ls.exact(prompts, SETTINGS["sphere"])[:, -1] - prompts.y[:, -1]).square().mean()
    assert data["krr"][-1] == pytest.approx(float(krr), abs=1e-12)


def test_noise_errors_are_ridge_regression_by_scipy():
    encoded, optimal = noise.squared_errors("uniform", 5)
    prompts, task = evaluation_prompts("uniform", 5), SETTINGS["uniform"]
    x, f = prompts.x.numpy(), prompts.f.numpy()
    for b in range(5):
        K = np.exp(-scipy.spatial.distance.cdist(x[b], x[b], "sqeuclidean") / 2)
        for i, sigma in enumerate(SIGMA_TEST):
            y = f[b] + (prompts.y[b].numpy() - f[b]) * sigma / 0.05
            for found, lam in ((encoded, task.lam), (optimal, sigma**2)):
                w = scipy.linalg.solve(K[:40, :40] + lam * np.eye(40), y[:40], assume_a="pos")
                assert found[i, b] == pytest.approx((K[40, :40] @ w - f[b, 40]) ** 2, abs=1e-7)


def test_ratios_are_of_means_and_ranges_shrink_with_more_sequences():
    rng = np.random.default_rng(0)
    top, bottom = rng.exponential(2, (1, 4000)), rng.exponential(1, (1, 4000))
    small = noise.ratio_with_range(top, bottom, sample=64, draws=500, seed=0)
    large = noise.ratio_with_range(top, bottom, sample=1024, draws=500, seed=0)
    assert small["value"][0] == pytest.approx(top.mean() / bottom.mean())
    assert small["low"][0] < large["low"][0] < small["value"][0] < large["high"][0] < small["high"][0]
    # Delta method for independent exponentials: relative standard error √(2 / n).
    assert small["standard_error"][0] == pytest.approx(2 * (2 / 4000) ** 0.5, rel=0.1)


def test_condition_numbers_are_those_of_numpy():
    data = conditioning.compute({"sequences": 3, "bootstrap": 10, "seed": 0})
    x = evaluation_prompts("uniform", 3).x[:, :40].numpy()
    kappas = [
        np.linalg.cond(np.exp(-scipy.spatial.distance.cdist(p, p, "sqeuclidean") / 2) + 0.0025 * np.eye(40)) for p in x
    ]
    assert data["uniform"]["kappa"]["median"] == pytest.approx(np.median(kappas), rel=1e-8)


@pytest.mark.parametrize(
    ("paper", "low", "high", "rounding", "outcome"),
    [
        (1.0, 0.9, 1.1, 0.0, "reproduced"),
        (1.0, 1.004, 1.1, 0.005, "reproduced"),
        (1.0, 1.01, 1.1, 0.005, "not reproduced"),
        (1.0, float("nan"), float("nan"), 0.0, "cannot be compared"),
    ],
)
def test_the_outcome_follows_the_rule(paper, low, high, rounding, outcome):
    row = Row(quantity="q", where="w", paper=paper, ours=1.0, low=low, high=high, rounding=rounding)
    assert row.outcome == outcome
