"""Linear regression: every solver on kernel matrices against its literal recursion on weights, and what is what."""

import itertools
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import layerstep as ls
from layerstep.solvers import (
    SOLVERS,
    CausalGD,
    DiscreteMMSE,
    GradientDescentInWeights,
    GradientDescentPlusPlus,
    OnlineGD,
    Preconditioned,
    inverse_covariance,
)
from layerstep.solvers.names import LITERATURE, literature
from oracles import primal

CONTEXTS = {5: [1, 3, 5, 9, 14], 20: [3, 15, 20, 24, 40]}
POOL = np.random.default_rng(0).standard_normal((6, 5)).tolist()

# solver, literal recursion in weights, steps, tolerance relative to the largest prediction
CASES = {
    "gd-weights": (SOLVERS["gd-weights"], primal.gradient_descent, 60, 1e-12),
    "richardson-plain": (SOLVERS["richardson-plain"], primal.gradient_descent, 60, 1e-12),
    "gd-weights, one step size": (
        GradientDescentInWeights(eta=0.01),
        partial(primal.gradient_descent, eta=0.01),
        60,
        1e-12,
    ),
    "nesterov-weights": (SOLVERS["nesterov-weights"], primal.nesterov, 40, 1e-9),
    "heavy-ball-weights": (SOLVERS["heavy-ball-weights"], primal.heavy_ball, 40, 1e-8),
    "chebyshev-weights": (SOLVERS["chebyshev-weights"], primal.chebyshev, 30, 1e-9),
    "newton": (SOLVERS["newton"], primal.newton, 12, 1e-10),
    "newton-frobenius": (SOLVERS["newton-frobenius"], partial(primal.newton, start="frobenius"), 12, 1e-10),
    "newton-identity": (SOLVERS["newton-identity"], partial(primal.newton, start="identity"), 12, 1e-10),
    "gd++": (SOLVERS["gd++"], partial(primal.plus_plus, gamma=0.1, eta=1.0), 15, 1e-12),
    "gd++, one pair": (
        GradientDescentPlusPlus(gamma=0.001, eta=0.002, absolute=True),
        partial(primal.plus_plus, gamma=0.001, eta=0.002, absolute=True),
        15,
        1e-12,
    ),
    "kaczmarz": (SOLVERS["kaczmarz"], primal.kaczmarz, 10, 1e-10),
    "online-gd": (OnlineGD(scale=0.01), partial(primal.online, scale=0.01), 6, 1e-12),
    "causal-gd": (CausalGD(eta=0.01), partial(primal.causal, eta=0.01), 30, 1e-12),
    "recursive": (SOLVERS["recursive"], primal.recursive_least_squares, 40, 1e-9),
    "ridge": (SOLVERS["ridge"], primal.ridge, 12, 1e-10),
    "softmax-average": (SOLVERS["softmax-average"], primal.softmax_average, 5, 1e-12),
    "knn": (SOLVERS["knn"], primal.nearest, 12, 1e-8),
}


@pytest.fixture(autouse=True)
def linear(monkeypatch):
    monkeypatch.setitem(ls.KERNELS, "linear", lambda x, z, v: x @ z.mT / v**2)


def task(d, sigma=0.5, N=None):
    return ls.Task(kernel="linear", inputs="gaussian", input_std=1.0, d=d, N=N or max(CONTEXTS[d]), sigma=sigma)


def apart(solver, recursion, prompts, asked, steps):
    """The largest difference over steps, sequences and contexts, relative to the largest prediction."""
    contexts = CONTEXTS[asked.d]
    found = ls.solve(solver, prompts, asked, steps, contexts=contexts).values.numpy()
    expected = np.empty_like(found)
    x, y = prompts.x.numpy(), prompts.y.numpy()
    for b, (column, n) in itertools.product(range(prompts.B), enumerate(contexts)):
        iterates = recursion(x[b, :n], x[b, n], y[b, :n], asked.lam)
        expected[:, b, column] = list(itertools.islice(iterates, steps + 1))
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("d", [5, 20])
@pytest.mark.parametrize("case", CASES)
def test_every_solver_is_its_recursion_in_weights(case, d):
    solver, recursion, steps, tolerance = CASES[case]
    for sigma in (0.5, 0.05):
        prompts = ls.sample(task(d, sigma), 3, seed=1)
        assert apart(solver, recursion, prompts, task(d, sigma), steps) < tolerance


def test_conjugate_gradients_in_weights_are_cgls():
    """The literal recursion loses orthogonality: three correct digits fewer per few steps."""
    for d, steps, tolerance in ((5, 5, 1e-9), (20, 6, 1e-9), (20, 12, 1e-5)):
        prompts = ls.sample(task(d), 3, seed=1)
        assert apart(SOLVERS["cg-weights"], primal.conjugate_gradient, prompts, task(d), steps) < tolerance
    last = ls.solve(SOLVERS["cg-weights"], prompts, task(20), [30]).values[0]
    torch.testing.assert_close(last, ls.exact(prompts, task(20)), rtol=0, atol=1e-8)


def test_a_pool_of_weights_has_its_bayes_answer():
    prompts = ls.sample(task(5), 3, seed=1)
    recursion = partial(primal.discrete, pool=np.array(POOL))
    assert apart(DiscreteMMSE(pool=POOL), recursion, prompts, task(5), 6) < 1e-12


def test_another_metric_is_a_preconditioner_of_gradient_descent():
    asked = task(5)
    prompts = ls.sample(asked, 3, seed=1)
    P = inverse_covariance(prompts.x)
    solver = Preconditioned(inner=GradientDescentInWeights(eta=0.02), P=P)
    assert apart(solver, partial(primal.preconditioned, P=P.numpy(), eta=0.02), prompts, asked, 30) < 1e-12
    same = ls.solve(Preconditioned(), prompts, asked, 10).values
    torch.testing.assert_close(same, ls.solve(SOLVERS["gd-weights"], prompts, asked, 10).values)


def difference(a, b):
    return float((a - b).square().mean() / b.square().mean())


@pytest.mark.parametrize("d", [5, 20])
def test_which_names_are_the_same_iterates_and_which_are_not(d):
    """The table of docs/linear.md."""
    asked = task(d)
    prompts = ls.sample(asked, 8, seed=2)

    def run(name, steps):
        return ls.solve(SOLVERS[name], prompts, asked, steps).values

    k = list(range(8))
    assert difference(run("newton-identity", k), run("gd-weights", [2**i for i in k])) < 1e-20
    assert difference(run("newton-schulz", [i + 1 for i in k]), run("newton-identity", k)) < 1e-20
    assert 1e-12 < difference(run("gd", [2**i for i in k]), run("newton", k)) < 1e-2  # m (m + lam) for (m + lam)²
    assert difference(run("cg-weights", range(1, 5)), run("cg", range(1, 5))) > 1e-3
    assert difference(run("gd", [1, 4, 16]), run("gd-weights", [1, 4, 16])) > 0.05
    assert difference(run("newton", k), run("newton-frobenius", k)) > 1e-4
    weak = task(d, sigma=1e-3)
    apart = [
        ls.solve(SOLVERS[name], prompts, weak, steps).values
        for name, steps in (("gd", [2**i for i in k]), ("newton", k))
    ]
    assert difference(*apart) < 1e-12


@pytest.mark.parametrize("name", ["gd-weights", "newton", "cg-weights", "nesterov-weights", "chebyshev-weights"])
def test_without_noise_they_reach_the_solution_of_least_norm(name):
    """n < d and n > d, no ridge: NumPy's lstsq."""
    rng = np.random.default_rng(0)
    x, theta = rng.standard_normal((2, 13, 5)), rng.standard_normal((2, 5))
    prompts = ls.Prompts(x, np.einsum("bnd,bd->bn", x, theta))
    batch = ls.solvers.system.Batch.of(prompts, task(5, N=12))
    zero = ls.solvers.system.Batch(x=batch.x, y=batch.y, gram=batch.gram, lam=0.0, task=batch.task)
    last = torch.tensor([40.0 if name == "newton" else 40 if name == "cg-weights" else 10**6])
    for b, n in itertools.product(range(2), (1, 3, 5, 12)):
        weights = np.linalg.lstsq(x[b, :n], prompts.y[b, :n].numpy(), rcond=None)[0]
        solver = SOLVERS[name]
        steps = last if solver.continuous else last.long()
        found = float(solver.predictions(zero.system(n), steps)[b, 0])
        assert found == pytest.approx(x[b, n] @ weights, abs=1e-7)


def test_momentum_is_not_spoiled_by_more_examples_than_dimensions():
    """K has rank d < n: directions that do not move must not set the momentum."""
    asked = ls.Task(kernel="linear", inputs="gaussian", input_std=1.0, d=5, N=40, sigma=0.5)
    prompts = ls.sample(asked, 16, seed=3)
    exact = ls.exact(prompts, asked)[:, -1]
    missed = {
        name: float((ls.solve(SOLVERS[name], prompts, asked, [30], contexts=[40]).values[0, :, 0] - exact).norm())
        for name in ("nesterov", "gd", "nesterov-weights", "gd-weights")
    }
    assert missed["nesterov"] < 0.1 * missed["gd"]
    assert missed["nesterov-weights"] < 0.1 * missed["gd-weights"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GradientDescentInWeights(eta=0.0), "eta = 0.0: must be a finite number above 0"),
        (lambda: Preconditioned(P=[[1.0, 2.0], [0.0, 1.0]]), "P = a matrix: must be symmetric"),
        (lambda: DiscreteMMSE(pool=[]), "pool"),
        (
            lambda: ls.solve(SOLVERS["gd++"], ls.sample(task(5), 2, seed=0), task(5), [10**7]),
            r"steps = 10,000,000: must be at most 1,000,000 for GD\+\+",
        ),
        (
            lambda: ls.solve(DiscreteMMSE(pool=[[1.0]]), ls.sample(task(5), 2, seed=0), task(5), 2),
            "pool = weights of 1 numbers: must be of d = 5",
        ),
    ],
)
def test_bad_options_are_refused_in_words(make, words):
    with pytest.raises(ls.InputError, match=words):
        make()


def test_signed_kernels_are_told_what_would_work():
    prompts = ls.sample(task(5), 2, seed=0)
    with pytest.raises(ls.InputError, match=r"such as gd-weights .*in the literature of linear tasks gradient desc"):
        ls.solve(SOLVERS["richardson"], prompts, task(5), 3)
    with pytest.raises(ls.InputError, match="use softmax-average, or a solver of the system"):
        ls.solve(SOLVERS["nadaraya-watson"], prompts, task(5), 3)


def test_the_documentation_has_the_table_of_names():
    page = Path(__file__).parents[2] / "docs" / "linear.md"
    assert literature() in page.read_text(encoding="utf-8")
    for _, name, *_ in LITERATURE:
        assert name in SOLVERS or hasattr(ls.solvers, name.partition("(")[0])


def test_online_descent_that_overflows_is_infinite() -> None:
    task = ls.LinearRegression(d=3, N=8, sigma=0.1)
    path = ls.solve(ls.OnlineGD(scale=1e140), ls.sample(task, 4, seed=0), task, steps=[0.0, 1.0, 2.0])
    assert not path.values.isnan().any()
