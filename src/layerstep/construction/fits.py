"""A kernel as a sum of Gaussians: non-negative weights on geometric widths, and a proof of how near the sum is."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from layerstep.errors import InputError

if TYPE_CHECKING:
    from layerstep.construction.kernels import Profile

#: Of one kernel: more are not looked for.
MOST_HEADS = 64
_POINTS = 2**22  # numbers held at a time
# A cell is cut in two while its bound is above the largest difference at a node by more than this share.
_SLACK = 0.02


def certified_error(weights: tuple[float, ...], widths: tuple[float, ...], profile: Profile, reach: float) -> float:
    """An upper bound on |profile(r) - Σ_s weights_s exp(-r² / 2 widths_s²)| for 0 <= r <= reach.

    Proof. In t = r² both are mixtures of exponentials: positive, falling, convex. A convex F on [t_0, t_1] lies below
    its chord and above its tangents at the ends, so by at most (t_1 - t_0) (F'(t_1) - F'(t_0)) / 4 below the chord;
    the difference of two such differs from its own chord by at most the larger of the two, and its chord by at most
    the larger difference at a node. On the first cell, [0, t_1], both are between their values at its ends, and beyond
    the last node, where reach is infinite, between 0 and their values there. Cells are cut until the bound is within
    2 % of the largest difference at a node. Values carry at most (heads + 16) 2^-52 of rounding, which is added.
    """
    c = torch.tensor(weights, dtype=torch.float64)
    scale = torch.tensor(widths, dtype=torch.float64).pow(-2) / 2

    def values(t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The profile, the sum, and the derivatives of the two."""
        parts = []
        for some in t.split(max(1, _POINTS // len(c))):
            powers = torch.exp(-some[:, None] * scale)
            parts.append((profile(some.sqrt()), powers @ c, profile.slope(some), -(powers @ (c * scale))))
        return tuple(torch.cat(each) for each in zip(*parts, strict=True))  # type: ignore[return-value]

    rounding = (len(weights) + 16) * 2.0**-52
    last = min(reach, _far(profile, max(widths)))
    first = min(1e-12 * min(1.0, min(widths)), last / 2)
    t = torch.logspace(2 * math.log10(first), 2 * math.log10(last), 2000, dtype=torch.float64)
    t[-1] = max(float(t[-1]), last * last)
    K, G, dK, dG = values(t)
    # On [0, t_1], where profile and sum are 1 at 0; then beyond the last node.
    worst = max(1 - float(K[0]), 1 - float(G[0]))
    if reach == math.inf:
        worst = max(worst, float(K[-1]), float(G[-1]))
    nodes = max(worst, float((K - G).abs().max()))
    ends = [(t[:-1], K[:-1] - G[:-1], dK[:-1], dG[:-1]), (t[1:], K[1:] - G[1:], dK[1:], dG[1:])]
    for _ in range(60):
        (t_0, g_0, dK_0, dG_0), (t_1, g_1, dK_1, dG_1) = ends
        bend = torch.maximum(dK_1 - dK_0, dG_1 - dG_0) * (t_1 - t_0) / 4
        bound = torch.maximum(g_0.abs(), g_1.abs()) + bend
        wide = bound > (1 + _SLACK) * nodes + rounding
        worst = max(worst, float(bound[~wide].max()) if bool((~wide).any()) else 0.0)
        if not bool(wide.any()):
            return worst + rounding
        left, right = ([each[wide] for each in end] for end in ends)
        middle = (left[0] * right[0]).sqrt()
        K, G, dK, dG = values(middle)
        cut = [middle, K - G, dK, dG]
        nodes = max(nodes, float((K - G).abs().max()))
        joined = ([torch.cat(pair) for pair in zip(*both, strict=True)] for both in ((left, cut), (cut, right)))
        ends = [tuple(each) for each in joined]
    (_, g_0, dK_0, dG_0), (_, g_1, dK_1, dG_1) = ends
    bend = torch.maximum(dK_1 - dK_0, dG_1 - dG_0) * (ends[1][0] - ends[0][0]) / 4
    return max(worst, float((torch.maximum(g_0.abs(), g_1.abs()) + bend).max())) + rounding


def _far(profile: Profile, widest: float) -> float:
    """A distance at which the profile and the widest Gaussian are below 1e-12, or as far as need be looked."""
    r = 8 * max(1.0, widest)
    while r < 1e150 and float(profile(torch.tensor(r, dtype=torch.float64))) > 1e-12:
        r *= 2
    return r


@functools.lru_cache(maxsize=256)
def fit_mixture(
    profile: Profile, error: float, reach: float, heads: int
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Weights, widths and certified error <= `error`; InputError where `heads` Gaussians were not enough.

    Widths are geometric, between quantiles of the profile's own distribution of widths: what is cut off has about the
    weight `error`. Weights are non-negative least squares, weighted anew (Lawson) to level the largest difference.
    """
    best, count, step = math.inf, 1, 1
    while count <= heads:
        for missing, beyond in ((2, 2), (2, 0.5), (8, 8), (0.5, 2), (0.5, 8)):
            low, high = profile.widths(min(0.4, missing * error), min(0.4, beyond * error))
            # A Gaussian that is 1 within `error` on the whole range need not be wider.
            high = min(high, reach / math.sqrt(2 * error))
            low = min(low, high / 1.01)
            weights, widths, seen = _least_squares(profile, np.geomspace(low, high, count), reach)
            best = min(best, seen)
            if seen <= error / (1 + _SLACK) - 2.0**-45:
                # What another machine proves of the same numbers may differ by what cells are cut.
                proved = (1 + 2 * _SLACK) * certified_error(weights, widths, profile, reach)
                if proved <= error:
                    return weights, widths, proved
        step = max(1, count // 10)
        count += step
    raise InputError(
        f"error = {error:.2g}: {heads} Gaussians come within {best:.2g} of {profile}, not nearer. Ask for a larger "
        "error or a shorter range of distances (B_x)."
    )


def _least_squares(
    profile: Profile, widths: np.ndarray, reach: float, rounds: int = 6
) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    from scipy.optimize import nnls

    count, top = len(widths), min(reach, 8 * widths[-1])
    r = np.concatenate([[0.0], np.geomspace(widths[0] / 20, top, 30 * count + 30)])
    A, b = np.exp(-((r[:, None] / widths) ** 2) / 2), profile(torch.from_numpy(r)).numpy()
    weighting, seen, best = np.full(len(r), 1 / len(r)), math.inf, np.ones(count)
    for _ in range(rounds):
        root = np.sqrt(weighting)
        one = 1e3 * root.max()  # times (Σ weights - 1)
        rows = np.vstack([A * root[:, None], np.full((1, count), one)])
        weights, _ = nnls(rows, np.append(b * root, one), maxiter=1000 * count)
        weights = weights / weights.sum()
        apart = np.abs(A @ weights - b)
        if apart.max() < seen:
            seen, best = float(apart.max()), weights
        weighting = weighting * (apart / max(apart.max(), 1e-300) + 1e-3)
        weighting /= weighting.sum()
    kept = best > 0
    return tuple(best[kept].tolist()), tuple(widths[kept].tolist()), seen
