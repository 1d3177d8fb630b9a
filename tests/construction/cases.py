"""Prompts and plain matrix arithmetic that the tests of the construction compare with."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class System:
    """(K + lam I) w = y and queries k_q, from the formulas, by NumPy: nothing here is the library's."""

    x: np.ndarray
    y: np.ndarray
    xq: np.ndarray
    v: float
    lam: float

    @property
    def K(self):
        return kernel(self.x, self.x, self.v)

    @property
    def k_q(self):
        return kernel(self.xq, self.x, self.v)

    @property
    def D(self):
        return self.K.sum(1)

    @property
    def D_q(self):
        return self.k_q.sum(1)

    @property
    def M(self):
        return self.K + self.lam * np.eye(len(self.x))

    @property
    def exact(self):
        """f*(q), with more digits than float64: a solution refined in extended precision."""
        x, y, xq = (array.astype(np.longdouble) for array in (self.x, self.y, self.xq))
        M = kernel(x, x, self.v) + np.longdouble(self.lam) * np.eye(len(x))
        w = np.zeros_like(y)
        for _ in range(4):
            w = w + np.linalg.solve(self.M, (y - M @ w).astype(float))
        return (kernel(xq, x, self.v) @ w).astype(float)

    def recursion(self, matrix, right, a, b):
        """w_0 = 0, w_1, .. of w <- w + a_l (right - matrix w) + b_l (w - w_previous)."""
        w, previous = np.zeros_like(right), np.zeros_like(right)
        iterates = [w]
        for a_l, b_l in zip(a, b, strict=True):
            w, previous = w + a_l * (right - matrix @ w) + b_l * (w - previous), w
            iterates.append(w)
        return np.array(iterates)

    def tensors(self):
        return torch.tensor(self.x), torch.tensor(self.y), torch.tensor(self.xq)


def kernel(a, b, v):
    return np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / (2 * v * v))


def system(n, d, v, lam, M=3, seed=0, B_y=1.0, kind="ball"):
    """A prompt with inputs in the unit ball and |y_i| <= B_y; `kind` makes it nasty."""
    rng = np.random.default_rng([seed, n, d])
    x, xq = (
        normal / np.linalg.norm(normal, axis=1, keepdims=True) for normal in (rng.normal(size=(m, d)) for m in (n, M))
    )
    x, xq = x * rng.uniform(size=(n, 1)) ** (1 / d), xq * rng.uniform(size=(M, 1)) ** (1 / d)
    if kind == "equal":
        x = np.repeat(x[:1], n, 0)
    elif kind == "near-duplicates":
        x[1::2] = x[::2][: n // 2] + 1e-8
    elif kind == "antipodes":
        x, xq = np.repeat(-np.eye(1, d), n, 0), np.repeat(np.eye(1, d), M, 0)
    elif kind == "query is a training point":
        xq = x[rng.integers(n, size=M)]
    elif kind == "two clusters":
        x = np.sign(rng.normal(size=(n, 1))) * np.eye(1, d)
    y = rng.uniform(-B_y, B_y, size=n)
    if kind != "ball":
        y = B_y * np.sign(y)
    return System(x, y, xq, v, lam)


KINDS = ["ball", "equal", "near-duplicates", "antipodes", "query is a training point", "two clusters"]


def worked_example():
    """N = 3, d = 1: every number of it was computed by hand or by another program."""
    return System(np.array([[-1.0], [0.0], [1.0]]), np.array([1.0, -1.0, 0.5]), np.array([[0.25]]), 1.0, 0.3)
