"""The literal recursions, one system at a time in NumPy: the obvious way, and the oracle of the solvers' tests.

Each function takes K [n, n], k [n], y [n], lam and yields the prediction k · w_t for t = 0, 1, 2, ...
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import scipy.linalg


def richardson(K, k, y, lam, *, preconditioned=True, eta=None) -> Iterator[float]:
    A = K + lam * np.eye(len(y))
    D = K.sum(1) if preconditioned else np.ones(len(y))
    if eta is None:
        eta = 1 / np.linalg.eigvals(A / D[:, None]).real.max()
    w = np.zeros(len(y))
    while True:
        yield k @ w
        w = w + eta * (y - A @ w) / D


def conjugate_gradient(K, k, y, lam, *, preconditioned=False) -> Iterator[float]:
    A = K + lam * np.eye(len(y))
    D = K.sum(1) if preconditioned else np.ones(len(y))
    w, r = np.zeros(len(y)), y.copy()
    z = r / D
    p = z
    start = np.sqrt(r @ z)
    while True:
        yield k @ w
        if np.sqrt(r @ z) > 1e-12 * start:
            before = r @ z
            eta = before / (p @ A @ p)
            w = w + eta * p
            r = r - eta * (A @ p)
            z = r / D
            p = z + (r @ z) / before * p


def gradient_descent(K, k, y, lam) -> Iterator[float]:
    M = K @ (K + lam * np.eye(len(y)))
    eta = 1 / np.linalg.eigvals(M).real.max()
    w = np.zeros(len(y))
    while True:
        yield k @ w
        w = w - eta * (M @ w - K @ y)


def nesterov(K, k, y, lam) -> Iterator[float]:
    M = K @ (K + lam * np.eye(len(y)))
    m = np.linalg.eigvalsh(K)
    eigenvalues = m * (m + lam)
    eta, kappa = 1 / eigenvalues[-1], eigenvalues[-1] / max(eigenvalues[0], 1e-300)
    beta = (np.sqrt(kappa) - 1) / (np.sqrt(kappa) + 1)
    w = z = np.zeros(len(y))
    while True:
        yield k @ w
        z_new = w - eta * (M @ w - K @ y)
        w = z_new + beta * (z_new - z)
        z = z_new


def _row_sum_interval(K, lam) -> tuple[float, float]:
    D = K.sum(1)
    values = scipy.linalg.eigh(K + lam * np.eye(len(D)), np.diag(D), eigvals_only=True)
    return values[0], values[-1]


def heavy_ball(K, k, y, lam) -> Iterator[float]:
    A, D = K + lam * np.eye(len(y)), K.sum(1)
    low, high = np.sqrt(_row_sum_interval(K, lam))
    eta, beta = 4 / (high + low) ** 2, ((high - low) / (high + low)) ** 2
    w = before = np.zeros(len(y))
    while True:
        yield k @ w
        w, before = w + eta * (y - A @ w) / D + beta * (w - before), w


def chebyshev(K, k, y, lam, *, interval=None) -> Iterator[float]:
    """The three-term recursion with r_0 = δ/θ, r_t = 1 / (2θ/δ - r_{t-1})."""
    A, D = K + lam * np.eye(len(y)), K.sum(1)
    lo, hi = interval or _row_sum_interval(K, lam)
    theta, delta = (hi + lo) / 2, max((hi - lo) / 2, 1e-12 * hi)
    sigma, w = theta / delta, np.zeros(len(y))
    r, move = 1 / sigma, np.zeros(len(y))
    for t in itertools.count():
        yield k @ w
        residual = (y - A @ w) / D
        if t == 0:
            move = residual / theta
        else:
            r_new = 1 / (2 * sigma - r)
            move = 2 * r_new / delta * residual + r_new * r * move
            r = r_new
        w = w + move


def newton_schulz(K, k, y, lam) -> Iterator[float]:
    A = K + lam * np.eye(len(y))
    X = np.eye(len(y)) / np.linalg.eigvalsh(A)[-1]
    yield 0.0
    while True:
        yield k @ X @ y
        X = X @ (2 * np.eye(len(y)) - A @ X)


def _krr(K, k, y, lam) -> float:
    return k @ scipy.linalg.solve(K + lam * np.eye(len(y)), y, assume_a="pos") if len(y) else 0.0


def ridge(K, k, y, lam, *, scale=1.0) -> Iterator[float]:
    yield 0.0
    for t in itertools.count(1):
        yield _krr(K, k, y, scale / t)


def nadaraya_watson(K, k, y, lam) -> Iterator[float]:
    for t in itertools.count():
        yield (k**t) @ y / (k**t).sum()


def softmax_average(K, k, y, lam) -> Iterator[float]:
    for t in itertools.count():
        p = np.exp(t * k)
        yield p @ y / p.sum()


def nearest(K, k, y, lam) -> Iterator[float]:
    order = np.argsort(-k, kind="stable")
    for t in itertools.count():
        near = order[:t]
        yield _krr(K[np.ix_(near, near)], k[near], y[near], lam)


def recursive(K, k, y, lam) -> Iterator[float]:
    for t in itertools.count():
        yield _krr(K[:t, :t], k[:t], y[:t], lam)


def last_points(K, k, y, lam) -> Iterator[float]:
    for t in itertools.count():
        last = slice(max(len(y) - t, 0), None)
        yield _krr(K[last, last], k[last], y[last], lam)


def shrink(K, k, y, lam, *, horizon=100.0) -> Iterator[float]:
    for t in itertools.count():
        yield min(t / horizon, 1) * _krr(K, k, y, lam)


def boost(K, k, y, lam, *, causal=False) -> Iterator[float]:
    weights = np.tril(K) if causal else K
    average, r, f = weights / weights.sum(1, keepdims=True), y.copy(), 0.0
    while True:
        yield f
        f = f + k @ r / k.sum()
        r = r - average @ r


def causal_richardson(K, k, y, lam) -> Iterator[float]:
    lower, w = np.tril(K), np.zeros(len(y))
    while True:
        yield k @ w
        w = w + (y - lower @ w - lam * w) / lower.sum(1)
