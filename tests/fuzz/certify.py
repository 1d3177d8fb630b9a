"""Certified predictions against 80-bit arithmetic: is any farther from exact kernel ridge regression than its bound?

    python tests/fuzz/certify.py --predictions 1000000

Random problems, schemes, units, offsets of inputs and means of labels, ordinary and extreme. Counted are violations of
the bound of each prediction, and of what was promised before it. The reference is a Cholesky factorisation in
numpy.longdouble that shares no code with the library.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np
import torch

from layerstep.construction import TransformerKRR, construct
from layerstep.errors import InputError

Real = np.longdouble
QUERIES = 100


def kernel(x: np.ndarray, z: np.ndarray, v: Any) -> np.ndarray:
    return np.exp(-(((x[:, None] - z[None]) / v) ** 2).sum(-1) / 2)


def solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A^-1 b of a positive definite A: Cholesky by columns, then two triangular solves."""
    n, L, x = len(A), np.tril(A), b.copy()
    for j in range(n):
        L[j:, j] -= L[j:, :j] @ L[j, :j]
        L[j:, j] /= np.sqrt(L[j, j])
    for j in range(n):
        x[j] = (x[j] - L[j, :j] @ x[:j]) / L[j, j]
    for j in reversed(range(n)):
        x[j] = (x[j] - L[j + 1 :, j] @ x[j + 1 :]) / L[j, j]
    return x


def ridge_regression(x: np.ndarray, y: np.ndarray, xq: np.ndarray, v: Any, lam: float) -> np.ndarray:
    """k_q (K + lam I)^-1 y with 64 bits of mantissa."""
    x, y, xq = (array.astype(Real) for array in (x, y, xq))
    return kernel(xq, x, Real(v)) @ solve(kernel(x, x, Real(v)) + Real(lam) * np.eye(len(x), dtype=Real), y)


def points(rng: np.random.Generator, count: int, d: int, spread: float) -> np.ndarray:
    """Points in clusters, on a sphere, normal, or nearly equal."""
    kind = rng.choice(["normal", "sphere", "clusters", "near-duplicates", "equal"], p=[0.4, 0.2, 0.2, 0.1, 0.1])
    x = rng.normal(size=(count, d))
    if kind == "sphere":
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    elif kind == "clusters":
        x = 0.1 * x + rng.choice([-1.0, 1.0], size=(count, 1))
    elif kind == "near-duplicates":
        x[1::2] = x[::2][: count // 2] * (1 + 1e-9 * rng.normal())
    elif kind == "equal":
        x[:] = x[:1]
    return spread * x


def problem(rng: np.random.Generator, n: int, d: int, v: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [n, d], y [n], xq [QUERIES, d], in units of v: near and far queries, offsets, all units of labels."""
    x = points(rng, n, d, 10 ** rng.uniform(-1.5, 1))
    xq = points(rng, QUERIES, d, 10 ** rng.uniform(-1.5, 1))
    if rng.random() < 0.25:  # two groups of examples, and of queries, far from each other
        gap = 10 ** rng.uniform(1, 7)
        x[n // 2 :, 0] += gap
        xq[::2, 0] += gap
    copies = rng.integers(QUERIES, size=QUERIES // 10)
    xq[copies] = x[rng.integers(n, size=len(copies))]
    far = rng.integers(QUERIES, size=QUERIES // 10)
    xq[far] *= 10 ** rng.uniform(0, 7, size=(len(far), 1))
    offset = rng.choice([0.0, 1.0, 1e3, 1e6], p=[0.5, 0.2, 0.15, 0.15]) * rng.normal(size=d)
    y = rng.choice([rng.normal(size=n), rng.choice([-1.0, 1.0], size=n), np.sin(x.sum(1)), 0.1 * rng.normal(size=n)])
    return (x + offset) * v, y, (xq + offset) * v


def network_for(rng: np.random.Generator, d: int, N: int, v: float, unit: float) -> Any:
    """A network of some scheme, precision and guarantee; depths that take long are not asked for."""
    dtype = rng.choice([torch.float64, torch.float32, torch.bfloat16, torch.float16], p=[0.75, 0.15, 0.05, 0.05])
    lam = N * 10 ** rng.uniform(-5, 2)
    scheme = str(rng.choice(["compact", "exact", "paper"], p=[0.5, 0.4, 0.1]))
    options: dict[str, Any] = {"B_y": unit * (1 if rng.random() < 0.8 else 0.1)}
    if scheme == "paper":
        lam = N * 10 ** rng.uniform(-0.5, 0.5)
        options = {"B_y": 2.0, "B_x": 2.0 * v / 3, "eps": 10 ** rng.uniform(-2, -0.5), "c": None}
    elif rng.random() < 0.7:
        options["error"] = unit * 10 ** -rng.uniform(0, 9)
        if (N / lam) ** 0.5 > 30:
            options["error"] = max(options["error"], 1e-2 * unit)
    else:
        options["L"] = int(10 ** rng.uniform(0, 2.3))
    if scheme == "exact" and rng.random() < 0.5:
        options |= {"heads": 1, "rho": float(rng.choice([0.0, lam, 1.0]))}
    if scheme in ("compact", "exact") and rng.random() < 0.2:
        options["eta"] = 1.0 / (N + lam) if scheme == "compact" else 1 / (1 + lam)
        options["L"] = (options.pop("error", None) and 50) or options.get("L", 50)
    return construct(d, N, v, lam, scheme=scheme, dtype=dtype, **options)


def adaptive_network(rng: np.random.Generator, d: int, N: int, v: float, _unit: float) -> Any:
    """An adaptive network, of an interval that fits the prompts or does not."""
    dtype = rng.choice([torch.float64, torch.float32], p=[0.8, 0.2])
    lam = N * 10 ** rng.uniform(-5, 2)
    options = {"L": int(10 ** rng.uniform(0, 2)), "degree": int(rng.integers(1, 3)), "refresh": None}
    if rng.random() < 0.3:
        options["refresh"] = True
    return construct(d, N, v, lam, scheme="adaptive", dtype=dtype, hi=lam + N * 10 ** rng.uniform(-3, 0), **options)


class Tally:
    """Violations, and the prediction that came nearest to its bound."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.tightest = {"bound": 0.0, "promise": 0.0, "inside": 0.0}
        self.worst: dict[str, Any] = {}

    def add(self, what: str, error: np.ndarray, bound: np.ndarray, case: Any) -> None:
        ratio = np.divide(error, bound, out=np.where(error > 0, np.inf, 0.0).astype(Real), where=bound > 0)
        self.counts[what] += len(error)
        self.counts[f"{what}: violations"] += int((~(error <= bound)).sum())
        if not ratio.max() <= self.tightest[what]:
            self.tightest[what], self.worst[what] = float(ratio.max()), case


def of_construction(rng: np.random.Generator, tally: Tally, seed: int, make: Any = network_for) -> None:
    d, N = int(rng.integers(1, 7)), int(rng.integers(1, 41))
    v = 10 ** rng.uniform(-3, 3)
    unit = 10 ** float(rng.choice([0.0, rng.uniform(-6, 6), rng.uniform(-150, 150)], p=[0.5, 0.3, 0.2]))
    try:
        network = make(rng, d, N, v, unit)
    except InputError as error:
        tally.counts[f"refused: {str(error).split(' = ')[0]}"] += 1
        return
    flexible = network.scheme.flexible
    for _ in range(3):
        n = int(rng.integers(max(1, N // 2), N + 1)) if flexible else N
        x, y, xq = problem(rng, n, d, v)
        if not flexible:
            centred = (x - x.mean(0), xq - x.mean(0))
            x, xq = (0.3 * v * z / np.linalg.norm(z, axis=1, keepdims=True).clip(v) for z in centred)
            y, xq = y.clip(-2, 2), xq[:10]
        else:
            y = unit * y
        try:
            answer = network.predict(x, y, xq)
        except InputError as error:
            tally.counts[f"refused: {str(error).split(' = ')[0][:40]}"] += 1
            continue
        exact = ridge_regression(x, y, xq, network.problem.kernel.v, network.problem.lam)
        error = np.abs(answer.value.numpy().astype(Real) - exact)
        case = (seed, repr(network), str(network.dtype), n)
        tally.add("bound", error, answer.bound.numpy(), case)
        if answer.inside is not None:
            # Up to rounding and the sinks' leaks. More than what predicting 0 has means that it failed.
            size = np.linalg.norm(y / unit) / network.problem.lam**0.5
            slack = size * (1e-5 if network.dtype == torch.float64 else 2e-2)
            inside = answer.inside.numpy() / unit
            tally.add("inside", error / unit, np.where(inside < size / 2, inside + slack, np.inf), case)
            tally.counts["failed, and said so"] += int((~(inside < size / 2)).sum())
        if answer.promised is not None:
            tally.add("promise", error, np.full(len(error), answer.promised), case)
            tally.counts["bound above promise"] += int((answer.bound > answer.promised).sum())


def of_estimator(rng: np.random.Generator, tally: Tally, seed: int) -> None:
    d, n = int(rng.integers(1, 7)), int(rng.integers(2, 41))
    x, y, xq = problem(rng, n, d, 10 ** rng.uniform(-3, 3))
    y = y * 10 ** rng.uniform(-6, 6) + float(rng.choice([0.0, 1.0, 1e6], p=[0.3, 0.3, 0.4])) * rng.normal()
    estimator = TransformerKRR(
        v=10 ** rng.uniform(-1, 1),
        lam=10 ** rng.uniform(-2, 1),
        scheme=str(rng.choice(["compact", "exact"])),
        error=10 ** -rng.uniform(0, 9),
        scale=bool(rng.random() < 0.7),
    )
    try:
        value, bound = estimator.fit(x, y).predict(xq, return_bound=True)
    except InputError as error:
        tally.counts[f"refused: {str(error).split(' = ')[0]}"] += 1
        return
    labels = y.astype(Real)
    mean = labels.sum() / n
    scaled = (array.astype(Real) / estimator.x_scale_.astype(Real) for array in (x, xq))
    z, zq = scaled
    exact = mean + ridge_regression(z, labels - mean, zq, estimator.v, estimator.lam)
    error = np.abs(value.astype(Real) - exact)
    tally.add("bound", error, bound, (seed, repr(estimator), "mean", float(mean)))


def certify(predictions: int, seed: int = 0) -> Tally:
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while tally.counts["bound"] < predictions:
            rng = np.random.default_rng(seed)
            if seed % 4 == 3:
                of_construction(rng, tally, seed, adaptive_network)
            else:
                (of_estimator if seed % 3 == 2 else of_construction)(rng, tally, seed)
            seed += 1
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--predictions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if np.finfo(Real).nmant < 63:
        print("numpy.longdouble has no more digits than float64 here: run this on x86.")
        return 2
    torch.set_num_threads(1)
    start = time.perf_counter()
    tally = certify(asked.predictions, asked.seed)
    found = {"seconds": round(time.perf_counter() - start, 1), **tally.counts}
    where = {what: str(case) for what, case in tally.worst.items()}
    print(json.dumps(found | {"tightest": tally.tightest, "where": where}, indent=1))
    return int(any(count for name, count in tally.counts.items() if "violations" in name))


if __name__ == "__main__":
    sys.exit(main())
