"""Every solver against its literal recursion, exact KRR against SciPy and scikit-learn, limits and rates."""

import itertools
from functools import partial

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import layerstep as ls
from layerstep.solvers import (
    SOLVERS,
    CausalGD,
    Chebyshev,
    ConjugateGradient,
    RecursiveKRR,
    Richardson,
    RidgePath,
    Shrinkage,
)
from layerstep.solvers.system import Batch
from oracles import literal, primal
from oracles.primal import of_kernel

TASKS = {
    "sphere": ls.Task(N=12),
    "uniform": ls.Task(inputs="uniform", N=12),
    "gaussian": ls.Task(inputs="gaussian", N=12, v=0.7, sigma=0.3),
    "arccos1": ls.Task(kernel="arccos1", N=12),
    "line": ls.Task(inputs="gaussian", d=1, N=3, sigma=0.5),
    "one point": ls.Task(N=1),
}

# solver, literal recursion, number of steps, tolerance. One row per solver: a new solver is a new row.
CASES = {
    "richardson": (SOLVERS["richardson"], literal.richardson, 200, 1e-12),
    "richardson-plain": (SOLVERS["richardson-plain"], partial(literal.richardson, preconditioned=False), 200, 1e-12),
    "richardson, eta given": (Richardson(eta=1.3), partial(literal.richardson, eta=1.3), 60, 1e-12),
    # CG amplifies rounding from step to step: two correct codes agree to 1e-9 for six steps, 1e-6 for ten.
    "cg": (SOLVERS["cg"], literal.conjugate_gradient, 6, 1e-9),
    "cg, reorthogonalized": (ConjugateGradient(reorthogonalize=True), literal.conjugate_gradient, 6, 1e-9),
    "cg-row-sum": (SOLVERS["cg-row-sum"], partial(literal.conjugate_gradient, preconditioned=True), 6, 1e-9),
    "gd": (SOLVERS["gd"], literal.gradient_descent, 200, 1e-12),
    # Near a double root of the recursion both ways lose about three digits.
    "nesterov": (SOLVERS["nesterov"], literal.nesterov, 200, 1e-10),
    "heavy-ball": (SOLVERS["heavy-ball"], literal.heavy_ball, 200, 1e-9),
    "chebyshev": (SOLVERS["chebyshev"], literal.chebyshev, 100, 1e-10),
    "chebyshev, interval given": (
        Chebyshev(lo=0.01, hi=1.5),
        partial(literal.chebyshev, interval=(0.01, 1.5)),
        60,
        1e-10,
    ),
    "newton-schulz": (SOLVERS["newton-schulz"], literal.newton_schulz, 20, 1e-10),
    "ridge": (SOLVERS["ridge"], literal.ridge, 50, 1e-11),
    "ridge, scaled": (RidgePath(scale=9.0), partial(literal.ridge, scale=9.0), 20, 1e-11),
    "nadaraya-watson": (SOLVERS["nadaraya-watson"], literal.nadaraya_watson, 30, 1e-12),
    "knn": (SOLVERS["knn"], literal.nearest, 15, 1e-11),
    "recursive": (SOLVERS["recursive"], literal.recursive, 15, 1e-11),
    "last points": (RecursiveKRR(newest_first=True), literal.last_points, 15, 1e-11),
    "shrink": (Shrinkage(horizon=10), partial(literal.shrink, horizon=10), 15, 1e-11),
    "boost": (SOLVERS["boost"], literal.boost, 100, 1e-10),
    "causal-richardson": (SOLVERS["causal-richardson"], literal.causal_richardson, 60, 1e-11),
    "causal-boost": (SOLVERS["causal-boost"], partial(literal.boost, causal=True), 60, 1e-11),
    # On weights of the kernel's features; tests/solvers/test_in_weights.py has them on linear regression.
    "gd-weights": (SOLVERS["gd-weights"], of_kernel(primal.gradient_descent), 200, 1e-9),
    "gd++": (SOLVERS["gd++"], of_kernel(partial(primal.plus_plus, gamma=0.1, eta=1.0)), 40, 1e-9),
    "newton": (SOLVERS["newton"], of_kernel(primal.newton), 10, 1e-7),
    "cg-weights": (SOLVERS["cg-weights"], of_kernel(primal.conjugate_gradient), 5, 1e-7),
    "nesterov-weights": (SOLVERS["nesterov-weights"], of_kernel(primal.nesterov), 60, 1e-7),
    "heavy-ball-weights": (SOLVERS["heavy-ball-weights"], of_kernel(primal.heavy_ball), 60, 1e-6),
    "chebyshev-weights": (SOLVERS["chebyshev-weights"], of_kernel(primal.chebyshev), 30, 1e-7),
    "kaczmarz": (SOLVERS["kaczmarz"], of_kernel(primal.kaczmarz), 20, 1e-9),
    "online-gd": (SOLVERS["online-gd"], of_kernel(primal.online), 1, 1e-9),
    "causal-gd": (CausalGD(eta=0.1), of_kernel(partial(primal.causal, eta=0.1)), 40, 1e-9),
    "softmax-average": (SOLVERS["softmax-average"], literal.softmax_average, 20, 1e-12),
}
TO_KRR = ["richardson", "richardson-plain", "richardson-fixed", "cg", "cg-row-sum", "gd", "nesterov", "heavy-ball"]
TO_KRR += ["chebyshev", "newton-schulz", "knn", "recursive", "shrink", "gd-weights", "gd-weights-fixed", "cg-weights"]
TO_KRR += ["nesterov-weights", "heavy-ball-weights", "chebyshev-weights", "newton", "newton-frobenius", "kaczmarz"]


def literal_path(recursion, prompts, task, steps):
    """[T, B, N] by loops over sequences and prefixes."""
    gram = task.gram(prompts.x, prompts.x).numpy()
    y = prompts.y.numpy()
    out = np.empty((steps + 1, prompts.B, prompts.N))
    for b, n in itertools.product(range(prompts.B), range(1, prompts.N + 1)):
        iterates = recursion(gram[b, :n, :n], gram[b, n, :n], y[b, :n], task.lam)
        out[:, b, n - 1] = list(itertools.islice(iterates, steps + 1))
    return torch.from_numpy(out)


@pytest.mark.parametrize("place", TASKS)
@pytest.mark.parametrize("case", CASES)
def test_every_solver_is_its_literal_recursion(case, place):
    solver, recursion, steps, tolerance = CASES[case]
    task = TASKS[place]
    if case == "nadaraya-watson" and place == "arccos1":
        tolerance = 1e-11  # powers of small kernel values
    prompts = ls.sample(task, 3, seed=1)
    path = ls.solve(solver, prompts, task, steps)
    assert path.values.shape == (steps + 1, 3, task.N)
    assert path.stages.tolist() == list(range(steps + 1))
    expected = literal_path(recursion, prompts, task, steps)
    torch.testing.assert_close(path.values, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("case", ["richardson", "richardson-plain", "gd", "chebyshev"])
def test_a_ridge_below_rounding_leaves_every_step_right(case):
    """sigma² = 1e-30 and equal points: components that are rounding must not be divided by 1e-30."""
    solver, recursion, _, _ = CASES[case]
    task = ls.Task(inputs="gaussian", d=2, N=12, sigma=1e-15)
    x, y = torch.randn(2, 3, 13, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 5], x[:, -1] = x[:, 2], x[:, 0]
    prompts = ls.Prompts(x, y[..., 0])
    path = ls.solve(solver, prompts, task, 20)
    torch.testing.assert_close(path.values, literal_path(recursion, prompts, task, 20), rtol=0, atol=1e-6)


def test_every_solver_of_the_table_has_a_literal_recursion():
    tested = {type(solver) for solver, *_ in CASES.values()}
    assert {type(solver) for solver in SOLVERS.values()} <= tested


def test_the_fixed_step_is_that_of_the_longest_prefix():
    task = TASKS["uniform"]
    prompts = ls.sample(task, 3, seed=1)
    path = ls.solve(SOLVERS["richardson-fixed"], prompts, task, 40)
    for b in range(3):
        K = task.gram(prompts.x[b, :-1], prompts.x[b, :-1]).numpy()
        eta = 1 / (scipy.linalg.eigvalsh(K)[-1] + task.lam)
        one = literal_path(partial(literal.richardson, preconditioned=False, eta=eta), prompts[b], task, 40)
        torch.testing.assert_close(path.values[:, b : b + 1], one, rtol=0, atol=1e-12)


@pytest.mark.parametrize("place", TASKS)
def test_exact_is_ridge_regression_by_scipy_and_a_posterior_mean_by_scikit_learn(place):
    task = TASKS[place]
    prompts = ls.sample(task, 4, seed=2)
    ours = ls.exact(prompts, task)
    gram = task.gram(prompts.x, prompts.x).numpy()
    for b, n in itertools.product(range(4), range(1, task.N + 1)):
        y = prompts.y[b, :n].numpy()
        A = gram[b, :n, :n] + task.lam * np.eye(n)
        assert abs(ours[b, n - 1] - gram[b, n, :n] @ scipy.linalg.solve(A, y, assume_a="pos")) < 1e-11
        if task.kernel == "gaussian":
            gp = GaussianProcessRegressor(RBF(task.v, "fixed"), alpha=task.lam, optimizer=None)
            mean = gp.fit(prompts.x[b, :n].numpy(), y).predict(prompts.x[b, n : n + 1].numpy())[0]
            assert abs(ours[b, n - 1] - mean) < 1e-10


@pytest.mark.parametrize("name", TO_KRR)
def test_solvers_of_the_system_converge_to_exact_krr(name):
    task = ls.Task(N=10, sigma=0.3)
    prompts = ls.sample(task, 5, seed=3)
    last = ls.solve(SOLVERS[name], prompts, task, [10**6]).values[0]
    torch.testing.assert_close(last, ls.exact(prompts, task), rtol=0, atol=1e-9)


def test_the_ridge_path_passes_through_exact_krr():
    task = ls.Task(N=10)
    prompts = ls.sample(task, 5, seed=3)
    at = ls.solve(RidgePath(), prompts, task, [1 / task.lam]).values[0]
    torch.testing.assert_close(at, ls.exact(prompts, task), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["richardson", "gd", "nesterov", "boost", "heavy-ball"])
def test_any_list_of_steps_gives_the_same_numbers_as_all_of_them(name):
    task = TASKS["sphere"]
    prompts = ls.sample(task, 3, seed=4)
    full = ls.solve(SOLVERS[name], prompts, task, 500)
    for steps in ([0], [3], [0, 1, 10, 100, 499], list(range(7, 400)), [0, 2, 4, 8, 16, 32, 64, 128, 256]):
        part = ls.solve(SOLVERS[name], prompts, task, steps)
        torch.testing.assert_close(part.values, full.values[steps], rtol=0, atol=1e-11)


def test_a_million_steps_are_a_closed_form_away():
    """GD after 10^6 steps, by SciPy's spectral decomposition of the iteration matrix."""
    task = ls.Task(N=20)
    prompts = ls.sample(task, 2, seed=5)
    steps = [1, 10, 1000, 10**5, 10**6]
    path = ls.solve(ls.GradientDescent(), prompts, task, steps)
    K = task.gram(prompts.x[0, :20], prompts.x[0, :20]).numpy()
    k = task.gram(prompts.x[0, 20:], prompts.x[0, :20]).numpy()[0]
    m, Q = scipy.linalg.eigh(K)
    rate = m * (m + task.lam) / (m * (m + task.lam)).max()
    for i, t in enumerate(steps):
        left = np.exp(t * np.log1p(-np.minimum(rate, 1 - 1e-16)))
        expected = (k @ Q) @ ((1 - left) / (m + task.lam) * (Q.T @ prompts.y[0, :20].numpy()))
        assert abs(path.values[i, 0, -1] - expected) < 1e-10


def test_richardson_contracts_at_its_rate():
    """In the norm of D^1/2 the error shrinks by 1 - 1/kappa_D a step at least (appendix "Classical solvers")."""
    task = ls.Task(N=15, sigma=0.3)
    prompts = ls.sample(task, 20, seed=6)
    system = ls.solvers.system.Batch.of(prompts, task).system(15)
    kappa = system.row_sum.values[:, -1] / system.row_sum.values[:, 0]
    w_exact = torch.linalg.solve(system.A, system.y)
    w, rate = torch.zeros_like(system.y), 1 - 1 / kappa
    eta = 1 / system.row_sum.values[:, -1:]
    size = lambda e: (system.D * e.square()).sum(-1).sqrt()  # noqa: E731
    start = size(w - w_exact)
    for t in range(1, 40):
        w = w + eta * (system.y - (system.A @ w.unsqueeze(-1)).squeeze(-1)) / system.D
        assert (size(w - w_exact) <= rate**t * start * (1 + 1e-9)).all()
    torch.testing.assert_close((system.k * w).sum(-1), ls.solve(ls.Richardson(), prompts, task, [39]).values[0, :, -1])


def test_float64_cg_leaves_exact_cg_after_a_dozen_steps():
    """The caveat of docs/notation.md: equal to ten steps, visibly apart later, equal again at the solution."""
    task = ls.Task()
    prompts = ls.sample(task, 64, seed=7)
    plain = ls.solve(ConjugateGradient(), prompts, task, 60, contexts=[40])
    exact = ls.solve(ConjugateGradient(reorthogonalize=True), prompts, task, 60, contexts=[40])
    apart = (plain.values - exact.values).abs().amax(dim=(1, 2))
    assert apart[:9].max() < 1e-6
    assert apart[12:20].max() > 1e-3
    torch.testing.assert_close(exact.values[-1], ls.exact(prompts, task)[:, -1:], rtol=0, atol=1e-8)


@pytest.mark.parametrize("preconditioner", ["none", "row-sum"])
def test_conjugate_gradients_on_a_system_that_is_singular_to_rounding_come_to_an_end(preconditioner):
    """Their residual stops above the tolerance; a billion steps were taken one by one."""
    task = ls.Task(d=2, N=9, v=1e3, sigma=1e-8)
    system = Batch.of(ls.sample(task, 5, seed=256), task).system(9)
    iterates = ls.ConjugateGradient(preconditioner=preconditioner).iterates(system)
    kept = list(itertools.islice(iterates, 20_001))
    assert 9 < len(kept) < 20_001
    assert kept[-1].isfinite().all()
