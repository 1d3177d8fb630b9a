"""Step coefficients against published tables, and contraction against the polynomial it bounds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerstep.construction.steps import ChebyshevSteps, ConstantSteps
from layerstep.errors import InputError

COUNTS = {
    0.5: (2, 4, 5, 9),
    0.1: (5, 9, 12, 23),
    0.01: (15, 27, 38, 73),
    0.001: (48, 84, 121, 230),
    0.0025 / 40.0025: (190, 336, 481, 918),
}


@pytest.mark.parametrize("lo", COUNTS)
def test_step_counts(lo):
    assert tuple(ChebyshevSteps(lo=lo, hi=1).needed(phi) for phi in (0.1, 0.01, 0.001, 1e-6)) == COUNTS[lo]


def test_coefficients_of_the_worked_example():
    a, b = ChebyshevSteps(lo=0.3 / 3.3, hi=1).coefficients(5)
    np.testing.assert_allclose(a, [1.8333333333, 2.8085106383, 2.4975845411, 2.4012654891, 2.3729170221], atol=1e-10)
    np.testing.assert_allclose(b, [0, 0.5319148936, 0.3623188406, 0.3097811759, 0.2943183757], atol=1e-10)
    a, same = ChebyshevSteps(lo=0.3, hi=3.3).coefficients(5)
    np.testing.assert_allclose(a, [0.5555555556, 0.8510638298, 0.7568438003, 0.7276562088, 0.7190657643], atol=1e-10)
    np.testing.assert_allclose(same, b, rtol=1e-14)


def polynomial(steps, L, mu):
    """Error of the L-th iterate at eigenvalue mu, for error 1 at w = 0."""
    error, previous = np.ones_like(mu), np.ones_like(mu)
    for a, b in zip(*steps.coefficients(L), strict=True):
        error, previous = error - a * mu * error + b * (error - previous), error
    return error


intervals = st.tuples(st.floats(-6, -0.01), st.floats(-3, 3)).map(lambda e: (10 ** (e[0] + e[1]), 10 ** e[1]))


@settings(deadline=None, max_examples=60)
@given(intervals, st.integers(1, 300))
def test_contraction_is_the_largest_value_of_the_error_polynomial(interval, L):
    lo, hi = interval
    mu = np.linspace(lo, hi, 200)
    for steps in (ChebyshevSteps(lo=lo, hi=hi), ConstantSteps(lo=lo, hi=hi, eta=1.7 / hi)):
        largest = np.abs(polynomial(steps, L, mu)).max()
        assert largest <= steps.contraction(L) * (1 + 1e-9) + 1e-13
        assert largest >= steps.contraction(L) * (1 - 1e-9) - 1e-13  # attained at an end


@settings(deadline=None, max_examples=60)
@given(intervals, st.floats(1e-9, 0.9))
def test_steps_are_enough_and_no_more(interval, target):
    lo, hi = interval
    for steps in (ChebyshevSteps(lo=lo, hi=hi), ConstantSteps(lo=lo, hi=hi, eta=1 / hi)):
        L = steps.needed(target)
        assert steps.contraction(L) <= target * (1 + 1e-6)
        assert L == 1 or steps.contraction(L - 1) >= target * (1 - 1e-6)


def test_shifting_the_momentum_by_one_step_is_worse():
    steps = ChebyshevSteps(lo=0.01, hi=1)
    a, b = steps.coefficients(30)

    class Shifted(ChebyshevSteps):
        def coefficients(self, L):
            return a, [*b[1:], b[-1]]

    mu = np.linspace(0.01, 1, 500)
    assert np.abs(polynomial(Shifted(lo=0.01, hi=1), 30, mu)).max() > 2 * steps.contraction(30)


def test_noise_is_amplified_no_more_than_by_richardson():
    """Σ_l max |R_l| = (1 - contraction) / lo, R_l what a unit error in step l becomes at step L."""
    steps, L = ChebyshevSteps(lo=0.02, hi=1), 40
    a, b = steps.coefficients(L)
    mu, total = np.linspace(0.02, 1, 400), 0.0
    for noisy in range(L):
        w, previous = np.zeros_like(mu), np.zeros_like(mu)
        for step in range(L):
            g = -mu * w + (step == noisy)
            w, previous = w + a[step] * g + b[step] * (w - previous), w
        total += np.abs(w).max()
    assert math.isclose(total, (1 - steps.contraction(L)) / 0.02, rel_tol=1e-9)


def test_a_step_size_that_diverges_is_refused_in_words():
    with pytest.raises(InputError, match=r"eta = 2\.5: must be below 2 / 1"):
        ConstantSteps(lo=0.1, hi=1, eta=2.5).needed(0.1)
