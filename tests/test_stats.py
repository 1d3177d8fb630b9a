"""Resamples count what is drawn; an interval is NumPy's quantiles of what is a number."""

import numpy as np
import torch

from layerstep.stats import interval, resampled, resamples


def test_counts_sum_to_the_sequences_and_follow_the_seed():
    counts = resamples(20, 50, 3)
    assert counts.shape == (50, 20)
    assert bool((counts.sum(1) == 20).all())
    assert torch.equal(counts, resamples(20, 50, 3))
    assert not torch.equal(counts, resamples(20, 50, 4))


def test_indices_are_those_of_numpy():
    expected = np.random.default_rng(5).integers(20, size=(7, 256))
    assert np.array_equal(resampled(20, 7, 5, 256).numpy(), expected)
    assert resampled(20, 7, 5).shape == (7, 20)


def test_an_interval_is_numpys_quantiles_of_what_is_a_number():
    draws = np.random.default_rng(0).standard_normal((1000, 3))
    for level, quantiles in ((0.9, [0.05, 0.95]), (0.95, [0.025, 0.975])):
        assert np.array_equal(interval(torch.from_numpy(draws), level).numpy(), np.quantile(draws, quantiles, axis=0))
    holes = draws[:, 0].copy()
    holes[::7] = np.nan
    expected = np.nanquantile(holes, [0.025, 0.975])
    np.testing.assert_allclose(interval(torch.from_numpy(holes), 0.95).numpy(), expected, rtol=1e-14)


def test_the_interval_of_a_mean_covers_as_often_as_it_says():
    """200 samples of 60 normal numbers: the true mean lies in about 95 % of the intervals (binomial: 88 to 99 %)."""
    random = np.random.default_rng(1)
    inside = 0
    for seed in range(200):
        x = torch.from_numpy(random.standard_normal(60))
        low, high = interval(resamples(60, 400, seed) @ x / 60, 0.95).tolist()
        inside += low <= 0 <= high
    assert 176 <= inside <= 198
