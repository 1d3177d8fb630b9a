"""Figures of trained models, on planted ones whose answers are known."""

import dataclasses

import numpy as np
import pytest
import torch

import layerstep as ls
from layerstep.paper import predictions, runs, trained, trained_noise, verdicts
from layerstep.paper.predictions import Predictions
from layerstep.paper.settings import SETTINGS, evaluation_prompts


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A model folder whose layer l is Richardson after 10 l steps, and whose head is exact KRR at every noise."""
    folder = tmp_path_factory.mktemp("models")
    patch = pytest.MonkeyPatch()
    patch.setattr(runs, "MODELS", folder)
    task, prompts = SETTINGS["sphere"], evaluation_prompts("sphere")
    layers = ls.solve(ls.Richardson(), prompts, task, range(0, 121, 10))
    wide = evaluation_prompts("sphere", predictions.NOISE_SEQUENCES)
    noise = [ls.exact(wide.scale_noise(sigma / task.sigma), task)[:, -1] for sigma in predictions.SIGMA_TEST]
    found = Predictions(
        layers=ls.Path(layers.values, np.arange(13.0)),
        head=ls.exact(prompts, task),
        noise=torch.stack(noise),
        facts={"setting": "sphere"},
    )
    found.save(runs.RUNS["sphere"].folder)
    ls.GPT(ls.Model(layers=1, heads=1, width=4)).initialise(0).save_pretrained(
        runs.RUNS["sphere"].folder, about={"run": {"steps": 7000}}
    )
    trained.matches.cache_clear()
    yield found
    patch.undo()
    trained.matches.cache_clear()


def test_predictions_come_back_as_they_were_saved(planted):
    back = Predictions.load(runs.RUNS["sphere"].folder)
    torch.testing.assert_close(back.layers.values, planted.layers.values, rtol=0, atol=1e-6)
    assert back.facts == planted.facts
    assert trained.available() == ["sphere"]


def test_a_missing_or_cut_file_is_a_sentence(planted, tmp_path):
    with pytest.raises(ls.FileError, match="is not there"):
        Predictions.load(tmp_path)
    whole = (runs.RUNS["sphere"].folder / predictions.FILE).read_bytes()
    (tmp_path / predictions.FILE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ls.FileError, match="no whole safetensors file"):
        Predictions.load(tmp_path)


def test_a_broken_file_leaves_the_other_models(planted, monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "MODELS", tmp_path)
    for name in ("sphere", "uniform"):
        planted.save(tmp_path / name)
    (tmp_path / "sphere" / predictions.FILE).write_bytes(b"cut")
    assert trained.available() == ["uniform"]


def test_the_planted_steps_are_found_one_by_one(planted):
    data = trained.compute_steps({"model": "sphere", "seed": 1})
    np.testing.assert_allclose(data["solvers"]["richardson"]["mean"], 10 * np.arange(1, 13), atol=0.2)
    assert data["solvers"]["richardson"]["r2"] == pytest.approx(1, abs=1e-4)
    assert data["won"]["richardson"] == 12
    rows = {row.where: row for row in trained.rows_steps(data)}
    assert rows["Figure 2b and text"].paper == 0.976
    assert "7,000 training steps" in rows["Figure 2b and text"].note


def test_the_heat_map_peaks_at_the_planted_step(planted):
    data = trained.compute_sime({"model": "sphere"})
    richardson = data["solvers"]["richardson"]
    np.testing.assert_allclose(richardson["best_step"], 10 * np.arange(1, 13))
    np.testing.assert_allclose(richardson["best_sime"], 1, atol=1e-6)


def test_a_head_that_is_exact_krr_has_the_ratios_of_the_encoded_ridge(planted):
    config = {**trained_noise.artefact(["sphere"]).config, "bootstrap": 20}
    law = trained_noise.compute(config)["laws"]["sphere"]
    np.testing.assert_allclose(law["TF/BO"]["value"], law["EO/BO"]["value"], rtol=1e-4)
    np.testing.assert_allclose(law["TF/EO"]["value"], 1, rtol=1e-4)


@pytest.mark.parametrize("index", range(3))
def test_every_figure_of_a_model_is_made(planted, index, tmp_path):
    artefact = trained.artefacts("sphere")[index]
    artefact.make(tmp_path)
    assert artefact.load(tmp_path) is not None


def test_a_real_model_gives_predictions_on_every_layer():
    model = ls.GPT(ls.Model(layers=2, heads=2, width=16)).initialise(0)
    found, probes = predictions.predict(model, "sphere", prompts=64, sequences=8)
    assert found.layers.values.shape == (3, 256, 40)
    assert found.noise.shape == (9, 8)
    torch.testing.assert_close(found.head, model(evaluation_prompts("sphere"))[:, 1:].detach())
    again, _ = predictions.predict(model, "sphere", probes=probes, sequences=8)
    torch.testing.assert_close(again.layers.values, found.layers.values)


@pytest.mark.slow
def test_controls_get_the_verdict_they_deserve():
    data = verdicts.compute({"models": [], "seed": 0})
    answers = {name: found["solver"] for name, found in data.items()}
    assert answers == {
        "constructed transformer": "richardson",
        "ridge path": "ridge",
        "kernel average": "nadaraya-watson",
    }
    # What the paper's metric says of the same three.
    assert all(found["won"] >= 11 for found in data.values())
    artefact = dataclasses.replace(verdicts.artefact([]), compute=lambda config: data)
    assert len(artefact.summary(data)[1]) == 3
    assert artefact.draw(data).axes
