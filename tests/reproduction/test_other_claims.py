"""Other published claims: their metric on paths that are known, and on models trained on linear regression."""

import json
from dataclasses import replace

import pytest

from layerstep.files import write_json
from layerstep.reproduction import runs
from layerstep.reproduction.figures import published
from layerstep.reproduction.numbers import LinearModel, Numbers, Store, linear_models
from layerstep.reproduction.numbers.planted_paths import compare_planted_paths
from layerstep.reproduction.page.chapters import OTHERS
from layerstep.tasks import LinearRegression
from layerstep.training import GPT, Model, Run, evaluate


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    found = compare_planted_paths(Store(folder), 64)
    assert compare_planted_paths(Store(folder), 64) == found  # from the file
    return found


def test_similarity_to_newton_is_high_for_what_is_not_newton(paths):
    assert [each.truth for each in paths if each.sime > 0.98 and each.r2 > 0.9] != ["newton"]
    newton, descent, *_ = paths
    assert (newton.truth, newton.nearer_newton) == ("newton", 12)
    assert (descent.truth, descent.sime > 0.99, descent.r2 > 0.98) == ("gd-weights", True, True)
    assert sum(each.nearer_newton > 5 for each in paths if each.truth != "newton") == 2


def test_the_verdict_is_never_another_class(paths):
    assert all(each.solver in (each.truth, None) for each in paths)
    assert sum(each.solver == each.truth for each in paths) >= 5


def test_the_figure_and_its_table_have_every_path(paths, tmp_path):
    result = published.planted(Numbers(planted_paths=paths))
    assert [line[0] for line in result.summary.lines] == [each.name for each in paths]
    assert len(result.table().lines) == 12 * 7
    assert result.write(tmp_path)
    assert "Newton, 1.5 per layer" in result.svg(tmp_path)
    assert published.planted(Numbers()) is None


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """An untrained model of one block, measured as those of results/linear are."""
    patch, home = pytest.MonkeyPatch(), tmp_path_factory.mktemp("results")
    patch.setattr(runs, "MODELS", home / "models")
    run = Run(task=LinearRegression(d=2, N=8, sigma=0.3, pool=4), model=Model(layers=1, heads=1, width=8, loops=3))
    gpt = GPT(run.model, 2, 8).initialise(0)
    place = home / "linear" / "small"
    gpt.save_pretrained(place, about={"run": run.to_dict(), "step": 0})
    write_json(place / "evaluation.json", {"evaluation": evaluate(gpt, run.task, B=64, seed=0).to_dict()})
    linear_models.measure_linear_models(lambda words: None)
    yield place
    patch.undo()


def test_a_model_is_measured_once_and_read_from_its_file(measured):
    found = linear_models.read_linear_models()["small"]
    assert (found.of, len(found.mse), found.pool) == (3, 9, 4)
    assert found.model == "1 layer, looped 3 times, width 8, softmax, causal mask"
    assert not found.learned
    said: list[str] = []
    for again in (False, True):
        linear_models.measure_linear_models(said.append, again=again)
    assert not said
    file = measured / linear_models.MEASURED
    whole = file.read_text()
    kept = json.loads(whole)
    kept["data"]["sime"] = 1.0
    write_json(file, kept)
    assert linear_models.read_linear_models() == {}
    file.write_text(whole)


def test_only_what_learned_is_shown(measured, tmp_path):
    model = linear_models.read_linear_models()["small"]
    learned = replace(model, mse=[1.0, *[0.2] * 7, 0.01], best=[1.0, *[0.1] * 7, 0.008], sigma=0.5)
    assert learned.learned
    numbers = Numbers(linear_models={"small": model})
    assert published.trained(numbers) is None
    assert "None of the models trained here" in OTHERS.said(numbers)
    numbers = Numbers(linear_models={"small": model, "garg-seed-0": learned})
    result = published.trained(numbers)
    assert [line[0] for line in result.summary.lines] == ["garg-seed-0"]
    assert result.summary.lines[0][2] == "1.25"
    assert "of 1 models trained here" in OTHERS.said(numbers)
    assert result.write(tmp_path / "out")


def test_without_noise_the_error_is_beside_that_without_examples():
    about = {"name": "a", "task": "LinearRegression(d=2, N=2)", "model": "", "sigma": 0.0, "pool": None, "of": 12}
    about |= {"sime": 1.0, "slope": None, "r2": None, "nearer_newton": 0, "margin": None, "schedule": None}
    verdict = linear_models.Reading(solver=None, status="none", nearest="newton", U=0.5, V=0.1)
    found = LinearModel(**about, verdict=verdict, mse=[2.0, 1.0, 0.002], best=[2.0, 1.0, 1e-30])
    assert found.over_best is None
    assert found.learned
    (line,) = published.trained(Numbers(linear_models={"a": found})).summary.lines
    assert line[2:4] == ["1.0e-03 of n = 0", "1.000"]
    assert line[6] == "none (nearest newton)"
