"""Linear regression's literal recursions in the weights, one prompt at a time in NumPy: the oracle of the solvers.

Each function takes X [n, d], q [d], y [n], lam and yields the prediction q · θ_t for t = 0, 1, 2, ... None of them
forms a kernel matrix.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np


def of_kernel(recursion):
    """The same for a kernel: features X = Q √m with XXᵀ = K, and the q with Xq = k."""

    def run(K, k, y, lam, **more) -> Iterator[float]:
        m, Q = np.linalg.eigh(K)
        keep = m > 1e-15 * m[-1]
        X = Q[:, keep] * np.sqrt(m[keep])
        yield from recursion(X, (Q[:, keep].T @ k) / np.sqrt(m[keep]), y, lam, **more)

    return run


def _system(X, y, lam):
    return X.T @ X + lam * np.eye(X.shape[1]), X.T @ y


def _interval(X, lam):
    """The spectrum of XᵀX + lam I on the span of the examples."""
    m = np.linalg.svd(X, compute_uv=False) ** 2
    m = m[m > len(X) * np.finfo(float).eps * m[0]]
    return m[-1] + lam, m[0] + lam


def gradient_descent(X, q, y, lam, *, eta=None) -> Iterator[float]:
    S, b = _system(X, y, lam)
    eta = 1 / np.linalg.eigvalsh(S)[-1] if eta is None else eta
    theta = np.zeros(len(q))
    while True:
        yield q @ theta
        theta = theta + eta * (b - S @ theta)


def nesterov(X, q, y, lam) -> Iterator[float]:
    S, b = _system(X, y, lam)
    lo, hi = _interval(X, lam)
    beta = (np.sqrt(hi / lo) - 1) / (np.sqrt(hi / lo) + 1)
    theta = z = np.zeros(len(q))
    while True:
        yield q @ theta
        z_new = theta + (b - S @ theta) / hi
        theta, z = z_new + beta * (z_new - z), z_new


def heavy_ball(X, q, y, lam) -> Iterator[float]:
    S, b = _system(X, y, lam)
    lo, hi = np.sqrt(_interval(X, lam))
    eta, beta = 4 / (hi + lo) ** 2, ((hi - lo) / (hi + lo)) ** 2
    theta = before = np.zeros(len(q))
    while True:
        yield q @ theta
        theta, before = theta + eta * (b - S @ theta) + beta * (theta - before), theta


def chebyshev(X, q, y, lam) -> Iterator[float]:
    S, b = _system(X, y, lam)
    lo, hi = _interval(X, lam)
    centre, delta = (hi + lo) / 2, max((hi - lo) / 2, 1e-12 * hi)
    sigma, theta = centre / delta, np.zeros(len(q))
    r, move = 1 / sigma, theta
    for t in itertools.count():
        yield q @ theta
        residual = b - S @ theta
        if t == 0:
            move = residual / centre
        else:
            r_new = 1 / (2 * sigma - r)
            move = 2 * r_new / delta * residual + r_new * r * move
            r = r_new
        theta = theta + move


def newton(X, q, y, lam, *, start="square") -> Iterator[float]:
    S, b = _system(X, y, lam)
    top, eye = np.linalg.eigvalsh(S)[-1], np.eye(len(q))
    M = {"square": S / top**2, "frobenius": S / np.linalg.norm(S @ S), "identity": eye / top}[start]
    while True:
        yield q @ M @ b
        M = M @ (2 * eye - S @ M)


def conjugate_gradient(X, q, y, lam) -> Iterator[float]:
    """CGLS: A p and Aᵀ r with A = [X; √lam I], never XᵀX."""
    d = len(q)
    A, right = np.vstack([X, np.sqrt(lam) * np.eye(d)]), np.concatenate([y, np.zeros(d)])
    theta, r = np.zeros(d), right
    z = A.T @ r
    p, rho = z, z @ z
    start = rho
    while True:
        yield q @ theta
        if rho > 1e-24 * start:
            Ap = A @ p
            eta = rho / (Ap @ Ap)
            theta, r = theta + eta * p, r - eta * Ap
            z = A.T @ r
            p, rho = z + (z @ z) / rho * p, z @ z


def plus_plus(X, q, y, lam, *, gamma, eta, absolute=False) -> Iterator[float]:
    """Von Oswald's GD++ as it is written: tokens [x; y] that change one another, the query with y = 0."""
    unit = 1.0 if absolute else 1 / np.linalg.eigvalsh(X.T @ X)[-1]
    X, y, q, out = X.copy(), y.copy(), q.copy(), 0.0
    while True:
        yield -out
        W, C = X.T @ y, X.T @ X
        out, y = out - eta * unit * q @ W, y - eta * unit * X @ W
        q, X = q - gamma * unit * C @ q, X - gamma * unit * X @ C


def kaczmarz(X, q, y, lam) -> Iterator[float]:
    """Row by row on [X, √lam I] [θ; u] = y, whose least-norm solution is ridge regression."""
    n, d = X.shape
    A, theta = np.hstack([X, np.sqrt(lam) * np.eye(n)]), np.zeros(d + n)
    while True:
        yield q @ theta[:d]
        for row, label in zip(A, y, strict=True):
            theta = theta + row * (label - row @ theta) / (row @ row)


def online(X, q, y, lam, *, scale=1.0) -> Iterator[float]:
    for t in itertools.count():
        theta = np.zeros(len(q))
        for x, label in zip(X, y, strict=True):
            theta = theta + scale * t * x * (label - x @ theta)
        yield q @ theta


def causal(X, q, y, lam, *, eta) -> Iterator[float]:
    """Every token i keeps its own w_i, and sees sum_{j<=i} x_j w_j only."""
    w = np.zeros(len(y))
    while True:
        yield q @ (X.T @ w)
        seen = np.array([x @ (X[: i + 1].T @ w[: i + 1]) for i, x in enumerate(X)])
        w = w + eta * (y - seen - lam * w)


def recursive_least_squares(X, q, y, lam) -> Iterator[float]:
    """P' = P - P x xᵀP / (1 + xᵀP x), P_0 = I / lam, one example per step."""
    theta, P = np.zeros(len(q)), np.eye(len(q)) / lam
    yield q @ theta
    for x, label in zip(X, y, strict=True):
        gain = P @ x / (1 + x @ P @ x)
        theta, P = theta + gain * (label - x @ theta), P - np.outer(gain, P @ x)
        yield q @ theta
    while True:
        yield q @ theta


def ridge(X, q, y, lam) -> Iterator[float]:
    yield 0.0
    for t in itertools.count(1):
        S, b = _system(X, y, 1 / t)
        yield q @ np.linalg.solve(S, b)


def preconditioned(X, q, y, lam, *, P, eta) -> Iterator[float]:
    S, b, theta = X.T @ X, X.T @ y, np.zeros(len(q))
    while True:
        yield q @ theta
        theta = theta + eta * (P @ (b - S @ theta) - lam * theta)


def discrete(X, q, y, lam, *, pool) -> Iterator[float]:
    for t in itertools.count():
        log_p = np.array([-t * ((y - X @ theta) ** 2).sum() / 2 for theta in pool])
        p = np.exp(log_p - log_p.max())
        yield sum(weight * (q @ theta) for weight, theta in zip(p, pool, strict=True)) / p.sum()


def softmax_average(X, q, y, lam) -> Iterator[float]:
    for t in itertools.count():
        p = np.exp(t * X @ q)
        yield p @ y / p.sum()


def nearest(X, q, y, lam) -> Iterator[float]:
    order = np.argsort(((X - q) ** 2).sum(1), kind="stable")
    for t in itertools.count():
        near = order[:t]
        S, b = _system(X[near], y[near], lam)
        yield q @ np.linalg.solve(S, b)
