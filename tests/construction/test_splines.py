"""Splines: the bound each one states holds everywhere on its interval and is attained; stable forms are stable."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerstep.construction import splines
from layerstep.errors import InputError

# A first call may load libraries for seconds: no deadline.
unhurried = settings(deadline=None, max_examples=60)

deltas = st.floats(0.01, 0.999)
counts = st.integers(1, 300)


def grid(spline):
    """Dense points of the interval, with the knots and the middles of the cells."""
    knots = (-spline.b / spline.a).clamp(spline.lo, spline.hi)
    knots = torch.cat([knots, torch.tensor([spline.lo, spline.hi], dtype=torch.float64)]).unique()
    middles = (knots[1:] + knots[:-1]) / 2
    return torch.cat([torch.linspace(spline.lo, spline.hi, 501, dtype=torch.float64), knots, middles])


def errors(spline, f):
    x = grid(spline)
    scale = float(f(x).abs().max()) * spline.n
    return spline(x) - f(x), 1e-14 * (scale + float(spline.c.abs().sum()) * (abs(spline.lo) + abs(spline.hi)))


@unhurried
@given(st.floats(1e-3, 1e3), counts)
def test_the_square_errs_by_delta_squared_over_n_squared(delta, n):
    for stable in (False, True):
        spline = splines.square(delta, 2 * n, stable=stable)
        error, rounding = errors(spline, torch.square)
        assert spline.n == 2 * n
        assert -rounding <= error.min()
        assert spline.bound * (1 - 1e-9) - rounding <= error.max() <= spline.bound + rounding


@unhurried
@given(deltas, counts)
def test_flip_errs_by_the_square_of_its_cell(delta, n):
    spline = splines.flip(delta, n)
    error, rounding = errors(spline, lambda x: x / (1 - x))
    assert spline.n == n
    assert spline.constant == 0
    assert -rounding <= error.min()
    assert error.max() <= spline.bound + rounding
    # sqrt(y0 y1) is where the chord deviates most, by exactly h².
    h = ((1 - delta) ** -0.5 - 1) / n
    worst = torch.tensor([1 - 1 / (1 + h)], dtype=torch.float64)
    assert spline(worst).item() - (h + 0) == pytest.approx(h * h, rel=1e-6, abs=rounding)


@unhurried
@given(deltas, counts)
def test_inverse_errs_by_the_square_of_its_cell_in_both_forms(delta, n):
    left, right = splines.inverse(delta, n), splines.inverse(delta, n, stable=True)
    for spline in (left, right):
        error, rounding = errors(spline, torch.reciprocal)
        assert spline.n == n
        assert -rounding <= error.min()
        assert error.max() <= spline.bound + rounding
    assert left.constant == pytest.approx(1 / delta)
    assert right.constant == 0
    assert (right.c > 0).all()
    x = grid(left)
    torch.testing.assert_close(left(x), right(x), rtol=1e-8, atol=1e-8 / delta)


@unhurried
@given(deltas, st.integers(2, 200))
def test_halving_halves_the_bound(delta, n):
    for spline, f in ((splines.flip(delta, n), lambda x: x / (1 - x)), (splines.inverse(delta, n), torch.reciprocal)):
        half = splines.halved(spline)
        error, rounding = errors(half, f)
        assert half.bound == spline.bound / 2
        assert error.abs().max() <= half.bound + rounding


@unhurried
@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(1e-5, 1))
def test_products_stay_within_their_bound_and_attain_it(P, Q, relative):
    tolerance = relative * P * Q
    product = splines.product(P, Q, tolerance)
    assert product.bound <= tolerance
    u = torch.linspace(-1, 1, 81, dtype=torch.float64)
    p, q = torch.meshgrid(P * u, Q * u, indexing="ij")
    error = (product(p, q) - p * q).abs().max()
    assert error <= product.bound * (1 + 1e-9) + 1e-13 * P * Q * product.square.n
    assert product(torch.zeros(1, dtype=torch.float64), q[:1, -1]).abs().item() <= 1e-14 * P * Q


@pytest.mark.parametrize(
    ("f", "lo", "hi", "curvature"),
    [(torch.sin, -3.0, 5.0, 1.0), (torch.exp, 0.0, 2.0, math.exp(2)), (lambda x: 3 * x - 1, -1.0, 1.0, 0.0)],
    ids=["sin", "exp", "affine"],
)
@pytest.mark.parametrize("tolerance", [1.0, 1e-2, 1e-5])
def test_any_function_with_bounded_curvature(f, lo, hi, curvature, tolerance):
    spline = splines.of_function(f, lo, hi, curvature, tolerance)
    error, rounding = errors(spline, f)
    assert error.abs().max() <= spline.bound + rounding
    assert spline.bound <= tolerance * (1 + 1e-12)


def test_weights_are_those_of_the_lemma():
    knots = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    spline = splines.interpolate(torch.square, knots, curvature=2.0)
    assert spline.a.tolist() == [1, 1]
    assert spline.b.tolist() == [0, -1]
    assert spline.c.tolist() == [1, 3]  # slopes 1 and 4
    assert spline.constant == 0
    assert spline.bound == 1  # 2 · 2² / 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_stable_forms_keep_the_digits_that_the_other_forms_lose(dtype):
    x = torch.linspace(-1, 1, 999, dtype=torch.float64)
    floor = {
        stable: (splines.square(20.0, 400, stable)(x.to(dtype)).double() - splines.square(20.0, 400, stable)(x))
        .abs()
        .max()
        for stable in (False, True)
    }
    assert floor[True] < floor[False] / 3
    assert splines.square(20.0, 400, stable=True)(torch.zeros(1, dtype=dtype)).item() == 0
    x = torch.linspace(1 / 41, 1, 999, dtype=torch.float64)
    if dtype != torch.float16:
        floor = {
            stable: (f(x.to(dtype)).double() - f(x.to(dtype).double())).abs().max()
            for stable in (False, True)
            for f in (splines.inverse(1 / 41, 100, stable),)
        }
        assert floor[True] < floor[False] / 2


def test_splines_agree_with_numpy_interpolation():
    knots = np.linspace(-2, 2, 12)
    x = np.linspace(-2, 2, 300)
    np.testing.assert_allclose(splines.square(2.0, 11)(torch.tensor(x)), np.interp(x, knots, knots**2), atol=1e-13)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: splines.flip(1.0, 3), "delta"),
        (lambda: splines.inverse(0.0, 3), "delta"),
        (lambda: splines.square(1.0, 0), "n = 0"),
        (lambda: splines.square(1.0, 3, stable=True), "even"),
        (lambda: splines.of_function(torch.sin, 1.0, 1.0, 1.0, 0.1), "interval"),
        (lambda: splines.interpolate(torch.sin, torch.tensor([1.0, 0.0])), "increasing"),
        (lambda: splines.product(1.0, -1.0, 0.1), "Q = -1"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InputError, match=message):
        call()
