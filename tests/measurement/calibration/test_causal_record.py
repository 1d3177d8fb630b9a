"""The record of the interventions: measurements are judged by the rule that is given, and counted."""

import json
from pathlib import Path

import pytest
import torch

import layerstep as ls
from layerstep.measurement.calibration import causal_record, trained_controls
from layerstep.measurement.calibration.trained_controls import Trained, judge
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.training import GPT

HOME = Path(__file__).parents[3] / "results"


def row(name, variant=""):
    """The shipped measurement of a trained control, as calibrate keeps it."""
    file = HOME / "interventions" / f"{name}.json"
    if not file.is_file():
        pytest.skip("results/interventions is not here")
    data = json.loads(file.read_text())["parts"]["result"]["data"]
    for layer in data["layers"]:
        layer |= {"swap": None, "to_output": None, "one_layer": None}  # which it does not measure
    return {"name": name, "folder": str(HOME / "controls" / name), "variant": variant, "result": data}


def test_trained_controls_are_counted_by_what_is_known_of_them():
    record = causal_record.record_of([row("boost"), row("boost", "left-out"), row("labels"), row("causal-boost")])
    development, test = record["controls"]["development"], record["controls"]["test"]
    assert development["positive"] | {"layers": 0} == {
        "models": 1, "right": 1, "silent": 0, "wrong": 0, "layers": 0, "steps_right": 6
    }  # fmt: skip
    assert development["own solver left out"]["wrong"] == 1  # the solver itself was claimed: it was not left out here
    assert development["labels"]["silent"] == test["positive"]["right"] == 1
    assert "| boost | positive | block 2 to block 7: boost in its functional form" in causal_record.show(record)
    strict = causal_record.record_of([row("boost")], CausalRule(unexplained=1e-9))
    assert strict["controls"]["development"]["positive"]["silent"] == 1


def test_a_step_in_two_layers_has_as_many_left_between_its_halves():
    control = Trained.at(HOME / "controls" / "gd")
    assert [control.steps_left(f"block {block}") for block in range(1, 8)] == [2, 2, 1, 1, 0, 0, 0]
    functional = Trained.at(HOME / "controls" / "boost")
    dual = Trained.at(HOME / "controls" / "richardson-dual")
    assert (functional.steps_left("block 3"), dual.steps_left("block 3")) == (5, 4)
    assert judge(row("labels"), Trained.at(HOME / "controls" / "labels"), CausalRule())["verdict"] == "silent"


def test_shuffled_weights_are_the_same_numbers_in_another_order():
    model, other = (GPT(ls.Model(layers=1, heads=1, width=8), d=2, N=4).initialise(0) for _ in range(2))
    trained_controls._shuffle(other)
    for name, weight in model.state_dict().items():
        moved = other.state_dict()[name]
        torch.testing.assert_close(moved.flatten().sort().values, weight.flatten().sort().values, rtol=0, atol=0)
        assert weight.dim() < 2 or not torch.equal(moved, weight)
