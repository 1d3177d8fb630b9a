"""Splines: the bound each one states holds everywhere on its interval and is attained; stable forms are stable."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerstep.construction.gadgets import splines
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
    spline = splines.square(delta, n)
    error, rounding = errors(spline, torch.square)
    assert spline.n == n
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


def test_weights_are_those_of_the_lemma():
    knots = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    spline = splines.interpolate(torch.square, knots, bound=1.0)  # |f''| h² / 8 = 2 · 2² / 8
    assert spline.a.tolist() == [1, 1]
    assert spline.b.tolist() == [0, -1]
    assert spline.c.tolist() == [1, 3]  # slopes 1 and 4
    assert spline.constant == 0
    error, rounding = errors(spline, torch.square)
    assert error.max() == pytest.approx(spline.bound, abs=rounding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_stable_form_keeps_the_digits_that_the_other_form_loses(dtype):
    x = torch.linspace(1 / 41, 1, 999, dtype=torch.float64).to(dtype)
    left, right = (splines.inverse(1 / 41, 100, stable) for stable in (False, True))
    lost, kept = ((f(x).double() - f(x.double())).abs().max() for f in (left, right))
    assert kept < lost / 2


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
        (lambda: splines.interpolate(torch.sin, torch.tensor([1.0, 0.0]), 0.1), "increasing"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InputError, match=message):
        call()
