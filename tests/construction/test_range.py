"""Far inputs, tiny and huge labels, low precision: the promise knows them, a bound is never 0 or NaN without a word."""

import math
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch

from fuzz.certify import Tally, certify, of_estimator, ridge_regression
from layerstep.construction import TransformerKRR, construct
from layerstep.construction.schemes.base import SinkScheme
from layerstep.errors import InputError
from layerstep.tasks import Prompts

LONG = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="numpy.longdouble has no more digits here")


@LONG
def test_no_prediction_is_farther_than_its_bound_or_its_promise():
    """A small dose of `make certify`, which takes a million."""
    tally = certify(3000)
    assert tally.counts["bound"] >= 3000
    assert tally.counts["promise"] >= 1500
    assert tally.counts["bound: violations"] == tally.counts["promise: violations"] == 0


@LONG
@pytest.mark.parametrize("slip", ["bound", "promise"])
def test_the_search_for_violations_finds_them(slip, monkeypatch):
    """What the reference is for: without the rounding of far inputs, or without the residual, it has to speak up."""
    if slip == "promise":
        monkeypatch.setattr(
            SinkScheme, "promised", lambda self, y, *_: self.bound(float(y.norm()) / math.sqrt(self.problem.lam))
        )
    else:
        monkeypatch.setattr("layerstep.construction.certificate.norm", lambda z: 0.0)
    assert certify(2000).counts[f"{slip}: violations"] > 0


def with_60_digits(x, y, xq, scales, lam):
    """k_q (K + lam I)^-1 y by elimination, every number a Decimal."""
    with localcontext() as context:
        context.prec = 60

        def gram(a, b):
            differences = [
                [[(Decimal(s) - Decimal(t)) / v for s, t, v in zip(p, q, scales, strict=True)] for q in b] for p in a
            ]
            return [[(-sum(z * z for z in pair) / 2).exp() for pair in row] for row in differences]

        n = len(x)
        rows = [[*row, Decimal(label)] for row, label in zip(gram(x, x), y, strict=True)]
        for i in range(n):
            rows[i][i] += Decimal(lam)
        for i in range(n):  # Gauss-Jordan: the matrix is positive definite
            rows[i] = [value / rows[i][i] for value in rows[i]]
            for j in range(n):
                if j != i:
                    rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
        w = [row[-1] for row in rows]
        return np.array([float(sum(k * c for k, c in zip(row, w, strict=True))) for row in gram(xq, x)])


@LONG
@pytest.mark.parametrize("scheme", ["exact", "adaptive"])
def test_the_reference_has_the_digits_that_it_judges_by(scheme):
    """A column 1e4 from 0 whose spread is 1e-8: quotients of 1e12 leave 7 digits of 80 bits, differences all."""
    rng = np.random.default_rng(3)
    x = np.stack([rng.normal(size=7), 1e4 + 1e-8 * rng.normal(size=7)], axis=1)
    xq, y = np.concatenate([x, x[:4] + 1e-9]), rng.normal(size=7)
    estimator = TransformerKRR(scheme=scheme, scale=True, normalize_y=False, **({"L": 40} if scheme != "exact" else {}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the certificate of 40 steps here is 1e-63: that a bound is above does not fail
        value, bound = estimator.fit(x, y).predict(xq, return_bound=True)
    scales = np.asarray(1.0, dtype=np.longdouble) * estimator.x_scale_
    truth = with_60_digits(x, y, xq, [Decimal(scale) for scale in estimator.x_scale_.tolist()], 0.1)
    assert np.abs(ridge_regression(x, y, xq, scales, 0.1) - truth).max() < 1e-15
    assert np.abs(ridge_regression(x / scales, y, xq / scales, 1.0, 0.1) - truth).max() > 1e-9
    assert (np.abs(value - truth) <= bound).all()


def far_columns(rng, n, d, v):
    """The last column 1e4 from 0, its spread 1e-8; queries among the examples."""
    x = rng.normal(size=(n, d))
    x[:, -1] = 1e4 + 1e-8 * x[:, -1]
    return x, rng.normal(size=n), np.concatenate([x, x])


@LONG
def test_certify_judges_by_what_the_estimator_was_given(monkeypatch):
    """Quotients as its inputs, and predictions within their bounds are called violations."""
    monkeypatch.setattr("fuzz.certify.problem", far_columns)
    monkeypatch.setattr("fuzz.certify.estimator_for", lambda *_: (TransformerKRR(lam=1.0, error=1e-10), None))
    tally = Tally()
    for seed in range(5):
        of_estimator(np.random.default_rng(seed), tally, seed)
    assert tally.counts["bound"] > 100
    assert tally.counts["bound: violations"] == 0


GROUPS = np.array([[0.1], [1.2], [2.3], [1e6 + 0.1], [1e6 + 1.2], [1e6 + 2.3]])
SIGNS = np.array([1.0, -1, 1, -1, 1, -1])


@pytest.mark.parametrize("scheme", ["compact", "exact"])
def test_the_promise_knows_how_far_apart_the_inputs_are(scheme):
    """Inner products of inputs |x| / v from their mean lose digits as |x|² / v²: 1e-6 was promised, 6e-5 the error."""
    network = construct(1, 6, 1.0, 0.1, B_y=1.0, error=1e-6, scheme=scheme)
    xq = GROUPS + 0.3
    with pytest.warns(
        UserWarning, match=r"bound above the promise, up to 0.0\d+ where promised were [89].\d+e-07: rounding"
    ):
        answer = network.predict(GROUPS, SIGNS, xq)
    error = np.abs(answer.value.numpy() - ridge_regression(GROUPS, SIGNS, xq, 1.0, 0.1)).astype(float)
    assert error.max() > network.certificate.bound
    assert (error <= answer.bound.numpy()).all()
    assert error.max() <= answer.promised
    near = network.predict(GROUPS[:3], SIGNS[:3], xq[:3])
    assert near.promised < 1e-6
    assert not near.above_promise.any()


def test_a_bound_above_the_promise_is_said_once():
    network = construct(1, 6, 1.0, 0.1, B_y=1.0, error=1e-6)
    apart = 100 * GROUPS
    with pytest.warns(UserWarning, match=r"6 of 6 predictions have a bound above the promise.*nothing can be promised"):
        answer = network.predict(apart, SIGNS, apart + 0.3)
    assert answer.promised == math.inf
    assert answer.above_promise.all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network.predict(apart, SIGNS, apart + 0.3)
        construct(1, 6, 1.0, 0.1, B_y=1.0, error=1e-6).predict(GROUPS[:3], SIGNS[:3], GROUPS[:3])
        # After a step that diverges there was nothing to promise.
        construct(1, 6, 1.0, 0.1, L=3, eta=1.0).predict(GROUPS[:3], SIGNS[:3], GROUPS[:3])


TRIANGLE = ([[0.0, 1], [1, 0], [2, 2]], [100.0, -100, 100], [[1.0, 1]])


def test_a_forward_pass_that_overflows_says_so():
    network = construct(2, 3, 1.0, 0.1, scheme="compact", error=10.0, B_y=100.0, dtype=torch.float16)
    with pytest.raises(InputError, match=r"y = labels up to 100: must be so small .* torch.float16, 6\.6e\+04"):
        network.predict(*TRIANGLE)
    assert construct(2, 3, 1.0, 0.1, scheme="compact", error=10.0, B_y=100.0).predict(*TRIANGLE).bound.max() < 10
    diverging = construct(2, 3, 1.0, 0.1, L=2000, eta=50.0)
    with pytest.raises(InputError, match="construct with fewer steps"):
        diverging.predict(*TRIANGLE)
    with pytest.warns(UserWarning, match=r"of this path are not finite"):
        assert not diverging.path(Prompts([TRIANGLE[0]], [TRIANGLE[1]])).values.isfinite().all()


@pytest.mark.parametrize("scheme", ["compact", "exact"])
@pytest.mark.parametrize(("dtype", "far"), [(torch.float64, 1e200), (torch.float32, 1e20), (torch.float16, 100.0)])
def test_inputs_whose_squares_are_infinite_are_refused(scheme, dtype, far):
    network = construct(2, 3, 1.0, 0.1, scheme=scheme, B_y=1.0, error=1.0, dtype=dtype)
    x, y, xq = (torch.tensor(array, dtype=torch.float64) for array in TRIANGLE)
    y = y / 100
    message = rf"largest \|x - mean\| = .*: must be at most .*: in {dtype} the square"
    for prompt in ((x, y, far + xq), (torch.cat([x[:2], far + x[2:]]), y, xq)):
        with pytest.raises(InputError, match=message):
            network.predict(*prompt)
        with pytest.raises(InputError, match=message):
            network.path(Prompts(torch.cat([prompt[0], prompt[2]])[None], torch.ones(1, 4)))
    if dtype != torch.float16:  # a shift of all costs nothing
        assert network.predict(x + 1000, y, xq + 1000).bound.isfinite().all()


@pytest.mark.parametrize(("dtype", "label", "query"), [(torch.float32, 1e-50, 30.0), (torch.float64, 1.0, 36.0)])
def test_a_bound_is_not_0_where_the_truth_is_not(dtype, label, query):
    """Kernel values below 1e-154, whose squares are 0, and labels below the least number of float32."""
    network = construct(1, 2, 1.0, 0.1, L=3, dtype=dtype)
    x, y, xq = np.array([[0.0], [1.0]]), np.full(2, label), np.array([[query]])
    answer = network.predict(x, y, xq)
    truth = ridge_regression(x, y, xq, 1.0, 0.1)
    assert (truth != 0).all()
    assert (np.abs(answer.value.numpy() - truth) <= answer.bound.numpy()).all()
    assert (answer.bound > 0).all()


def test_a_bound_covers_the_rounding_of_inputs():
    """f* is meant for points that were rounded to x, y and xq: for those the bound must hold too."""
    rng = np.random.default_rng(0)
    x, y, xq = rng.normal(size=(8, 2)), rng.normal(size=8), rng.normal(size=(20, 2))
    network = construct(2, 8, 0.5, 1e-2, L=600)
    shaken = [array * (1 + 1e-6 * rng.choice([-1, 1], size=array.shape)) for array in (x, y, xq)]
    truth = ridge_regression(*shaken, 0.5, 1e-2)
    plain, wide = (network.predict(x, y, xq, input_error=error) for error in (0.0, 1e-6))
    error = np.abs(plain.value.numpy() - truth)
    assert (error > plain.bound.numpy()).any()
    assert (error <= wide.bound.numpy()).all()


@LONG
def test_the_bound_of_the_estimator_covers_the_rounding_of_the_mean():
    """Once: error 1.55e-10, bound 1.16e-10."""
    y = 1e6 + np.random.default_rng(4).random(3)
    x, xq = np.arange(3.0)[:, None], np.array([[1e6], [1.5]])
    estimator = TransformerKRR(lam=1.0).fit(x, y)
    value, bound = estimator.predict(xq, return_bound=True)
    labels, scale = y.astype(np.longdouble), estimator.x_scale_.astype(np.longdouble)
    truth = labels.mean() + ridge_regression(x / scale, labels - labels.mean(), xq / scale, 1.0, 1.0)
    assert (np.abs(value - truth) <= bound).all()
    assert bound[0] < 1e-9


@LONG
def test_the_bound_of_the_estimator_covers_the_last_sum():
    """The mean is a number of float64, the prediction 1e-11 from it, and lost: a digit of the mean is 1e-10."""
    x, y, xq = np.arange(3.0)[:, None], 1e6 + np.array([0.0, 0.5, 1.0]), np.linspace(8, 10, 5)[:, None]
    estimator = TransformerKRR(lam=1.0, scale=False, error=1e-6).fit(x, y)
    value, bound = estimator.predict(xq, return_bound=True)
    truth = ridge_regression(x, y - 1e6 - 0.5, xq, 1.0, 1.0)
    assert (np.abs(value.astype(np.longdouble) - (1e6 + 0.5) - truth) <= bound).all()
    assert bound.max() < 1e-9


def test_the_bound_of_the_estimator_has_the_error_of_the_mean_in_it():
    """An error e of the mean adds e (1 + √(n / lam) / 2): the worst case of moving all labels, and the prediction."""
    y = [1e6 + 1 / 3, 1e6 + 1 / 7, 1e6 + 1 / 11]
    estimator = TransformerKRR(lam=1e-6).fit(np.arange(3.0)[:, None], y)
    error = abs(float(sum(map(Fraction, y)) / 3 - Fraction(estimator.y_mean_)))
    assert estimator.y_mean_error_ == pytest.approx(error, rel=1e-12)
    _, bound = estimator.predict([[1e6]], return_bound=True)
    assert bound[0] >= error * (1 + math.sqrt(3 / 1e-6) / 2) > 10 * np.spacing(1e6)


@pytest.mark.parametrize("labels", [[1.7e308, 1.6e308, 1.5e308], [5e-324, 0.0, 0.0], [3.0, 3.0, 3.0]])
def test_the_estimator_takes_labels_of_every_size(labels):
    value, bound = TransformerKRR().fit(np.arange(3.0)[:, None], labels).predict(np.ones((2, 1)), return_bound=True)
    assert np.isfinite(value).all()
    assert np.isfinite(bound).all()
    assert (value >= min(labels) - bound).all()


@LONG
def test_the_promise_holds_for_length_scales_far_below_the_inputs():
    """Quotients of numbers far from 0 lose the digits of their differences: 2e-12 was the error, 7e-15 promised."""
    scales, rng = np.array([0.01, 0.003]), np.random.default_rng(0)
    x, xq = (scales * rng.normal(size=(n, 2)) + 1e4 for n in (9, 30))
    y = rng.normal(size=9)
    network = construct(2, 9, scales, 30.0, B_y=3.0, L=40)
    answer = network.predict(x, y, xq)
    error = np.abs(answer.value.numpy() - ridge_regression(x, y, xq, scales, 30.0)).astype(float)
    assert answer.promised < 1e-13
    assert error.max() <= answer.promised
    assert (error <= answer.bound.numpy()).all()
