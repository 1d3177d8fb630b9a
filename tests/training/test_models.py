"""The models in results/models are what their cards say."""

import json
from pathlib import Path

import pytest

from layerstep.training import GPT, PRESETS, Run, evaluate

FOLDERS = sorted((Path(__file__).parents[2] / "results" / "models").glob("*/config.json"))
MODELS = [config for config in FOLDERS if list(config.parent.glob("model*.safetensors"))]
pytestmark = pytest.mark.skipif(not FOLDERS, reason="no trained models in this copy")


def card(config: Path) -> tuple[GPT, Run, dict]:
    about = json.loads(config.read_text())["about"]
    run = Run.from_dict(about["run"])
    claimed = json.loads((config.parent / "evaluation.json").read_text())
    assert claimed["identity"] == run.identity
    return GPT.from_pretrained(config.parent), run, claimed["evaluation"]


@pytest.mark.parametrize("config", MODELS, ids=lambda config: config.parent.name)
def test_a_shipped_model_follows_ridge_regression(config):
    gpt, run, claimed = card(config)
    assert run in [PRESETS[name].override(inputs=run.task.inputs) for name in ("paper", "fast")]
    errors = evaluate(gpt, run.task, B=48, seed=11)
    assert errors.mse[0] > 0.5  # nothing to go by
    assert errors.ratio < 1.4  # 48 prompts; the claim rests on 2,048
    assert claimed["ratio"] < 1.15


@pytest.mark.parametrize("config", FOLDERS, ids=lambda config: config.parent.name)
def test_a_folder_says_which_run_it_holds_and_how_good_it_is(config):
    about = json.loads(config.read_text())["about"]
    run, claimed = Run.from_dict(about["run"]), json.loads((config.parent / "evaluation.json").read_text())
    assert about["step"] == run.steps
    assert claimed["identity"] == run.identity
    words = (config.parent / "README.md").read_text()
    assert f"\n# {config.parent.name}:" in words
    assert run.identity in words
    assert f"| {run.steps:,} | {claimed['evaluation']['mse'][-1]:.4f} |" in words


@pytest.mark.slow
@pytest.mark.parametrize("config", MODELS, ids=lambda config: config.parent.name)
def test_the_errors_on_the_card_are_reproduced(config):
    gpt, run, claimed = card(config)
    errors = evaluate(gpt, run.task, B=claimed["B"], seed=claimed["seed"], block=128)
    # The card's numbers were computed in float32 on a GPU.
    assert errors.krr.tolist() == pytest.approx(claimed["krr"], rel=1e-6)
    assert errors.mse.tolist() == pytest.approx(claimed["mse"], rel=1e-3)
