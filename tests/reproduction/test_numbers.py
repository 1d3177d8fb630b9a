"""Numbers against independent ones: of the solvers alone, and of planted models whose answers are known."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg
import torch

import layerstep as ls
from layerstep.files import digest
from layerstep.reproduction import predictions, probing, runs
from layerstep.reproduction.numbers import (
    Store,
    constructed,
    measurements,
    noise,
    planted_paths,
    twin,
    verdicts,
)
from layerstep.reproduction.numbers.collection import collect
from layerstep.reproduction.numbers.measurements import compute_model
from layerstep.reproduction.numbers.solvers import compute_conditioning, compute_curves, compute_precision
from layerstep.reproduction.numbers.store import to_json
from layerstep.reproduction.predictions import FILE, Predictions, usable_models
from layerstep.reproduction.settings import CURVE_CONTEXTS, SETTINGS, SIGMA_TEST, evaluation_prompts


def test_solver_curves_are_the_errors_of_the_solvers():
    curves = compute_curves("sphere", 200, 8)
    prompts = evaluation_prompts("sphere", 8)
    path = ls.solve(ls.GradientDescent(), prompts, SETTINGS["sphere"], 200)
    at = list(CURVE_CONTEXTS)
    expected = (path.values[:, :, [n - 1 for n in at]] - prompts.y[:, at]).square().mean(1).T
    np.testing.assert_allclose(curves.solvers["gd"].mse, expected, atol=1e-10)
    krr = (ls.exact(prompts, SETTINGS["sphere"])[:, -1] - prompts.y[:, -1]).square().mean()
    assert curves.krr[-1] == pytest.approx(float(krr), abs=1e-12)


def test_rounding_is_all_that_precisions_differ_by():
    found = compute_precision(8, 6)
    exact, double, single = map(np.array, found.curves.values())
    np.testing.assert_allclose(exact, double, rtol=1e-6)
    np.testing.assert_allclose(exact[:3], single[:3], rtol=1e-2)
    assert found.krr <= exact[0]


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
    small = noise.ratio_with_range(top, bottom, 500, sample=64)
    large = noise.ratio_with_range(top, bottom, 500, sample=1024)
    assert small.value[0] == pytest.approx(top.mean() / bottom.mean())
    assert small.low[0] < large.low[0] < small.value[0] < large.high[0] < small.high[0]
    # Delta method for independent exponentials: relative standard error √(2 / n).
    assert small.standard_error[0] == pytest.approx(2 * (2 / 4000) ** 0.5, rel=0.1)


def test_condition_numbers_are_those_of_numpy():
    found = compute_conditioning(3, 10)
    x = evaluation_prompts("uniform", 3).x[:, :40].numpy()
    kappas = [
        np.linalg.cond(np.exp(-scipy.spatial.distance.cdist(p, p, "sqeuclidean") / 2) + 0.0025 * np.eye(40)) for p in x
    ]
    assert found["uniform"].kappa.median == pytest.approx(np.median(kappas), rel=1e-8)


# Planted models -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted(tmp_path_factory, plant):
    """Two models whose layer l is Richardson after 10 l steps, and two seeds of the short schedule with other
    strides."""
    patch = pytest.MonkeyPatch()
    patch.setattr(runs, "MODELS", tmp_path_factory.mktemp("models"))
    plant("sphere", steps=7000)
    plant("uniform")
    plant("sphere-fast", stride=9)
    plant("sphere-fast-seed-1", stride=11)
    names, reasons = usable_models()
    assert reasons == {}
    yield {name: compute_model(name) for name in names}
    patch.undo()


def test_predictions_come_back_as_they_were_saved(planted):
    back = Predictions.load(runs.RUNS["sphere"].folder)
    path = ls.solve(ls.Richardson(), evaluation_prompts("sphere"), ls.Task(), range(0, 121, 10))
    torch.testing.assert_close(back.layers.values, path.values, rtol=0, atol=1e-6)
    assert back.facts == {"setting": "sphere"}
    assert list(planted) == ["sphere", "uniform", "sphere-fast", "sphere-fast-seed-1"]


def test_the_planted_steps_are_found_one_by_one(planted):
    model = planted["sphere"]
    np.testing.assert_allclose(model.richardson.mean, 10 * np.arange(1, 13), atol=0.2)
    assert model.richardson.r2 == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(model.richardson.best_step, 10 * np.arange(1, 13))
    np.testing.assert_allclose(model.richardson.best_sime, 1, atol=1e-6)
    assert (model.won, model.depth, model.share_won) == (12, 12, 1)
    assert (model.training, model.trained_steps) == ("short schedule: 7,000 steps, rate 0.0001", 7000)
    assert model.by_last_token() is None


def test_errors_by_layer_are_those_of_the_planted_solver(planted):
    prompts = evaluation_prompts("uniform")
    path = ls.solve(ls.Richardson(), prompts, ls.Task(inputs="uniform"), range(0, 121, 10))
    expected = (path.values[:, :, 39] - prompts.y[:, 40]).square().mean(1)
    np.testing.assert_allclose(planted["uniform"].layer_mse[-1], expected, atol=1e-6)
    krr = (ls.exact(prompts, ls.Task(inputs="uniform"))[:, 39] - prompts.y[:, 40]).square().mean()
    assert planted["uniform"].krr[-1] == pytest.approx(float(krr), abs=1e-12)


@pytest.mark.parametrize("card", [None, "null", "[1]", '{"evaluation": {"ratio": ' + 400 * "9" + "}}", "{"])
def test_without_its_card_a_model_has_the_error_the_card_would_have(models, plant, card):
    folder = plant("sphere")
    if card is not None:
        (folder / "evaluation.json").write_text(card)
    whole = Predictions.load(folder)
    silent = {"layers": whole.layers, "head": whole.head, "noise": torch.zeros_like(whole.noise), "facts": whole.facts}
    Predictions(**silent).save(folder)
    prompts = evaluation_prompts("sphere", predictions.NOISE_SEQUENCES)
    truth = prompts.noiseless_target[:, -1]
    krr = (ls.exact(prompts, ls.Task())[:, -1] - truth).square().mean()
    ratio = float(truth.square().mean() / krr)
    assert predictions.card_error(folder) is None
    assert measurements._over_krr(Predictions.load(folder), "sphere") == pytest.approx(ratio, rel=1e-9)
    if card is None:
        assert compute_model("sphere").over_krr == pytest.approx(ratio, rel=1e-9)


def test_numbers_of_a_model_are_computed_once(planted, tmp_path, monkeypatch):
    store = Store(tmp_path)
    first = measurements.measure(store, "sphere")
    same = digest(to_json(first))
    assert same == digest(to_json(planted["sphere"]))  # as text: NaN is not equal to itself
    monkeypatch.setattr(measurements, "compute_model", lambda name: planted["uniform"])
    assert digest(to_json(measurements.measure(store, "sphere"))) == same
    (tmp_path / "sphere.json").write_text("{")
    assert measurements.measure(store, "sphere").name == "uniform"


def test_a_head_that_is_exact_krr_has_the_ratios_of_the_encoded_ridge(planted, monkeypatch):
    monkeypatch.setattr(noise, "TABLE_SEQUENCES", predictions.NOISE_SEQUENCES)
    found = noise.compute_model_noise("sphere", 20)
    np.testing.assert_allclose(found.over_optimal.value, found.encoded_over_optimal.value, rtol=1e-4)
    np.testing.assert_allclose(found.over_encoded.value, 1, rtol=1e-4)


def test_probes_of_the_last_token_are_measured_beside_the_others(models, plant):
    plant("sphere")
    whole = Predictions.load(runs.RUNS["sphere"].folder)
    last = ls.solve(ls.Richardson(), evaluation_prompts("sphere"), ls.Task(), range(0, 61, 5))
    parts = {"layers": whole.layers, "head": whole.head, "noise": whole.noise, "facts": whole.facts}
    Predictions(**parts, last=last).save(runs.RUNS["sphere"].folder)
    model = compute_model("sphere")
    for stride, read in ((10, model), (5, model.by_last_token())):
        assert read is not None
        np.testing.assert_allclose(read.richardson.best_step, stride * np.arange(1, 13))


@pytest.mark.parametrize("last", [True, False])
def test_a_real_model_gives_predictions_on_every_layer(last, tmp_path):
    model = ls.GPT(ls.Model(layers=2, heads=2, width=16)).initialise(0)
    found, fitted = probing.predict(model, "sphere", prompts=64, sequences=8, last=last)
    assert found.layers.values.shape == (3, 256, 40)
    assert found.noise.shape == (9, 8)
    torch.testing.assert_close(found.head, model(evaluation_prompts("sphere"))[:, 1:].detach())
    again, _ = probing.predict(model, "sphere", probes=fitted, sequences=8)
    torch.testing.assert_close(again.layers.values, found.layers.values)
    found.save(tmp_path)
    back = Predictions.load(tmp_path).last
    assert (found.last is None) == (back is None) == (not last)
    if back is not None:
        path = ls.probe(model, ls.Task(), prompts=64, seed=1, tokens="last").path(evaluation_prompts("sphere"))
        torch.testing.assert_close(back.values, path.values.double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda whole: whole[: len(whole) // 2], "safetensors file"),
        (lambda whole: b"cut", "safetensors file"),
        (lambda whole: bytes(len(whole)), "safetensors file"),
        (None, "is not there"),
    ],
)
def test_a_missing_or_cut_file_is_a_sentence_and_leaves_the_others(models, plant, damage, words):
    file = plant("sphere") / FILE
    plant("uniform")
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage(file.read_bytes()))
    names, reasons = usable_models()
    assert names == ["uniform"]
    assert words in reasons["sphere"]


def test_predictions_of_another_shape_or_not_finite_are_refused(models, plant):
    plant("sphere")
    whole = Predictions.load(runs.RUNS["sphere"].folder)
    fewer = ls.Trajectory(whole.layers.values[:5], whole.layers.stages[:5])
    nans = whole.head.clone()
    nans[3, 3] = torch.nan
    wrong = ls.Trajectory(whole.layers.values * torch.nan, whole.layers.stages)
    cases = [({"layers": fewer}, "layers has shape"), ({"last": fewer}, "last has shape")]
    for parts, words in [*cases, ({"head": nans}, "not finite"), ({"last": wrong}, "not finite")]:
        fields = {"layers": whole.layers, "head": whole.head, "noise": whole.noise, "facts": whole.facts}
        Predictions(**(fields | parts)).save(runs.RUNS["sphere"].folder)
        assert words in usable_models()[1]["sphere"]


@pytest.mark.parametrize(("cut", "expected"), [(0, False), (3, False), (4, True)])
def test_a_line_cut_off_by_the_budget_is_marked(planted, cut, expected):
    """Of the nine layers 2 to 10 more than three; layers 1, 11 and 12 are not on the line."""
    alignment = copy.deepcopy(planted["sphere"].alignment)
    shares = [0.9, *(9 - cut) * [0.05], *cut * [0.2], 0.9, 0.9]
    alignment.solvers["gd"].at_cap[:] = shares
    assert alignment.is_cut_off("gd") == expected


def test_the_default_model_beside_others_was_trained_as_long_as_they(planted):
    long, short = planted["uniform"], planted["sphere"]
    assert twin({"sphere": long, "sphere-fast": short, "heads-1": long, "heads-2": long}, ["heads-1"]) == "sphere"
    assert twin({"sphere": long, "sphere-fast": short, "heads-1": short}, ["heads-1"]) == "sphere-fast"
    assert twin({}, ["heads-1"]) == "sphere"


def test_one_step_per_layer_is_a_straight_line(monkeypatch):
    shown = {name: constructed.MEASURED[name] for name in ("constructed-1", "constructed-chebyshev")}
    monkeypatch.setattr(constructed, "MEASURED", shown)
    found = constructed.compute_models()
    model = found["constructed-1"]
    np.testing.assert_allclose(model.richardson.mean, np.arange(1, 13), atol=0.05)
    assert model.richardson.r2 == pytest.approx(1, abs=1e-4)
    assert model.won == 12
    # Another solver: Richardson wins few of its layers, however linear its steps.
    assert found["constructed-chebyshev"].won < 6


# Verdicts and all of them together ------------------------------------------------------------------------------------


def test_a_model_in_two_directories_is_judged_once(plant, tmp_path, monkeypatch, planted):
    monkeypatch.setattr(runs, "MODELS", tmp_path)
    plant("sphere")
    plant("sphere-fast")
    plant("heads-4", stride=5)
    models = dict.fromkeys(("sphere", "sphere-fast", "heads-4"), planted["sphere"])
    assert list(verdicts._distinct(models)) == ["sphere", "heads-4"]


def a_verdict(**changes):
    empty = {"classes": {}, "families": [], "layers": [], "U_layer": []}
    words = {"status": "none", "solver": None, "headline": "none", "reason": "", "nearest": None, "rival": None}
    numbers = {"U": None, "V": None, "margin": None, "depth": 12, "won": 3}
    return verdicts.ModelVerdict(
        **{"name": "m", "what": "", "setting": "sphere", "text": "", **empty, **words, **numbers, **changes}
    )


def test_verdicts_are_made_once_and_one_that_fails_leaves_the_others(planted, tmp_path, monkeypatch):
    judged = []

    def judge(name, subject, instrument):
        assert instrument == f"of {subject.setting}"
        judged.append(name)
        if name == "uniform":
            raise ls.InputError("path: too short.")
        return a_verdict(name=name)

    monkeypatch.setattr(verdicts, "verdict_on", judge)
    monkeypatch.setattr(verdicts, "_instrument", lambda setting: f"of {setting}")
    monkeypatch.setattr(verdicts, "CONTROLS", {})
    models = {name: planted[name] for name in ("sphere", "uniform")}
    for _ in range(2):
        found, failed = verdicts.model_verdicts(Store(tmp_path), models)
        assert found == {"sphere": a_verdict(name="sphere")}
        assert failed == {"verdict on uniform": "path: too short."}
    assert judged == ["sphere", "uniform", "uniform"]


def test_verdicts_on_an_engine_are_units_by_setting_and_come_by_the_store(planted, tmp_path, monkeypatch):
    instruments = []
    monkeypatch.setattr(verdicts, "verdict_on", lambda name, subject, instrument: a_verdict(name=name))
    monkeypatch.setattr(verdicts, "_instrument", instruments.append)
    models = {name: planted[name] for name in ("sphere", "uniform")}
    with ThreadPoolExecutor(1) as workers:
        for _ in range(2):
            verdicts.make_verdicts(Store(tmp_path), models, workers, {}, lambda words: None)
    assert sorted(instruments) == ["sphere", "uniform"]  # one library per unit, and none the second time
    found, failed = verdicts.model_verdicts(Store(tmp_path), models)
    assert {*found} == {"sphere", "uniform", *verdicts.CONTROLS}
    assert failed == {}
    assert len(instruments) == 2  # all are found


def test_what_cannot_be_computed_is_named_and_the_rest_is_there(tmp_path, monkeypatch, planted):
    def refuse(*of):
        raise ls.InputError("sigma = 0: must be above 0.")

    from layerstep.reproduction.numbers import solvers

    walk = constructed.compute_walk(3, 5, 0.1)
    monkeypatch.setattr(noise, "ridge_noise", refuse)
    monkeypatch.setattr(solvers, "conditioning", lambda store: compute_conditioning(2, 2))
    monkeypatch.setattr(solvers, "cg_precision", refuse)
    ratio = noise.Ratio(value=[], standard_error=[], low=[], high=[])
    of_model = noise.ModelNoise(over_optimal=ratio, encoded_over_optimal=ratio, over_encoded=ratio)
    monkeypatch.setattr(noise, "model_noise", lambda store, names: dict.fromkeys(names, of_model))
    monkeypatch.setattr(constructed, "constructed_models", refuse)
    monkeypatch.setattr(constructed, "constructed_walk", lambda store: walk)
    monkeypatch.setattr(constructed, "constructed_schemes", refuse)
    monkeypatch.setattr(planted_paths, "compare_planted_paths", refuse)
    monkeypatch.setattr(solvers, "solver_curves", lambda store, setting, steps: compute_curves(setting, 3, 2))
    monkeypatch.setattr(measurements, "measure", lambda store, name: refuse() if name == "uniform" else planted[name])
    failed: dict[str, str] = {}
    numbers = collect(Store(tmp_path), ["uniform", "sphere", "sphere-fast"], failed)
    assert {*failed} == {"noise", "cg-precision", "constructed models", "schemes", "planted paths", "uniform"}
    assert list(numbers.models) == list(numbers.model_noise) == ["sphere", "sphere-fast"]
    assert (numbers.noise, numbers.walk, numbers.schemes) == ({}, walk, None)
    assert list(numbers.conditioning) == list(SETTINGS)
    assert [found.setting for found in numbers.curves.values()] == ["sphere", "uniform", "gaussian"]
    assert numbers.curves_beside(planted["sphere"]) == numbers.curves["sphere"]


@pytest.mark.slow
def test_controls_get_the_verdict_they_deserve(tmp_path):
    found, failed = verdicts.model_verdicts(Store(tmp_path), {})
    assert failed == {}
    assert {name: verdict.solver for name, verdict in found.items()} == {
        "constructed transformer": "richardson",
        "ridge path": "ridge",
        "kernel average": "nadaraya-watson",
    }
    # What the paper's metric says of the same three.
    assert all(verdict.won >= 11 for verdict in found.values())
    assert verdicts.model_verdicts(Store(tmp_path), {})[0] == found
