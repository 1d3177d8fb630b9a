"""Certified predictions against 80-bit arithmetic: is any farther from exact kernel ridge regression than its bound?

    python tests/fuzz/certify.py --predictions 1000000

Random problems, schemes, kernels, units, offsets of inputs and means of labels, ordinary and extreme. Counted are
violations of the bound of each prediction, and of what was promised before it. The reference is a Cholesky
factorisation in numpy.longdouble that shares no code with the library.
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

from layerstep.construction import GaussianMixture, Matern, RationalQuadratic, TransformerKRR, construct
from layerstep.errors import InputError

Real = np.longdouble
QUERIES = 100


def profile(kind: Any, t: np.ndarray) -> np.ndarray:
    """The kernel at t = |x - x'|² / v²: Gaussian where `kind` is None, else as scikit-learn defines it."""
    if kind is None:
        return np.exp(-t / 2)
    if isinstance(kind, GaussianMixture) and kind.target is None:
        both = zip(kind.weights, kind.widths, strict=True)
        return sum(Real(weight) * np.exp(-t / Real(width) ** 2 / 2) for weight, width in both)
    kind = getattr(kind, "target", None) or kind
    if isinstance(kind, RationalQuadratic):
        return np.exp(-Real(kind.alpha) * np.log1p(t / (2 * Real(kind.alpha))))
    s = np.sqrt(2 * Real(kind.nu) * t)
    return {0.5: 1, 1.5: 1 + s, 2.5: 1 + s + s * s / 3}[kind.nu] * np.exp(-s)


def kernel(x: np.ndarray, z: np.ndarray, v: Any, kind: Any) -> np.ndarray:
    return profile(kind, (((x[:, None] - z[None]) / v) ** 2).sum(-1))


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


def ridge_regression(x: np.ndarray, y: np.ndarray, xq: np.ndarray, v: Any, lam: float, kind: Any = None) -> np.ndarray:
    """k_q (K + lam I)^-1 y with 64 bits of mantissa; v is one number or one for each coordinate.

    Inputs as they were given: differences of numbers of float64 are exact here, to one rounding, those of quotients
    have lost the digits that are common to all.
    """
    x, y, xq, v = (np.asarray(array).astype(Real) for array in (x, y, xq, v))
    K = kernel(x, x, v, kind)
    return kernel(xq, x, v, kind) @ solve(K + Real(lam) * np.eye(len(x), dtype=Real), y)


def examples(rng: np.random.Generator, fewest: int) -> int:
    """How many: up to 40 as in the paper, now and then up to 200."""
    return int(rng.integers(fewest, 41) if rng.random() < 0.85 else rng.integers(41, 201))


def points(rng: np.random.Generator, count: int, d: int, spread: float) -> np.ndarray:
    """Points in clusters, on a sphere, normal, nearly equal, opposite, nearly on a line, or far from most others."""
    kinds = ["normal", "sphere", "clusters", "near-duplicates", "equal", "antipodes", "plane", "heavy tails"]
    kind = rng.choice(kinds, p=[0.25, 0.15, 0.15, 0.1, 0.1, 0.05, 0.1, 0.1])
    x = rng.normal(size=(count, d))
    if kind == "sphere":
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    elif kind == "clusters":
        x = 0.1 * x + rng.choice([-1.0, 1.0], size=(count, 1))
    elif kind == "near-duplicates":
        x[1::2] = x[::2][: count // 2] * (1 + 1e-9 * rng.normal())
    elif kind == "equal":
        x[:] = x[:1]
    elif kind == "antipodes":
        x[1::2] = -x[::2][: count // 2]
    elif kind == "plane":
        x[:, 1:] *= 10 ** -rng.uniform(1, 8)
    elif kind == "heavy tails":
        x = rng.standard_cauchy(size=(count, d)).clip(-1e5, 1e5)
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
    offset = rng.choice([0.0, 1.0, 1e3, 1e6, 1e8], p=[0.45, 0.2, 0.15, 0.1, 0.1]) * rng.normal(size=d)
    y = rng.choice([rng.normal(size=n), rng.choice([-1.0, 1.0], size=n), np.sin(x.sum(1)), 0.1 * rng.normal(size=n)])
    return (x + offset) * v, y, (xq + offset) * v


def kernel_for(rng: np.random.Generator, d: int, v: float) -> tuple[dict[str, Any], Any, Any]:
    """Arguments of a kernel that heads add up to, the kernel that is meant, and length scales, one or a number each."""
    nus, alpha = rng.choice([0.5, 1.5, 2.5]), float(rng.choice([0.5, 1.0, 10 ** rng.uniform(-0.5, 1)]))
    meant: Any = Matern(nu=float(nus)) if rng.random() < 0.6 else RationalQuadratic(alpha=alpha)
    near = 10 ** -rng.uniform(1, 4)
    if rng.random() < 0.6:
        asked: dict[str, Any] = {"kernel": meant, "kernel_error": near if rng.random() < 0.5 else None}
        asked["B_x"] = v * 10 ** rng.uniform(-0.5, 1) if rng.random() < 0.5 else None
    else:  # of the user's: the mixture itself, or a kernel that it is near and that the network does not know
        fit = GaussianMixture.fit(meant, error=near)
        known = float(rng.choice([0.0, fit.error]))
        asked = {"kernel": GaussianMixture(weights=fit.weights, widths=fit.widths, error=known)}
        meant = meant if known else asked["kernel"]
    return asked, meant, v if rng.random() < 0.7 else v * 10 ** rng.uniform(-0.5, 0.5, size=d)


def network_for(rng: np.random.Generator, d: int, N: int, v: float, unit: float) -> tuple[Any, Any, Any]:
    """A network, its length scale and its kernel: any scheme, precision and guarantee, but no depth that takes long."""
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
    return construct(d, N, v, lam, scheme=scheme, dtype=dtype, **options), v, None


def mixture_network(rng: np.random.Generator, d: int, N: int, v: float, unit: float) -> tuple[Any, Any, Any]:
    """The same for another kernel, a sum of Gaussians."""
    asked, meant, scales = kernel_for(rng, d, v)
    dtype = rng.choice([torch.float64, torch.float32], p=[0.8, 0.2])
    lam = N * 10 ** rng.uniform(-3, 2)
    options: dict[str, Any] = {"B_y": unit, "heads": rng.choice([None, 1, 3])}
    if rng.random() < 0.5:
        options["error"] = unit * (N / lam) ** 0.5 * 10 ** -rng.uniform(0, 5)
    else:
        options["L"] = int(10 ** rng.uniform(0, 1.8))
    return construct(d, N, scales, lam, scheme="compact", dtype=dtype, **options, **asked), scales, meant


def adaptive_network(rng: np.random.Generator, d: int, N: int, v: float, _unit: float) -> tuple[Any, Any, Any]:
    """An adaptive network, of an interval that fits the prompts or does not."""
    asked, meant, scales = kernel_for(rng, d, v) if rng.random() < 0.3 else ({}, None, v)
    dtype = rng.choice([torch.float64, torch.float32], p=[0.8, 0.2])
    lam = N * 10 ** rng.uniform(-5, 2)
    options = {"L": int(10 ** rng.uniform(0, 2)), "degree": int(rng.integers(1, 4)), "refresh": None}
    if rng.random() < 0.3:
        options["refresh"] = True
    elif rng.random() < 0.2 and dtype == torch.float64:
        options["heads"] = int(rng.integers(1, 4))
    hi = lam + N * 10 ** rng.uniform(-3, 0)
    return construct(d, N, scales, lam, scheme="adaptive", dtype=dtype, hi=hi, **options, **asked), scales, meant


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
    d, N = int(rng.integers(1, 7)), examples(rng, 1)
    v = 10 ** rng.uniform(-3, 3)
    unit = 10 ** float(rng.choice([0.0, rng.uniform(-6, 6), rng.uniform(-150, 150)], p=[0.5, 0.3, 0.2]))
    try:
        network, scales, meant = make(rng, d, N, v, unit)
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
        exact = ridge_regression(x, y, xq, scales, network.problem.lam, meant)
        error = np.abs(answer.value.numpy().astype(Real) - exact)
        case = (seed, repr(network), str(network.dtype), n)
        tally.add("bound", error, answer.bound.numpy(), case)
        if answer.inside is not None:
            # Up to rounding, the sinks' leaks and what Gaussians miss of the kernel, which the network does not see.
            # More than what predicting 0 has means that it failed.
            root = (N / network.problem.lam) ** 0.5
            missed = network.problem.kernel.beyond * root * (1 + root / 2)
            size = np.linalg.norm(y / unit) / network.problem.lam**0.5
            z = np.concatenate([x, xq]) / scales
            of_logit = torch.finfo(network.dtype).eps * np.square(z - z[:n].mean(0)).sum(1).max()
            slack = size * (missed + (2e-2 if network.scheme.refresh else 1e-5) + 10 * root**2 * of_logit)
            inside = answer.inside.numpy() / unit
            tally.add("inside", error / unit, np.where(inside < size / 2, inside + slack, np.inf), case)
            tally.counts["failed, and said so"] += int((~(inside < size / 2)).sum())
        if answer.promised is not None:
            tally.add("promise", error, np.full(len(error), answer.promised), case)
            tally.counts["bound above promise"] += int((answer.bound > answer.promised).sum())


def estimator_for(rng: np.random.Generator, d: int, n: int) -> tuple[TransformerKRR, Any]:
    """An estimator and its kernel."""
    asked: dict[str, Any] = {
        "scheme": str(rng.choice(["compact", "exact"])),
        "error": 10 ** -rng.uniform(0, 9),
        "scale": bool(rng.random() < 0.7),
        "normalize_y": bool(rng.random() < 0.8),
    }
    length, lam, meant = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-2, 1), None
    if rng.random() < 0.3:
        nu = float(rng.choice([0.5, 1.5, 2.5]))
        meant = Matern(nu=nu) if rng.random() < 0.6 else RationalQuadratic()
        asked |= {"kernel": "matern", "nu": nu} if isinstance(meant, Matern) else {"kernel": "rational-quadratic"}
        asked |= {"scheme": "compact", "error": 10 ** -rng.uniform(0, 3)}
    if rng.random() < 0.2:
        asked |= {"scheme": "adaptive", "L": int(rng.integers(5, 40))}
    if rng.random() < 0.3:
        asked["length_scale"] = (10 ** rng.uniform(-1, 1, size=d)).tolist()
    else:
        asked[str(rng.choice(["v", "length_scale"]))] = length
    asked[str(rng.choice(["lam", "alpha"]))] = lam
    return TransformerKRR(**asked), meant


def of_estimator(rng: np.random.Generator, tally: Tally, seed: int) -> None:
    d, n = int(rng.integers(1, 7)), examples(rng, 2)
    x, y, xq = problem(rng, n, d, 10 ** rng.uniform(-3, 3))
    y = y * 10 ** rng.uniform(-6, 6) + float(rng.choice([0.0, 1.0, 1e6], p=[0.3, 0.3, 0.4])) * rng.normal()
    estimator, meant = estimator_for(rng, d, n)
    try:
        value, bound = estimator.fit(x, y).predict(xq, return_bound=True)
    except InputError as error:
        tally.counts[f"refused: {str(error).split(' = ')[0]}"] += 1
        return
    labels = y.astype(Real)
    mean = labels.sum() / n if estimator.normalize_y else Real(0)
    length = estimator.v if estimator.length_scale is None else estimator.length_scale
    lam = estimator.lam if estimator.alpha is None else estimator.alpha
    scales = np.asarray(length, dtype=Real) * estimator.x_scale_.astype(Real)
    exact = mean + ridge_regression(x, labels - mean, xq, scales, lam, meant)
    error = np.abs(value.astype(Real) - exact)
    tally.add("bound", error, bound, (seed, repr(estimator), "mean", float(mean)))


def certify(predictions: int, seed: int = 0) -> Tally:
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while tally.counts["bound"] < predictions:
            rng = np.random.default_rng(seed)
            makers = (network_for, adaptive_network, mixture_network, network_for)
            try:
                if seed % 3 == 2:
                    of_estimator(rng, tally, seed)
                else:
                    of_construction(rng, tally, seed, makers[seed % 4])
            except Exception as error:  # as wrong as a bound that is violated; the search goes on
                tally.counts[f"violations: {type(error).__name__} at seed {seed}, {str(error)[:80]}"] += 1
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
