"""The causal instrument on networks whose layers are known."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import layerstep as ls
from layerstep.measurement.calibration.mechanism_network import interleaved
from layerstep.measurement.calibration.mechanisms import Mechanism
from layerstep.measurement.interventions import passes
from layerstep.measurement.interventions.alignment import Inputs, Moments, align, known_inputs
from layerstep.measurement.interventions.instrument import intervene
from layerstep.measurement.interventions.operator import describe
from layerstep.measurement.interventions.passes import draw
from layerstep.measurement.interventions.result import CausalResult
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.measurement.reading.hooks import Hooked

TASK = ls.Task(inputs="sphere", d=4, N=12)
FEW = {"fit": 60, "choose": 18, "score": 24, "check": 9}
POSITIVE = [
    Mechanism(solver="richardson", form="dual", mask="open", steps=(2, 1, 2), v=0.9),
    Mechanism(solver="gd", form="functional", mask="open", steps=(1, 3, 1), v=1.3, decoy="richardson"),
    Mechanism(solver="causal-boost", form="functional", mask="causal", steps=(1, 2, 1), v=0.8),
    Mechanism(solver="causal-richardson", form="dual", mask="causal", steps=(2, 1, 1), v=1.2, leak=0.02),
]


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Shapes are checked elsewhere: thousands of small calls are ten times as slow with them."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


def judged(mechanism, **options):
    given = {"prompts": FEW, "checks": False} | options
    return intervene(mechanism.reader(TASK), TASK, **given)


@pytest.mark.parametrize("mechanism", POSITIVE, ids=lambda m: f"{m.solver}, {m.form}")
def test_a_planted_mechanism_is_recovered(mechanism):
    result = judged(mechanism)
    assert (result.solver, result.form) == mechanism.truth
    (claim,) = result.claims
    assert claim.steps_left == mechanism.steps_left[1:-1]
    for layer, left in list(zip(result.layers, mechanism.steps_left, strict=True))[1:-1]:
        match = layer.match
        assert match.steps_left == left
        assert match.unexplained < 1e-6
        assert abs(math.log(match.bandwidth / mechanism.v)) < 1e-3
        assert abs(match.gain - 1) < 0.1
        assert 1 - layer.dose.share < 1e-6
        assert (layer.accumulate > 0.5) == (mechanism.form == "functional")
    assert 1 - result.layers[1].transition < 1e-6
    assert result.layers[-1].match is None or mechanism.form == "dual"


def test_a_reader_reads_one_unit_of_what_its_writer_writes():
    reader = POSITIVE[3].reader(TASK)
    fit = draw(reader, TASK, 60, 0, 0)
    examples, _, _ = passes.states(reader, fit)
    inputs = Inputs.of(known_inputs(fit))
    moments = Moments.of(torch.cat([part.flatten(0, 1) for part in examples[1]]), inputs)
    wanted = reader.model.frame.read(examples[1][0], "state").flatten()
    rest = [reader.model.frame.read(part, "state").flatten() for part in examples[1][1:]]
    alignment = align(moments, inputs, torch.cat([wanted, *rest])[:, None])
    u, a = alignment.readers[:, 0], alignment.writers[:, 0]
    assert torch.isclose(u @ a, torch.ones((), dtype=torch.float64), atol=1e-9)
    direction = reader.model.frame.directions[reader.model.frame.slices["state"]][0]
    others = reader.model.frame.read(a[None, None], "state")
    assert torch.isclose(others.squeeze(), torch.ones((), dtype=torch.float64), atol=1e-6)
    assert torch.nn.functional.cosine_similarity(a, direction, dim=0) > 0.1


@pytest.mark.parametrize(
    "mechanism",
    [
        Mechanism(solver="richardson", kind="readable", other="exact", mask="open"),
        Mechanism(solver="causal-richardson", kind="readable", form="dual", mask="causal"),
        Mechanism(solver="richardson-fixed", other="boost", kind="alternating", mask="open"),
        Mechanism(solver="causal-richardson", kind="momentum", form="dual", mask="causal"),
        Mechanism(solver="random-attention", mask="causal"),
    ],
    ids=lambda m: f"{m.kind}, {m.solver}",
)
def test_nothing_is_claimed_of_decoys_and_near_misses(mechanism):
    result = judged(mechanism)
    assert result.claims == ()
    assert result.solver is None
    assert "no layers follow one of the solvers tried" in result.lines()[0] or "cannot be tested" in result.lines()[0]


def test_without_its_own_solver_a_positive_is_not_claimed():
    result = judged(POSITIVE[0], without=["richardson"])
    assert result.solver is None
    assert "richardson" not in result.facts["solvers"]


def numbers(result):
    return [
        (layer.match.unexplained, layer.match.gain, layer.match.steps_left, layer.dose.gain, layer.accumulate)
        for layer in result.layers
        if layer.match
    ]


def test_the_size_of_a_pass_changes_nothing(monkeypatch):
    before = numbers(judged(POSITIVE[3]))
    monkeypatch.setattr(passes.Batch.pieces, "__defaults__", (5,))
    np.testing.assert_allclose(numbers(judged(POSITIVE[3])), before, rtol=1e-6, atol=1e-8)


class Units(nn.Module):
    """The planted network with its stream in other units, between its layers."""

    def __init__(self, network, unit):
        super().__init__()
        self.network, self.unit = network, unit
        self.sites = nn.ModuleList(nn.Identity() for _ in range(len(network.layers) + 1))

    def forward(self, tokens):
        h = self.sites[0](self.unit * self.network.embedding(tokens))
        for layer, site in zip(self.network.layers, self.sites[1:], strict=True):
            h = site(self.unit * layer(h / self.unit))
        return self.network.frame.read(h[:, ::2] / self.unit, "f")


def test_the_unit_of_the_states_changes_nothing():
    network = POSITIVE[3].network(TASK)
    found = []
    for unit in (1.0, 1e4):
        modules = [f"sites.{index}" for index in range(4)]
        reader = Hooked(model=Units(network, unit).eval(), inputs=interleaved, modules=modules)
        found.append(numbers(intervene(reader, TASK, prompts=FEW, checks=False)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-8)


def test_an_untrained_gpt_is_described_and_not_claimed():
    task = ls.Task(d=3, N=8)
    for mask in ("causal", "open"):
        model = ls.GPT(ls.Model(layers=2, heads=2, width=16, mask=mask), d=3, N=8).initialise(3).eval()
        result = intervene(model, task, prompts=FEW)
        assert result.claims == ()
        assert result.operator["block 1"].explained <= result.operator["block 1"].explained_by_distance + 1
        again = CausalResult.from_dict(json.loads(json.dumps(result.to_dict())))
        assert again.lines() == result.lines()


def test_the_measured_operator_of_a_kernel_row_is_that_kernel():
    reader = POSITIVE[0].reader(TASK)
    batches = draw(reader, TASK, 30, 1, 0)
    rows = []
    for batch in batches:
        x = batch.prefix.x.numpy()
        k = np.exp(-((x[:, -1:] - x[:, :-1]) ** 2).sum(-1) / (2 * 0.7**2))
        rows.append(torch.from_numpy(-2 * k / k.sum(-1, keepdims=True)))
    operator = describe(TASK, batches, rows)
    assert operator.normalisation == "query"
    assert abs(operator.bandwidth - 0.7) < 0.05
    assert abs(operator.gain + 2) < 0.05
    assert operator.explained > 0.99
    assert describe(TASK, batches, [0 * row for row in rows]) is None


class Constant(nn.Module):
    """A model that answers 0 whatever it is given."""

    def __init__(self):
        super().__init__()
        self.block = nn.Linear(6, 8)
        nn.init.zeros_(self.block.weight)

    def forward(self, tokens):
        return self.block(tokens.float())[:, ::2, 0]


class Leaking(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Identity()

    def forward(self, tokens):
        return self.block(tokens.roll(-1, 1))[:, ::2, 4]


def hooked(model):
    return Hooked(model=model.eval(), inputs=interleaved, modules=["block"])


def test_a_model_on_which_nothing_can_be_written_gets_a_sentence():
    result = intervene(hooked(Constant()), TASK, prompts=FEW)
    assert result.lines()[0].startswith("Interventions: cannot be tested, because ")
    assert result.solver is None
    json.dumps(result.to_dict())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: intervene(Hooked(model=Leaking().eval(), inputs=interleaved, modules=["block"]), TASK),
            "which it should",
        ),
        (
            lambda: intervene(POSITIVE[0].reader(TASK), TASK, prompts={"fitting": 3}),
            "prompts = 'fitting': must be one of",
        ),
        (lambda: intervene(POSITIVE[0].reader(TASK), TASK, without=["cg"]), "without = 'cg': must be one of"),
        (lambda: intervene(POSITIVE[0].reader(TASK), TASK, prompts={"fit": 2}), "fit = 2: must be an integer of at"),
        (lambda: intervene(nn.Linear(2, 2), TASK), "is not one layerstep knows"),
    ],
)
def test_mistakes_are_sentences(call, words):
    with pytest.raises(ls.InputError, match=words):
        call()


def test_a_rule_says_why_it_refuses():
    layer = judged(POSITIVE[2]).layers[1]
    assert CausalRule().refuses(layer) == ""
    match, dose = layer.match, layer.dose
    nearest, *others = match.ranking
    poor = (dataclasses.replace(nearest, unexplained=0.5), *others)
    same = next(each for each in others if each.claimable and each.form == match.form and each.name != nearest.name)
    close = (nearest, dataclasses.replace(same, ratio=1.1))
    excluded = dataclasses.replace(same, form="dual", ratio=0.9)  # T3 speaks against it, and it leaves no less
    dual = (dataclasses.replace(nearest, form="dual"),)
    for changes, words in (
        ({"match": dataclasses.replace(match, ranking=poor)}, "50.0% of the response is not explained"),
        ({"match": dataclasses.replace(match, ranking=close)}, f"{same.name} leaves only 1.1 times as much"),
        ({"match": dataclasses.replace(match, ranking=dual)}, "the prediction is added up, unlike the dual form"),
        ({"match": dataclasses.replace(match, state_explained=0.4)}, "only 40% of the state can be read"),
        ({"match": dataclasses.replace(match, gain=9.0)}, "of a unit written 9 are read"),
        ({"accumulate": 0.1}, "the prediction is made anew, unlike the functional form"),
        ({"p_value": 0.5}, "states of other labels are read as well"),
        ({"doses": (dataclasses.replace(dose, share=0.5),)}, "noise of size 1: 50.0% is not explained"),
        ({"doses": (dataclasses.replace(dose, shift=30.0),)}, "30 times as far as a natural state"),
    ):
        assert words in CausalRule().refuses(dataclasses.replace(layer, **changes))
    tied = dataclasses.replace(layer, match=dataclasses.replace(match, ranking=(nearest, excluded)))
    assert CausalRule().refuses(tied) == ""
    worse = dataclasses.replace(match, ranking=(nearest, dataclasses.replace(excluded, ratio=0.4)))
    assert "dual leaves only 0.4 times as much" in CausalRule().refuses(dataclasses.replace(layer, match=worse))
    poor_match = dataclasses.replace(layer, match=dataclasses.replace(match, ranking=poor))
    assert CausalRule(unexplained=0.9).refuses(poor_match) == ""


def test_neighbours_that_match_a_solver_and_not_each_other_are_not_claimed():
    result = judged(POSITIVE[0])
    first, second = result.layers[1], result.layers[2]
    rule = CausalRule()
    assert [len(run) for run in rule.ranges([first, second])] == [2]
    assert rule.ranges([dataclasses.replace(first, transition=0.9), second]) == []
    assert rule.ranges([dataclasses.replace(first, transition=None), second]) == []
    nearest, *others = second.match.ranking
    longer = (dataclasses.replace(nearest, eta=1.3 * nearest.eta), *others)
    match = dataclasses.replace(second.match, ranking=longer)
    assert rule.ranges([first, dataclasses.replace(second, match=match)]) == []  # steps of another size


def test_between_two_halves_of_a_step_as_many_steps_are_left():
    mechanism = Mechanism(solver="gd", form="dual", mask="open", kind="halves", steps=(1,) * 6, v=1.3, size=0.8)
    result = judged(mechanism)
    (claim,) = result.claims
    assert (claim.solver, claim.form) == mechanism.truth
    assert claim.steps_left == (2, 1, 1) == mechanism.steps_left[2:5]
    halves = [layer for layer in result.layers if layer.match and layer.match.steps_left == 1][:2]
    assert CausalRule().ranges(halves) == []  # one number of steps left alone


SIZED = [
    Mechanism(solver="richardson-fixed", form="dual", mask="open", steps=(2, 1, 2, 1), v=0.9, size=0.7),
    Mechanism(solver="gd", form="functional", mask="open", steps=(1, 3, 1, 1), v=1.3, decoy="richardson", size=0.5),
    Mechanism(solver="richardson", form="functional", mask="open", steps=(1, 2, 1, 1), v=1.3, size=0.5),
    Mechanism(solver="causal-boost", form="functional", mask="causal", steps=(1, 2, 1), v=0.8, size=0.7),
]


@pytest.mark.parametrize("mechanism", SIZED, ids=lambda m: f"{m.solver}, {m.form}")
def test_a_size_of_steps_that_all_prompts_share_is_found(mechanism):
    result = judged(mechanism)
    (claim,) = result.claims
    assert (claim.solver, claim.form) == mechanism.truth
    assert claim.steps_left == mechanism.steps_left[1:-1]
    assert claim.fitted
    assert abs(claim.eta / mechanism.eta(TASK) - 1) < 1e-4
    assert f"step size {claim.eta:.3g} on all prompts" in str(claim)
    assert result.claims == CausalResult.from_dict(json.loads(json.dumps(result.to_dict()))).claims


def test_a_solver_with_its_own_steps_is_not_given_another_size():
    (claim,) = judged(POSITIVE[1]).claims
    assert not claim.fitted
    assert "step size 1 / eig_max of each prompt" in str(claim)


def test_layers_with_steps_of_different_sizes_are_not_claimed():
    mechanism = Mechanism(solver="richardson", kind="uneven", form="dual", mask="open", steps=(1,) * 5, v=0.9)
    assert judged(mechanism).claims == ()


def test_what_lies_between_two_solvers_is_not_claimed_and_must_be_beaten():
    layer = judged(POSITIVE[0]).layers[1]
    rule = CausalRule()
    assert rule.closest(layer, claimable=False)[0].name == "half-normalised, dual"
    assert rule.closest(layer, claimable=True)[0].claimable
    nearest, *others = layer.match.ranking
    half = dataclasses.replace(next(each for each in others if not each.claimable), unexplained=0.0)
    for ranking, words in (
        ((half, nearest), "it is half-way between two solvers"),
        ((nearest, dataclasses.replace(half, ratio=0.9)), "leaves as little"),
    ):
        changed = dataclasses.replace(layer, match=dataclasses.replace(layer.match, ranking=ranking))
        assert words in CausalRule().refuses(changed)
