"""TransformerKRR: scikit-learn's own checks, scikit-learn's own kernel ridge regression as oracle."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as oracle
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from layerstep.construction import RationalQuadratic, TransformerKRR
from layerstep.errors import InputError


@parametrize_with_checks([TransformerKRR(error=0.1)])
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([TransformerKRR(kernel="matern"), TransformerKRR(scheme="adaptive")])
def test_scikit_learns_own_checks_pass_with_other_kernels_and_schemes(estimator, check):
    check(estimator)


def problem(n=60):
    X, y = make_friedman1(n + 40, n_features=5, random_state=0)
    return X[:n], 100 + 7 * y[:n], X[n:], 100 + 7 * y[n:]


@pytest.mark.parametrize("arguments", [{}, {"scheme": "exact"}, {"scale": False, "v": 0.7, "lam": 0.5}], ids=str)
def test_it_is_kernel_ridge_regression_within_its_bounds(arguments):
    X, y, X_new, y_new = problem()
    estimator = TransformerKRR(error=1e-3, **arguments).fit(X, y)
    value, bound = estimator.predict(X_new, return_bound=True)
    scaled, v = estimator._scaled, estimator.v
    oracle = KernelRidge(alpha=estimator.lam, kernel="rbf", gamma=1 / (2 * v * v)).fit(scaled(X), y - y.mean())
    expected = oracle.predict(scaled(X_new)) + y.mean()
    assert (np.abs(value - expected) <= bound).all()
    assert bound.max() < 0.02 * np.abs(y - y.mean()).max()
    assert np.abs(value - expected).max() <= 1e-3 * np.abs(y - y.mean()).max()
    assert estimator.score(X_new, y_new) == pytest.approx(1 - ((value - y_new) ** 2).mean() / y_new.var())


def test_a_constant_column_has_no_scale():
    """The standard deviation of a constant 0.1 is 1e-17 and not 0; nothing may be divided by it."""
    X, y, X_new, _ = problem()
    X[:, 2] = X_new[:, 2] = 0.1
    estimator = TransformerKRR().fit(X, y)
    before = estimator.predict(X_new)
    X_new[:, 2] += 1e-9
    np.testing.assert_allclose(estimator.predict(X_new), before, rtol=1e-9)


def test_the_bound_covers_the_digits_that_a_large_mean_costs():
    X, y, X_new, _ = problem()
    y = np.round(y) + 1e12
    value, bound = TransformerKRR(error=1e-8).fit(X, y).predict(X_new, return_bound=True)
    centred = TransformerKRR(error=1e-8).fit(X, y - 1e12)
    expected = centred.predict(X_new).astype(np.longdouble) + 10**12
    assert (np.abs(value - expected) <= bound + centred.y_scale_ * 1e-8).all()


def test_the_papers_scheme_works_where_it_fits():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (6, 1)), rng.uniform(-1, 1, 6)
    estimator = TransformerKRR(v=3.0, lam=6.0, scheme="paper", error=0.4).fit(X, y)
    assert estimator.predict(X, return_bound=True)[1].max() < 0.4
    with pytest.raises(InputError, match=r"largest \|x\|"):
        estimator.predict(100 * np.ones((1, 1)))


def test_the_papers_scheme_answers_queries_within_the_B_x_it_is_given():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (6, 1)), rng.uniform(-1, 1, 6)
    query = 1.5 * np.abs(X).max(keepdims=True)
    paper = TransformerKRR(v=3.0, lam=6.0, scheme="paper", error=0.4, scale=False)
    with pytest.raises(InputError, match=r"Construct with a larger B_x"):
        paper.fit(X, y).predict(query)
    oracle = KernelRidge(alpha=6.0, kernel="rbf", gamma=1 / 18).fit(X, y - y.mean())
    value, bound = paper.set_params(B_x=1.5).fit(X, y).predict(query, return_bound=True)
    assert np.abs(value - oracle.predict(query) - y.mean()) <= bound
    for too_small in (0.01, -1.0, "large"):
        with pytest.raises(InputError, match=f"B_x = {too_small!r}: must be at least .*, as the scaled examples have"):
            paper.set_params(B_x=too_small).fit(X, y)


def test_it_takes_part_in_pipelines_and_searches():
    X, y, X_new, y_new = problem(40)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), TransformerKRR()), {"transformerkrr__lam": [10.0, 0.1]}, cv=2
    ).fit(X, y)
    assert search.best_params_ == {"transformerkrr__lam": 0.1}
    assert search.score(X_new, y_new) > 0.5


@pytest.mark.parametrize("unit", [2.0**-700, 2.0**700])
def test_the_unit_of_the_inputs_changes_nothing(unit):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 3)), rng.standard_normal(12)
    here, there = (TransformerKRR(error=0.1).fit(scale * X, y).predict(scale * X) for scale in (1.0, unit))
    np.testing.assert_array_equal(there, here)


LENGTHS = np.linspace(0.5, 2, 5)
#: Arguments, and the same kernel of scikit-learn.
SAME = {
    "gamma": ({"gamma": 0.7}, oracle.RBF(length_scale=1 / np.sqrt(1.4))),
    "length_scale": ({"length_scale": 1.3}, oracle.RBF(length_scale=1.3)),
    "one for each coordinate": ({"kernel": "rbf", "length_scale": LENGTHS}, oracle.RBF(length_scale=LENGTHS)),
    "matern": ({"kernel": "matern", "nu": 2.5, "length_scale": 1.3}, oracle.Matern(length_scale=1.3, nu=2.5)),
    "infinite nu": ({"kernel": "matern", "nu": np.inf, "v": 2.0}, oracle.RBF(length_scale=2.0)),
    "a value": ({"kernel": RationalQuadratic(alpha=2.0)}, oracle.RationalQuadratic(alpha=2.0)),
    "scikit-learn's matern": ({"kernel": oracle.Matern(0.7, nu=1.5)}, oracle.Matern(0.7, nu=1.5)),
    "scikit-learn's rbf": ({"kernel": oracle.RBF(LENGTHS)}, oracle.RBF(LENGTHS)),
    "scikit-learn's third": ({"kernel": oracle.RationalQuadratic()}, oracle.RationalQuadratic()),
    "adaptive": ({"scheme": "adaptive"}, oracle.RBF(1.0)),
}


@pytest.mark.parametrize("name", SAME)
def test_it_is_the_gaussian_process_of_that_kernel_within_its_bound(name):
    X, y, X_new, _ = problem(40)
    arguments, kernel = SAME[name]
    estimator = TransformerKRR(alpha=0.5, scale=False, normalize_y=False, error=0.01, **arguments).fit(X, y)
    value, bound = estimator.predict(X_new, return_bound=True)
    expected = GaussianProcessRegressor(kernel, alpha=0.5, optimizer=None).fit(X, y).predict(X_new)
    assert (np.abs(value - expected) <= bound).all()
    assert bound.max() <= 0.01 * np.abs(y).max()


def test_diabetes_is_within_the_bound_of_kernel_ridge():
    X, y = load_diabetes(return_X_y=True)
    X = (X / X.std(0))[:200]
    y = y[:200]
    asked = {"alpha": 1.0, "gamma": 0.05}
    value, bound = TransformerKRR(**asked, scale=False, normalize_y=False).fit(X, y).predict(X, return_bound=True)
    expected = KernelRidge(kernel="rbf", **asked).fit(X, y).predict(X)
    assert (np.abs(value - expected) <= bound).all()
    assert bound.max() <= 0.01 * y.max()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 1.0, "length_scale": 1.0}, "gamma = 1.0: must be left out"),
        ({"gamma": 1.0, "kernel": "matern"}, "gamma = 1.0: must be left out"),
        ({"v": 2.0, "length_scale": 1.0}, "v = 2.0: must be left out beside length_scale"),
        ({"lam": 2.0, "alpha": 1.0}, "lam = 2.0: must be left out beside alpha"),
        ({"length_scale": [1.0, 2.0]}, "length_scale = 2 numbers: must be 1 or 5 numbers"),
        ({"kernel": "matern", "nu": 2.0}, "nu = 2.0: must be 0.5, 1.5 or 2.5"),
        ({"kernel": "periodic"}, "not a mixture of Gaussians"),
        ({"kernel": oracle.ExpSineSquared()}, "kernel = ExpSineSquared.*WhiteKernel's noise is alpha"),
    ],
)
def test_two_names_of_one_number_and_other_kernels_are_refused(arguments, message):
    X, y, _, _ = problem(10)
    with pytest.raises(InputError, match=message):
        TransformerKRR(**arguments).fit(X, y)


def test_tensors_with_gradients_are_data():
    X, y = torch.rand(6, 2, requires_grad=True), torch.rand(6)
    assert np.isfinite(TransformerKRR(alpha=0.1).fit(X, y).predict(X)).all()
