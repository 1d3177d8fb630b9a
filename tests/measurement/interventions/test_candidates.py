"""Candidates against matrix powers written out in NumPy, and against the library's solvers."""

import numpy as np
import pytest
import torch
from numpy.linalg import eigvals, matrix_power

import layerstep as ls
from layerstep.measurement.interventions.candidates import BETWEEN, FORMS, SOLVERS, Candidate

TASK = ls.Task(inputs="gaussian", d=3, N=7, v=1.1)
PROMPTS = ls.sample(TASK, 3, seed=4)
CASES = [(mask, solver) for mask in SOLVERS for solver in SOLVERS[mask] | BETWEEN[mask]]


def by_hand(mask, solver, v, b, eta=None):
    """(A, P, k) of one prompt, entry by entry; eta: the size of the steps, None for the solver's own."""
    x = PROMPTS.x[b].numpy()
    n, lam = TASK.N, TASK.sigma**2
    K = np.array([[np.exp(-((p - q) ** 2).sum() / (2 * v * v)) for q in x] for p in x])
    k, K = K[-1, :n], K[:n, :n]
    if mask == "causal":
        K = np.array([[K[i, j] if j <= i else 0.0 for j in range(n)] for i in range(n)])
    A, sums = K + lam * np.eye(n), K.sum(1)
    P, own = np.eye(n), 1.0
    if solver == "richardson":
        P = np.diag(1 / sums)
        own = 1 / max(eigvals(P @ A).real)
    elif solver == "causal-richardson":
        P = np.diag(1 / sums)
    elif solver == "half-normalised":
        P = np.diag(sums**-0.5)
        own = 1 / max(eigvals(P @ A).real)
    elif solver == "causal-half-normalised":
        P, own = np.diag(sums**-0.5), (1 + n / 4) ** -0.5
    elif solver == "richardson-fixed":
        own = 1 / max(eigvals(A).real)
    elif solver == "causal-richardson-fixed":
        own = 1 / (1 + n / 4)
    elif solver == "gd":
        P, own = K, 1 / max(eigvals(K @ A).real)
    elif solver in ("boost", "causal-boost"):
        A, k = K / sums[:, None], k / k.sum()
    return A, (own if eta is None else eta) * P, k


@pytest.mark.parametrize("eta", [None, 0.07])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("mask", "solver"), CASES)
def test_rows_states_and_changes_are_the_matrix_powers(mask, solver, form, eta):
    v = 0.8
    candidate = Candidate(solver=solver, form=form, mask=mask, v=v, eta=eta)
    iteration = candidate.iteration(PROMPTS, TASK)
    rows, states, maps = iteration.rows(form, 5), iteration.states(form, 5), iteration.maps(form, 5)
    delta = torch.linspace(-1, 1, 3 * TASK.N, dtype=torch.float64).reshape(3, TASK.N)
    changed = iteration.change(form, delta, 3)
    torch.testing.assert_close(iteration.row(form, 4), rows[4], rtol=0, atol=0)
    for b in range(3):
        A, P, k = by_hand(mask, solver, v, b, eta)
        y, one = PROMPTS.y[b, :-1].numpy(), np.eye(TASK.N)
        for t in range(6):
            residual = matrix_power(one - A @ P, t)
            coefficients = sum((matrix_power(one - P @ A, s) for s in range(t)), np.zeros_like(A)) @ P
            row = k @ P @ sum((matrix_power(one - A @ P, s) for s in range(t)), np.zeros_like(A))
            if form == "functional":
                np.testing.assert_allclose(rows[t, b], row, rtol=1e-10, atol=1e-12)
                np.testing.assert_allclose(states[t, b], residual @ y, rtol=1e-10, atol=1e-12)
                np.testing.assert_allclose(maps[t, b], residual, rtol=1e-10, atol=1e-12)
            else:
                np.testing.assert_allclose(rows[t, b], k @ matrix_power(one - P @ A, t), rtol=1e-10, atol=1e-12)
                np.testing.assert_allclose(states[t, b], coefficients @ y, rtol=1e-10, atol=1e-12)
                np.testing.assert_allclose(maps[t, b], coefficients, rtol=1e-10, atol=1e-12)
        power = matrix_power(one - (A @ P if form == "functional" else P @ A), 3)
        np.testing.assert_allclose(changed[b], power @ delta[b].numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("mask", "solver", "theirs"),
    [
        ("open", "richardson", ls.Richardson()),
        ("open", "richardson-fixed", ls.Richardson(preconditioner="none")),
        ("open", "gd", ls.GradientDescent()),
        ("open", "boost", ls.SOLVERS["boost"]),
        ("causal", "causal-richardson", ls.CausalRichardson()),
        ("causal", "causal-boost", ls.CausalBoosting()),
    ],
)
def test_coefficients_predict_what_the_solver_predicts(mask, solver, theirs):
    candidate = Candidate(solver=solver, form="dual", mask=mask, v=TASK.v)
    iteration = candidate.iteration(PROMPTS, TASK)
    ours = (iteration.states("dual", 6) * iteration.k).sum(-1)
    torch.testing.assert_close(ours, ls.solve(theirs, PROMPTS, TASK, 6).values[:, :, -1], rtol=1e-9, atol=1e-11)


def test_no_token_can_hold_the_coefficients_of_every_later_prefix():
    """docs/interventions.md, "Under a causal mask": Richardson's w_j differs for every prefix n >= j, and token j sees
    none of the points that make it so. Causal Richardson's does not."""
    longer = ls.Prompts(
        torch.cat([PROMPTS.x[:, :4], PROMPTS.x[:, 4:].flip(1)], 1),
        torch.cat([PROMPTS.y[:, :4], PROMPTS.y[:, 4:].flip(1)], 1),
    )
    spread = {}
    for mask, solver in (("open", "richardson"), ("causal", "causal-richardson")):
        w = {}
        for name, prompts in (("one", PROMPTS), ("other", longer)):
            for n in range(4, 7):
                prefix = ls.Prompts(prompts.x[:, : n + 1], prompts.y[:, : n + 1])
                candidate = Candidate(solver=solver, form="dual", mask=mask, v=TASK.v)
                w[name, n] = candidate.iteration(prefix, TASK).states("dual", 3)[3][:, :4]
        spread[mask] = [float((w["one", 4] - other).abs().max()) for other in w.values()]
    assert max(spread["causal"]) < 1e-12
    assert all(gap > 1e-3 for gap in spread["open"][1:3] + spread["open"][4:])
