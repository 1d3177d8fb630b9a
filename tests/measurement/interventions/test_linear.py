"""Linear regression: a layer of linear self-attention is a step of gradient descent, and is recognised as one.

The network is that of von Oswald et al. (2212.07677): tokens (x_i, y_i), the query with y = 0, and in every layer
e_j += sum_i V e_i (x_i · x_j), which takes eta x_i r_i · x_j from the label's slot: r' = (I - eta K) r. With a part in
V that moves x as well it is GD++.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import layerstep as ls
from layerstep.errors import InputError
from layerstep.measurement.interventions.candidates import Candidate
from layerstep.measurement.interventions.instrument import intervene
from layerstep.measurement.interventions.result import CausalResult

D, N, LAYERS = 3, 8, 4
TASK = ls.LinearRegression(d=D, N=N, sigma=0.1)
FEW = {"fit": 48, "choose": 12, "score": 24, "check": 6}


class SelfAttention(nn.Module):
    """One head of linear self-attention without a norm; what it reads off a token is the token's own business."""

    def __init__(self, eta: float, gamma: float, mixing: Tensor) -> None:
        super().__init__()
        self.eta, self.gamma = eta, gamma
        self.register_buffer("mixing", mixing)  # the stream is a mixture of (x, r)

    def forward(self, e: Tensor) -> Tensor:
        token = torch.linalg.solve(self.mixing, e.mT).mT
        examples, x = token[:, :-1], token[..., :-1]
        value = torch.cat([-self.gamma * examples[..., :-1], -self.eta * examples[..., -1:]], -1)
        return (token + (x @ examples[..., :-1].mT) @ value) @ self.mixing.mT


class Written(nn.Module):
    def __init__(self, etas: list[float], gamma: float = 0.0, used: bool = True) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        mixing = torch.randn(D + 1, D + 1, dtype=torch.float64, generator=generator)
        self.register_buffer("mixing", mixing)
        self.used = used
        self.layers = nn.ModuleList(SelfAttention(eta, gamma, mixing) for eta in etas)
        self.eval()

    def forward(self, tokens: Tensor) -> Tensor:
        e = tokens @ self.mixing.mT
        for layer in self.layers:
            e = layer(e)
        if self.used:
            return -torch.linalg.solve(self.mixing, e.mT).mT[:, -1:, -1]
        X, y, q = tokens[:, :-1, :-1], tokens[:, :-1, -1:], tokens[:, -1:, :-1]
        theta = torch.linalg.solve(X.mT @ X + TASK.lam * torch.eye(D).to(X), X.mT @ y)
        return (q @ theta)[..., 0] + 0 * e[:, -1:, -1]


def found(model: nn.Module, **options) -> CausalResult:
    names = [f"layers.{index}" for index in range(len(model.layers))]  # type: ignore[arg-type]
    reader = ls.Hooked(model=model, inputs=ls.pairs(), modules=names, mask="open")
    return intervene(reader, TASK, prompts=FEW, checks=False, **options)


def literal(X: Tensor, q: Tensor, r: Tensor, eta: float, gamma: float, steps: int) -> Tensor:
    """GD++ as it is written down, from residuals r: what is added to the prediction at q."""
    f = torch.zeros((), dtype=torch.float64)
    for _ in range(steps):
        f = f + eta * q @ X.T @ r
        S = X.T @ X
        X, q, r = X - gamma * X @ S, q - gamma * S @ q, r - eta * X @ X.T @ r
    return f


@pytest.mark.parametrize(("solver", "gamma"), [("gd-weights", 0.0), ("gd++", 0.01)])
@pytest.mark.parametrize("start", [0, 2])
def test_rows_are_those_of_the_literal_recursion(solver: str, gamma: float, start: int) -> None:
    prompts, eta, steps = ls.sample(TASK, 2, seed=3).to(torch.float64), 0.05, 3
    candidate = Candidate(
        solver=solver, form="functional", mask="open", v=gamma / eta or 1.0, eta=eta, start=start if gamma else 0
    )
    row = candidate.iteration(prompts, TASK).row("functional", steps)
    for b in range(2):
        X, q = prompts.x[b, :-1], prompts.x[b, -1]
        for _ in range(start):
            S = X.T @ X
            X, q = X - gamma * X @ S, q - gamma * S @ q
        units = torch.eye(N, dtype=torch.float64)
        expected = torch.stack([literal(X, q, unit, eta, gamma, steps) for unit in units])
        torch.testing.assert_close(row[b], expected, rtol=1e-10, atol=1e-12)


def test_states_and_predictions_of_gd_plus_plus_are_those_of_the_literal_recursion() -> None:
    prompts, eta, gamma = ls.sample(TASK, 1, seed=4).to(torch.float64), 0.05, 0.01
    candidate = Candidate(solver="gd++", form="functional", mask="open", v=gamma / eta, eta=eta, start=1)
    iteration = candidate.iteration(prompts, TASK)
    X, q, y = prompts.x[0, :-1], prompts.x[0, -1], prompts.y[0, :-1]
    for t, predicted in enumerate(iteration.predictions(4)[:, 0]):
        torch.testing.assert_close(predicted, literal(X, q, y, eta, gamma, t), rtol=1e-10, atol=1e-12)
    states = iteration.states("functional", 3)[:, 0]
    torch.testing.assert_close(iteration.maps("functional", 3)[:, 0] @ y, states, rtol=1e-10, atol=1e-12)
    changed = iteration.change("functional", states[1][None], 2)[0]  # an intervention comes after one step
    torch.testing.assert_close(changed, states[3], rtol=1e-10, atol=1e-12)


def test_a_layer_of_linear_attention_is_a_step_of_gradient_descent() -> None:
    result = found(Written([0.04] * LAYERS))
    (claim,) = result.claims
    assert (claim.solver, claim.form, claim.steps_left) == ("gd-weights", "functional", (3, 2, 1))
    assert claim.fitted
    assert claim.eta == pytest.approx(0.04, rel=1e-3)
    assert "bandwidth" not in str(claim)
    assert "0.04 on all prompts" in str(claim)


def test_layers_that_move_the_inputs_too_are_gd_plus_plus() -> None:
    (claim,) = found(Written([0.03] * LAYERS, gamma=0.009)).claims
    assert (claim.solver, claim.form, claim.steps_left) == ("gd++", "functional", (3, 2, 1))
    assert claim.eta == pytest.approx(0.03, rel=1e-2)
    assert claim.bandwidth * claim.eta == pytest.approx(0.009, rel=2e-2)
    assert "gamma 0.3 of its step size" in str(claim)


@pytest.mark.parametrize(
    "model", [Written([0.02, 0.06, 0.02, 0.06]), Written([0.04] * LAYERS, used=False)], ids=["uneven steps", "not used"]
)
def test_what_runs_another_iteration_is_not_claimed(model: Written) -> None:
    assert found(model).claims == ()


def test_its_own_solvers_left_out_it_is_not_claimed() -> None:
    assert found(Written([0.04] * LAYERS), without=["gd-weights", "gd++"]).claims == ()


def test_the_operator_is_an_inner_product() -> None:
    model = Written([0.04] * LAYERS)
    names = [f"layers.{index}" for index in range(LAYERS)]
    reader = ls.Hooked(model=model, inputs=ls.pairs(), modules=names, mask="open")
    result = intervene(reader, TASK, prompts=FEW)
    last = result.operator["layers.2"]
    assert last.kernel == "linear"
    assert last.gain == pytest.approx(0.04, rel=1e-6)
    assert last.explained > 1 - 1e-9
    assert last.metric is not None
    assert last.metric > 1 - 1e-6
    assert "times the inner product" in str(last)
    assert CausalResult.from_dict(result.to_dict()).claims == result.claims


def test_identify_says_it_in_a_sentence() -> None:
    names = [f"layers.{index}" for index in range(LAYERS)]
    reader = ls.Hooked(model=Written([0.04] * LAYERS), inputs=ls.pairs(), modules=names, mask="open")
    result = ls.identify(reader, TASK, parts=["interventions"])
    assert result.solver == "gd-weights"
    assert "runs gd-weights" in result.sentences[0]
    assert "functional form; 3, 2, 1 steps left" in result.sentences[0]


def test_states_that_explode_are_a_sentence() -> None:
    with pytest.raises(InputError, match=r"its states reach .* too large to compare"):
        found(Written([1e60] * LAYERS))


def test_a_task_without_a_kernel_is_refused() -> None:
    class Own:
        d, N = D, 8

        def sample(self, B, seed, step=0):
            return ls.sample(TASK, B, seed, step)

    reader = ls.Hooked(model=Written([0.04] * LAYERS), inputs=ls.pairs(), modules=["layers.0"], mask="open")
    with pytest.raises(InputError, match="lam"):
        intervene(reader, Own())
