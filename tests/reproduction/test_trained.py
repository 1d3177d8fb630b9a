"""Figures of trained models, on planted ones whose answers are known."""

import numpy as np
import pytest
import torch
from scipy import stats

import layerstep as ls
from layerstep.reproduction import measurements, predictions, runs
from layerstep.reproduction.claims.findings import findings
from layerstep.reproduction.figures import noise, probes, trained, trained_noise, verdicts
from layerstep.reproduction.predictions import FILE, Predictions
from layerstep.reproduction.reference import Row, by_chance, outcomes
from layerstep.reproduction.runs import LAWS
from layerstep.reproduction.settings import TITLES, evaluation_prompts


@pytest.fixture(scope="module")
def planted(tmp_path_factory, plant):
    """Two laws whose layer l is Richardson after 10 l steps, and two seeds of the short schedule with other strides."""
    patch = pytest.MonkeyPatch()
    patch.setattr(runs, "MODELS", tmp_path_factory.mktemp("models"))
    plant("sphere", steps=7000)
    plant("uniform")
    plant("sphere-fast", stride=9)
    plant("sphere-fast-seed-1", stride=11)
    names, reasons = measurements.usable()
    assert reasons == {}
    yield {name: measurements.compute(name) for name in names}
    patch.undo()


def test_predictions_come_back_as_they_were_saved(planted):
    back = Predictions.load(runs.RUNS["sphere"].folder)
    path = ls.solve(ls.Richardson(), evaluation_prompts("sphere"), ls.Task(), range(0, 121, 10))
    torch.testing.assert_close(back.layers.values, path.values, rtol=0, atol=1e-6)
    assert back.facts == {"setting": "sphere"}
    assert list(planted) == ["sphere", "uniform", "sphere-fast", "sphere-fast-seed-1"]


def test_the_planted_steps_are_found_one_by_one(planted):
    richardson = planted["sphere"]["solvers"]["richardson"]
    np.testing.assert_allclose(richardson["mean"], 10 * np.arange(1, 13), atol=0.2)
    assert richardson["r2"] == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(richardson["best_step"], 10 * np.arange(1, 13))
    np.testing.assert_allclose(richardson["best_sime"], 1, atol=1e-6)
    assert planted["sphere"]["won"]["richardson"] == 12


def test_errors_by_layer_are_those_of_the_planted_solver(planted):
    prompts = evaluation_prompts("uniform")
    path = ls.solve(ls.Richardson(), prompts, ls.Task(inputs="uniform"), range(0, 121, 10))
    expected = (path.values[:, :, 39] - prompts.y[:, 40]).square().mean(1)
    np.testing.assert_allclose(planted["uniform"]["layer_mse"][-1], expected, atol=1e-6)
    krr = (ls.exact(prompts, ls.Task(inputs="uniform"))[:, 39] - prompts.y[:, 40]).square().mean()
    assert planted["uniform"]["krr"][-1] == pytest.approx(float(krr), abs=1e-12)


def test_without_its_card_a_model_has_the_error_the_card_would_have(models, plant):
    folder = plant("sphere")
    whole = Predictions.load(folder)
    silent = {"layers": whole.layers, "head": whole.head, "noise": torch.zeros_like(whole.noise), "facts": whole.facts}
    Predictions(**silent).save(folder)
    prompts = evaluation_prompts("sphere", predictions.NOISE_SEQUENCES)
    truth = prompts.noiseless_target[:, -1]
    krr = (ls.exact(prompts, ls.Task())[:, -1] - truth).square().mean()
    assert measurements.compute("sphere")["over_krr"] == pytest.approx(float(truth.square().mean() / krr), rel=1e-9)


def test_the_quoted_numbers_say_how_the_model_was_trained_and_what_the_range_is_over(planted):
    artefact = trained.steps(planted, "sphere", "Figure 2b")
    rows = {row.where: row for row in artefact.rows(artefact.compute(artefact.config))}
    row = rows["Figure 2b and text"]
    assert (row.paper, row.rounding) == (0.976, 0.0005)
    assert row.note == "short schedule: 7,000 steps, rate 0.0001"
    assert row.runs == pytest.approx(0, abs=1e-6)  # both planted seeds are straight
    assert trained.steps(planted, "uniform", "Figure 3a").rows({**artefact.compute({}), "model": "sphere", "seeds": {}})


def test_the_first_sentences_are_made_from_the_results(planted):
    artefact = trained.steps(planted, "sphere", "Figure 2b")
    verdict = {"U": 0.4, "V": 0.2, "steps": 7000, "nearest": "richardson", "margin": 0.001}
    b = {"solver": "richardson", "U": 0.01, "steps": 9000, "margin": 0.02}
    judged = {"a": {**verdict, "solver": None}, "b": {**verdict, **b}}
    words = " ".join(findings({"steps-sphere": artefact.compute({}), "verdicts": judged}))
    assert "(short schedule: 7,000 steps, rate 0.0001)" in words
    assert "R² = 1.000 (paper: 0.976)" in words
    assert "most similar in 12 of 12 layers (paper: 11)" in words
    assert "Of 2 trained transformers (7,000 to 9,000 training steps), 1 can be said to follow a solver" in words
    assert "The nearest class is richardson for 2 (for 1 by more than the margin); it leaves 1% to 40% of" in words
    assert "unexplained, 20% with a pattern, where 1.5% is allowed" in words
    assert findings({}) == []


@pytest.mark.parametrize(("cut", "expected"), [(0, ""), (3, ""), (4, " †")])
def test_a_line_cut_off_by_the_budget_is_marked(cut, expected):
    """Of the nine layers 2 to 10 more than three; layers 1, 11 and 12 are not on the line."""
    shares = [0.9, *(9 - cut) * [0.05], *cut * [0.2], 0.9, 0.9]
    solvers = {"gd": {"at_cap": shares, "r2": 0.9, "r2_low": 0.8, "r2_high": 1.0}}
    assert trained.mark({"range": [2, 10], "solvers": solvers}, "gd") == expected


def test_chance_is_what_student_says():
    seeds = [0.7, 0.8, 1.0]
    expected = stats.t.ppf(0.975, 2) * np.std(seeds, ddof=1) * np.sqrt(2)
    assert by_chance(seeds) == pytest.approx(expected)
    assert by_chance(seeds, 3) == pytest.approx(expected * stats.t.ppf(1 - 0.025 / 3, 2) / stats.t.ppf(0.975, 2))
    assert by_chance([1.0]) == by_chance([1.0, np.nan]) == np.inf


@pytest.mark.parametrize(
    ("paper", "seeds", "outcome"),
    [
        (1.05, [], "reproduced"),
        (1.2, [], "not reproduced"),
        (1.2, [1.0], "not reproduced"),
        (1.2, [1.0, np.nan], "not reproduced"),
        (1.2, [1.0, 1.01, 1.02], "not reproduced"),
        (1.2, [0.95, 1.0, 1.05], "cannot be told"),
        (1.05, [0.95, 1.0, 1.05], "reproduced"),
    ],
    ids=str,
)
def test_a_number_outside_its_range_may_be_within_the_spread_of_seeds(paper, seeds, outcome):
    row = Row(quantity="q", where="w", paper=paper, ours=1.0, low=0.9, high=1.1).beside(seeds)
    assert row.outcome == outcome


@pytest.mark.parametrize(
    ("paper", "outcome"),
    [(3.8, "cannot be told"), (4.0, "not reproduced"), (0.26, "cannot be told"), (0.25, "not reproduced")],
)
def test_ratios_of_errors_differ_by_a_factor(paper, outcome):
    seeds = [0.8, 1.0, 1.25]
    row = Row(quantity="q", where="w", paper=paper, ours=1.0, low=0.9, high=1.1).beside(seeds, factor=True)
    assert row.runs == pytest.approx(np.exp(stats.t.ppf(0.975, 2) * np.std(np.log(seeds), ddof=1) * np.sqrt(2)))  # 3.89
    assert row.outcome == outcome


def test_a_number_of_the_paper_is_counted_once():
    def row(setting, paper, counted):
        quantity = f"q, {TITLES[setting]}, level"
        return Row(quantity=quantity, where="w", paper=paper, ours=1.0, low=0.9, high=1.1, counted=counted)

    rows = [row("sphere", 1.0, True), row("gaussian", 2.0, True), row("gaussian-1.0", 1.0, False)]
    assert outcomes(rows) == {"reproduced": 1, "not reproduced": 1}
    words = "fit s.d. 1.0 (1 of 1 reproduced) better than the s.d. 0.6 it states (0 of 1)"
    assert words in findings({}, (), rows)[0]
    assert findings({}, (), [row("gaussian", 1.0, True), row("gaussian-1.0", 1.0, False)]) == []
    assert findings({}, (), rows[:2]) == []


def test_the_gaussian_column_of_the_noise_table_is_counted_where_its_spread_is_as_stated():
    data = noise.compute({"sequences": 32, "bootstrap": 20, "seed": 1})
    left_out = [row.quantity.split("error, ")[1] for row in noise.rows(data) if not row.counted]
    assert sum(words.startswith(TITLES["gaussian-1.0"]) for words in left_out) == 9
    # Where the noise is that of training the two predictors are one.
    assert [w for w in left_out if TITLES["gaussian-1.0"] not in w] == [f"{TITLES[law]}, σ_test = 0.05" for law in LAWS]


def test_a_head_that_is_exact_krr_has_the_ratios_of_the_encoded_ridge(planted, monkeypatch):
    monkeypatch.setattr(noise, "SEQUENCES", predictions.NOISE_SEQUENCES)
    artefact = trained_noise.artefact(list(planted))
    assert artefact is not None
    data = artefact.compute({**artefact.config, "bootstrap": 20})
    law = data["laws"]["sphere"]
    np.testing.assert_allclose(law["TF/BO"]["value"], law["EO/BO"]["value"], rtol=1e-4)
    np.testing.assert_allclose(law["TF/EO"]["value"], 1, rtol=1e-4)
    np.testing.assert_allclose(data["seeds"]["sphere-fast"]["TF/EO"]["value"], 1, rtol=1e-4)
    rows = artefact.rows(data)
    assert len(rows) == 2 * 10
    assert {row.runs for row in rows if "uniform" in row.quantity} == {None}
    assert artefact.draw(data).get_figure() is not None
    assert trained_noise.artefact(["heads-1"]) is None


@pytest.mark.parametrize("last", [True, False])
def test_a_real_model_gives_predictions_on_every_layer(last, tmp_path):
    model = ls.GPT(ls.Model(layers=2, heads=2, width=16)).initialise(0)
    found, fitted = predictions.predict(model, "sphere", prompts=64, sequences=8, last=last)
    assert found.layers.values.shape == (3, 256, 40)
    assert found.noise.shape == (9, 8)
    torch.testing.assert_close(found.head, model(evaluation_prompts("sphere"))[:, 1:].detach())
    again, _ = predictions.predict(model, "sphere", probes=fitted, sequences=8)
    torch.testing.assert_close(again.layers.values, found.layers.values)
    found.save(tmp_path)
    back = Predictions.load(tmp_path).last
    assert (found.last is None) == (back is None) == (not last)
    if back is not None:
        path = ls.probe(model, ls.Task(), prompts=64, seed=1, tokens="last").path(evaluation_prompts("sphere"))
        torch.testing.assert_close(back.values, path.values.double(), rtol=1e-6, atol=1e-6)


def test_probes_of_the_last_token_are_measured_beside_the_others(models, plant):
    plant("sphere")
    whole = Predictions.load(runs.RUNS["sphere"].folder)
    last = ls.solve(ls.Richardson(), evaluation_prompts("sphere"), ls.Task(), range(0, 61, 5))
    parts = {"layers": whole.layers, "head": whole.head, "noise": whole.noise, "facts": whole.facts}
    Predictions(**parts, last=last).save(runs.RUNS["sphere"].folder)
    found = measurements.compute("sphere")
    for stride, numbers in ((10, found), (5, found["last"])):
        np.testing.assert_allclose(numbers["solvers"]["richardson"]["best_step"], stride * np.arange(1, 13))
    artefact = probes.last_token({"sphere": found})
    assert artefact is not None
    data = artefact.compute({})
    assert [(row.paper, row.ours, row.counted) for row in artefact.rows(data)] == [
        (0.976, found["last"]["solvers"]["richardson"]["r2"], False),
        (11, found["last"]["won"]["richardson"], False),
    ]


def test_numbers_of_a_model_are_computed_once(planted, tmp_path, monkeypatch):
    first = measurements.measure("sphere", tmp_path)
    monkeypatch.setattr(measurements, "compute", lambda name: {"made": "anew"})
    assert measurements.measure("sphere", tmp_path) == first
    (tmp_path / "measured" / "sphere.json").write_text("{")
    assert measurements.measure("sphere", tmp_path) == {"made": "anew"}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda whole: whole[: len(whole) // 2], "no whole safetensors file"),
        (lambda whole: b"cut", "no whole safetensors file"),
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
    names, reasons = measurements.usable()
    assert names == ["uniform"]
    assert words in reasons["sphere"]


def test_predictions_of_another_shape_or_not_numbers_are_refused(models, plant):
    plant("sphere")
    whole = Predictions.load(runs.RUNS["sphere"].folder)
    fewer = ls.Trajectory(whole.layers.values[:5], whole.layers.stages[:5])
    nans = whole.head.clone()
    nans[3, 3] = torch.nan
    wrong = ls.Trajectory(whole.layers.values * torch.nan, whole.layers.stages)
    cases = [({"layers": fewer}, "layers has shape"), ({"last": fewer}, "last has shape")]
    for parts, words in [*cases, ({"head": nans}, "no numbers"), ({"last": wrong}, "no numbers")]:
        fields = {"layers": whole.layers, "head": whole.head, "noise": whole.noise, "facts": whole.facts}
        Predictions(**(fields | parts)).save(runs.RUNS["sphere"].folder)
        assert words in measurements.usable()[1]["sphere"]


def test_a_model_in_two_folders_is_judged_once(plant, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "MODELS", tmp_path)
    plant("sphere")
    plant("sphere-fast")
    plant("heads-4", stride=5)
    models = {name: {} for name in ("sphere", "sphere-fast", "heads-4")}
    assert list(verdicts._distinct(models)) == ["sphere", "heads-4"]


def test_verdicts_are_made_once_and_one_that_fails_leaves_the_others(planted, tmp_path, monkeypatch):
    judged = []

    def judge(subject, instrument):
        assert instrument == f"of {subject.setting}"
        judged.append(subject.setting)
        if subject.setting == "uniform":
            raise ls.InputError("path: too short.")
        return {"solver": None}

    monkeypatch.setattr(verdicts, "_judge", judge)
    monkeypatch.setattr(verdicts, "_instrument", lambda setting: f"of {setting}")
    monkeypatch.setattr(verdicts, "CONTROLS", {})
    models = {name: planted[name] for name in ("sphere", "uniform")}
    for _ in range(2):
        found, failed = verdicts.judge(models, tmp_path)
        assert found == {"sphere": {"solver": None}}
        assert failed == {"verdict on uniform": "path: too short."}
    assert judged == ["sphere", "uniform", "uniform"]


def test_the_verdict_figure_shows_every_class_and_boxes_the_nearest():
    numbers = {"nearest": "gd", "headline": "none (nearest: gd)", "families": ["gd", "cg"], "layers": [1.0, 2.0]}
    judged = {**numbers, "classes": {"gd": 0.25, "cg": 1.5}, "U_layer": [[0.2, 0.3], [1.0, 2.0]]}
    for few, panels in (([], 0), (["uniform"], 1), (["uniform", "sphere", "ridge path", "kernel average"], 4)):
        data = {"heads-1": judged, "silent": {"nearest": None}} | dict.fromkeys(few, judged)
        fig = verdicts.draw(data)
        table, *layers = fig.axes
        assert {text.get_text() for text in table.texts} == {"0.25", "1.50"}
        assert len(table.patches) == 1 + len(few)
        assert [label.get_text() for label in table.get_xticklabels()] == ["gd", "cg"]
        assert len(layers) == panels + (panels > 0)  # and a scale of colours
    assert verdicts.draw({"silent": {"nearest": None}}).axes == []


@pytest.mark.slow
def test_controls_get_the_verdict_they_deserve(tmp_path):
    data, failed = verdicts.judge({}, tmp_path)
    assert failed == {}
    answers = {name: found["solver"] for name, found in data.items()}
    assert answers == {
        "constructed transformer": "richardson",
        "ridge path": "ridge",
        "kernel average": "nadaraya-watson",
    }
    # What the paper's metric says of the same three.
    assert all(found["won"] >= 11 for found in data.values())
    artefact = verdicts.artefact(data)
    assert len(artefact.summary(data)[1]) == 3
    assert artefact.draw(data).axes
    assert verdicts.judge({}, tmp_path)[0] == data
