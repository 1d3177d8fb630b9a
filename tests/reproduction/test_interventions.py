"""Networks that were written into: what is kept is read and judged anew; a bump comes out as the solver says."""

import json
import shutil

import numpy as np
import pytest

from layerstep.measurement.calibration.mechanisms import Mechanism
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.reproduction import runs
from layerstep.reproduction.claims import in_a_sentence, interventions, main_answers
from layerstep.reproduction.figures import networks, open_mask, responses
from layerstep.reproduction.numbers import Numbers
from layerstep.reproduction.numbers import interventions as module
from layerstep.reproduction.numbers.impulse import impulse_response
from layerstep.reproduction.numbers.interventions import PARTS, place_of, rounded, written_into
from layerstep.reproduction.numbers.open_mask import open_mask_models
from layerstep.tasks import Task

PLANTED = "planted-richardson"


@pytest.fixture(scope="module")
def shipped():
    found = written_into()
    if PLANTED not in found:
        pytest.skip("results/interventions is not here")
    return found


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """The file of one planted network, without any weights beside it."""
    source = place_of(PLANTED)
    if not source.is_file():
        pytest.skip("results/interventions is not here")
    monkeypatch.setattr(runs, "MODELS", tmp_path / "models")
    place_of(PLANTED).parent.mkdir(parents=True)
    return shutil.copy(source, place_of(PLANTED))


@pytest.mark.parametrize("form", ["functional", "dual"])
@pytest.mark.parametrize(("mask", "solver"), [("open", "richardson"), ("causal", "causal-richardson")])
def test_a_bump_comes_out_of_a_planted_network_as_its_solver_says(mask, solver, form):
    task = Task(d=2, N=8)
    reader = Mechanism(solver=solver, form=form, mask=mask, steps=(1, 1, 1, 1), decoy="exact").reader(task)
    (found,) = (each for each in impulse_response(reader, task) if each.form == form)
    assert found.of == solver
    assert found.sites == [*reader.sites[2:-1], "output"]
    assert len(found.solver) == len(found.response) == 3
    assert np.allclose(found.response[-1], found.solver[-1], rtol=1e-6, atol=1e-9)
    assert max(map(abs, found.response[-1])) > 0.01
    assert found.explained == pytest.approx(1, abs=1e-6)


def test_every_file_that_is_shipped_is_read(shipped):
    files = {file.stem for file in place_of(PLANTED).parent.glob("*.json")}
    assert {*shipped} == files
    forms = [[each.form for each in network.bumps] for network in shipped.values()]
    assert all(each in ([], ["functional", "dual"]) for each in forms)


def test_the_planted_networks_are_recognised_and_no_decoy_is(shipped):
    for network in shipped.values():
        if network.group == "planted":
            assert network.result.solver == network.truth
        if network.group in ("decoy", "untrained"):
            assert not network.claimed


def test_what_was_measured_is_judged_by_the_rule_that_is_given(alone):
    assert written_into()[PLANTED].claimed == "richardson, functional"
    assert written_into(CausalRule(layers=99))[PLANTED].claimed == ""


DAMAGE = {
    "cut short": lambda text: text[: len(text) // 2],
    "another network": lambda text: text.replace(json.loads(text)["identity"], "0" * 12),
    "edited": lambda text: text.replace('"steps_left": 5', '"steps_left": 6'),
    "no list of layers": lambda text: text.replace('"layers"', '"lawyers"'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_left_out(alone, damage):
    with open(alone, encoding="utf-8") as file:
        text = file.read()
    changed = DAMAGE[damage](text)
    assert changed != text
    with open(alone, "w", encoding="utf-8") as file:
        file.write(changed)
    assert written_into() == {}


def test_without_files_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "MODELS", tmp_path / "models")
    numbers = Numbers(interventions=written_into(), open_mask=open_mask_models())
    assert not numbers.interventions
    assert not numbers.open_mask
    assert in_a_sentence(numbers) == ""
    for result in (responses.bump, responses.kernels, networks.axis, networks.readings, open_mask.training):
        assert result(numbers) is None


def test_sentences_name_what_was_measured(shipped):
    numbers = Numbers(interventions=shipped)
    written = interventions.Written.of(numbers)
    assert written is not None
    shares = interventions.left(written.models)
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    for words in (in_a_sentence(numbers), interventions.in_words(numbers), main_answers(numbers)[-1].answer):
        assert low in words or written.claimed
        assert high in words or written.claimed


def test_numbers_are_kept_to_six_digits():
    assert rounded({"a": [1 / 3, (2, 1e-20 / 3)], "b": "x"}) == {"a": [0.333333, [2, 3.33333e-21]], "b": "x"}
    assert set(PARTS) == {"result", "bumps", "readings"}


def test_what_is_missing_is_measured_once_and_what_other_code_measured_on_request(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "MODELS", tmp_path / "models")
    (network,) = (each for each in module.networks() if each.name == PLANTED)
    monkeypatch.setattr(module, "networks", lambda: [network])
    monkeypatch.setattr(module, "_measure", lambda network, part: {"of": part, "third": 1 / 3})
    said: list[str] = []
    module.measure_interventions(said.append)
    kept = module.kept_parts(network)
    assert [*kept] == [*PARTS] == [words.rpartition(" ")[2] for words in said]
    assert kept["bumps"].data == {"of": "bumps", "third": 0.333333}
    monkeypatch.setattr(module, "code_identity", lambda name: "other code")
    module.measure_interventions(said.append)
    assert len(said) == len(PARTS)
    module.measure_interventions(said.append, again=True)
    assert len(said) == 2 * len(PARTS)
    assert {part.code for part in module.kept_parts(network).values()} == {"other code"}
