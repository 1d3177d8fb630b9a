"""Errors: every kind of number is known as one, and nothing else is."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

from layerstep.errors import InputError, as_float, require_positive, require_square

NUMBERS = [
    (1, 1.0),
    (10**400, math.inf),
    (np.int64(3), 3.0),
    (np.float32(0.5), 0.5),
    (Fraction(1, 4), 0.25),
    (-(10**400), -math.inf),
]


@pytest.mark.parametrize(("value", "expected"), NUMBERS, ids=repr)
def test_every_real_number_is_a_float(value, expected):
    assert as_float(value) == expected


@pytest.mark.parametrize("value", ["0.5", True, np.True_, None, 1j, [0.5], math.nan], ids=repr)
def test_what_is_no_number_passes_no_comparison(value):
    assert math.isnan(as_float(value))


@pytest.mark.parametrize("check", [require_positive, require_square])
def test_numbers_of_few_digits_are_compared_without_a_warning(check):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(v=np.float16(0.5), sigma=np.float32(0.1))
        with pytest.raises(InputError, match=r"v = .*: must be a finite number above 0"):
            check(v=np.float32(np.inf))
