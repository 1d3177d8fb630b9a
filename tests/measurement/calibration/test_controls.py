"""Controls: their recursions against the library's solvers, their edits, and a step of training against autograd."""

import json

import pytest
import torch

import layerstep as ls
from layerstep.measurement.calibration.controls.check import responses
from layerstep.measurement.calibration.controls.lessons import Units, at_tokens, lesson, points, problem, roles, stacked
from layerstep.measurement.calibration.controls.mechanism import MEMORY, Descent, F, Problem, S, Swap, supervised
from layerstep.measurement.calibration.controls.network import STATE, Edit, Stacked, directions, initialise
from layerstep.measurement.calibration.controls.suite import CAUSAL_STEP, FIXED_STEP, INTERVAL, controls
from layerstep.measurement.calibration.controls.trainer import CHUNK, Trainer
from layerstep.training import GPT
from layerstep.training.gpt import enlist
from layerstep.training.stack import Layout

CPU = torch.device("cpu")
LISTED = {control.name: control for control in controls()}
TINY = {control.name: control for control in controls(layers=4, width=32, heads=2, N=6, d=2, batch=4)}
POSITIVE = [control for control in TINY.values() if control.mechanism is not None]
ORACLES = {
    "richardson-functional": ls.Richardson(eta=1.0),
    "richardson-dual": ls.Richardson(eta=1.0),
    "richardson-fixed": ls.Richardson(preconditioner="none", eta=FIXED_STEP),
    "boost": ls.Boosting(),
    "chebyshev": ls.Chebyshev(lo=INTERVAL[0], hi=INTERVAL[1]),
}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("n", [1, 5, 24])
def test_a_control_predicts_as_its_solver_one_step_per_layer(name, n):
    task, prompts = ls.Task(N=24), ls.sample(ls.Task(N=24), 8, 3)
    setup = Problem.open(task, prompts.x, prompts.y, torch.full((8,), n))
    mechanism = LISTED[name].mechanism
    late = 1 if mechanism.form == "functional" else 2  # step 0 is held by layer 1, or read by layer 2
    found = mechanism.states(setup, 8)[late - 1 :, :, n, F]
    wanted = ls.solve(ORACLES[name], prompts, task, 8 - late, contexts=[n]).values[:, :, 0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "late"), [("causal-richardson", 3), ("causal-boost", 2)])
def test_a_causal_control_predicts_as_its_solver_one_step_per_layer(name, late):
    task, prompts = ls.Task(N=24), ls.sample(ls.Task(N=24), 8, 3)
    found = LISTED[name].mechanism.states(Problem.causal(task, prompts.x, prompts.y), 8)[late - 1 :, :, 1:, F]
    wanted = ls.solve(ls.SOLVERS[name], prompts, task, 8 - late).values
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_a_causal_step_of_one_size_needs_no_row_sums():
    task, prompts = ls.Task(N=24), ls.sample(ls.Task(N=24), 8, 3)
    mechanism = LISTED["causal-richardson-fixed"].mechanism
    found = mechanism.states(Problem.causal(task, prompts.x, prompts.y), 8)[-1, ..., S]
    K, y = task.gram(prompts.x, prompts.x)[:, :24, :24].tril(), prompts.y[:, :24, None]
    w = torch.zeros_like(y)
    for _ in range(6):
        w = w + CAUSAL_STEP * (y - K @ w - task.lam * w)
    torch.testing.assert_close(found[:, :24], w.squeeze(-1), rtol=0, atol=1e-12)


def test_some_controls_can_be_asked_for_and_are_the_same_as_among_all():
    some = controls(["gd", "causal-boost"], seed=1)
    assert some == [control for control in controls(seed=1) if control.name in ("gd", "causal-boost")]
    with pytest.raises(ls.InputError, match="nobody"):
        controls(["nobody"])


def test_descent_is_its_recursion_in_two_layers():
    task, prompts = ls.Task(N=9), ls.sample(ls.Task(N=9), 2, 3)
    mechanism = Descent(solver="gd", eta=0.01)
    states = mechanism.states(Problem.open(task, prompts.x, prompts.y, torch.full((2,), 9)), 7)
    K, y = task.gram(prompts.x, prompts.x)[:, :9, :9], prompts.y[:, :9, None]
    w = torch.zeros_like(y)
    for step in range(3):
        w = w + 0.01 * K @ (y - K @ w - task.lam * w)
        torch.testing.assert_close(states[2 * step + 1, :, :9, S], w.squeeze(-1))
        torch.testing.assert_close(states[2 * step + 2, :, :9, MEMORY], (y - K @ w - task.lam * w).squeeze(-1))
        torch.testing.assert_close(
            states[2 * step + 2, :, 9, F], (task.gram(prompts.x, prompts.x)[:, 9:, :9] @ w)[:, 0, 0]
        )


@pytest.mark.parametrize("control", POSITIVE, ids=lambda control: control.name)
def test_a_swapped_state_is_what_the_solver_goes_on_from(control):
    mechanism, task = control.mechanism, control.run.task
    prompts = ls.sample(task, 4, 1)
    n = torch.full((4,), task.N)
    setup = problem(control, mechanism, prompts.x, prompts.y, n)
    clean = mechanism.states(setup, 4)
    layer = torch.tensor([2, 2, 3, 3])
    same = mechanism.states(setup, 4, Swap(layer=layer, value=clean[layer - 1, torch.arange(4)]))
    assert torch.equal(same, clean)
    value = clean[layer - 1, torch.arange(4)] + torch.randn(clean[0].shape, dtype=torch.float64)
    moved = mechanism.states(setup, 4, Swap(layer=layer, value=value))
    assert torch.equal(moved[:2, 2:], clean[:2, 2:])
    torch.testing.assert_close(moved[3, 2:], mechanism.advance(setup, value, 4)[2:])


@pytest.mark.parametrize("mask", ["open", "causal"])
def test_stacked_networks_are_gpts_and_an_edit_sets_what_it_says(mask):
    members = [c for c in TINY.values() if c.mask == mask][:2]
    run = members[0].run
    gpts = [initialise(GPT(run.model, 2, 6), seed) for seed in (0, 1)]
    layout = Layout(gpts[0])
    weights = torch.zeros(2, layout.P)
    for s, gpt in enumerate(gpts):
        layout.load(weights, s, gpt)
    frames = torch.stack([directions(gpt, seed) for seed, gpt in enumerate(gpts)]).float()
    network = Stacked(gpts[0], layout, weights, frames)
    units = [Units.of(each) for each in members]
    now = stacked([lesson(c, u, 1, 0, CPU) for c, u in zip(members, units, strict=True)])
    tokens = now.tokens[0]
    seen = Trainer(members, CPU)._places(tokens)[2]
    states, head = network(tokens, seen)
    for s, gpt in enumerate(gpts):
        *_, last = gpt.stream(tokens[s])
        torch.testing.assert_close(head[s], gpt.read_out(gpt.norm(last)).squeeze(-1), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(states[-1, s], last @ frames[s, :STATE].T, rtol=1e-4, atol=1e-5)
    gate = torch.zeros(4, *states.shape[1:])
    nothing, _ = network(tokens, seen, Edit(gate=gate, value=now.value[0]))
    assert torch.equal(nothing, states)
    gate[1] = 1
    edited, _ = network(tokens, seen, Edit(gate=gate, value=now.value[0]))
    assert torch.equal(edited[0], states[0])
    torch.testing.assert_close(edited[1], now.value[0], rtol=0, atol=1e-5)
    mixed, _ = network(tokens, seen, Edit(gate=0 * gate, value=now.value[0], mix=gate[..., :1, :1]))
    torch.testing.assert_close(mixed[1], states[1], rtol=0, atol=1e-5)  # the fixed directions keep their own
    assert not torch.equal(mixed[2], states[2])


@pytest.mark.parametrize("control", TINY.values(), ids=lambda control: control.name)
def test_lessons_depend_on_seed_and_chunk_and_put_states_where_they_live(control):
    units = Units.of(control)
    first, again, other = (lesson(control, units, 2, chunk, CPU) for chunk in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.tokens, other.tokens)
    if control.mechanism is None:
        return
    held = supervised(control.mechanism, 4)
    assert not first.clean[:, ~held.any(1)].any()
    if control.kind == "decoy":
        assert torch.equal(first.swapped, first.clean)
        assert torch.equal(first.answer, first.swapped_answer)
    else:
        assert not torch.equal(first.swapped, first.clean)
    n = torch.full((4,), control.run.task.N)
    places = at_tokens(roles(control, points(control), n).float(), control.mask)
    assert places.shape == first.value.shape[1:]
    assert units.rms.amax(0).tolist() == pytest.approx(held.any(0).float().tolist())


def test_training_falls_and_saves_what_is_true(tmp_path):
    members = [TINY[name] for name in ("boost", "decoy-dual", "labels")]
    network = Trainer(members, CPU)
    first = network.terms(_now(network))[0].detach()
    for _ in range(2):
        network.advance(total=2 * CHUNK)
    assert (network.terms(_now(network))[0].detach()[:2, 0] < first[:2, 0]).all()
    network.save(tmp_path, seconds=0.0)
    gpt = GPT.from_pretrained(tmp_path / "boost")
    facts = json.loads((tmp_path / "boost" / "control.json").read_text())
    torch.testing.assert_close(gpt.read_in.weight, network.gpt(0).read_in.weight, rtol=1e-3, atol=1e-4)
    frame = torch.tensor(facts["directions"])
    torch.testing.assert_close(frame @ frame.T, torch.eye(4), rtol=0, atol=1e-5)
    torch.testing.assert_close(frame @ gpt.read_in.weight, torch.zeros(4, 5), rtol=0, atol=1e-3)
    assert facts["mechanism"]["solver"] == "boost"
    found = responses(gpt, members[0], members[0].mechanism, frame, B=16)
    assert [response.layer for response in found] == [1, 2, 3]
    assert all(abs(response.correlation) <= 1 for response in found)
    assert responses(network.gpt(2), members[2], members[0].mechanism, None, B=16)


def _now(network: Trainer):
    drawn = stacked([lesson(c, u, 1, 9, CPU) for c, u in zip(network.members, network.units, strict=True)])
    return type(drawn)(**{name: value[0] for name, value in vars(drawn).items()})


def test_examples_of_an_open_lesson_are_marked_in_its_tokens():
    control = TINY["boost"]
    found = lesson(control, Units.of(control), 1, 0, CPU)
    asked = found.tokens[0, :, 1:, -1]
    n = (asked == 0).sum(1)
    assert torch.equal(n[0::2], n[1::2])  # a pair has one length
    assert (found.clean[0, :, :, 1:, S] == 0)[:, asked > 0].all()
    assert torch.equal(enlist(found.tokens[0, :, 1:, :2], found.tokens[0, :, 1:, 2], n), found.tokens[0])
