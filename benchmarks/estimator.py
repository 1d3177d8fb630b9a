"""TransformerKRR beside KernelRidge and GaussianProcessRegressor: the same numbers within the bound, time and blocks.

python benchmarks/estimator.py
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as oracle
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import StandardScaler

from layerstep.construction import TransformerKRR

ALPHA, LENGTH = 1.0, 3.0
#: What is asked of TransformerKRR beside alpha and the length scale; each with scikit-learn's kernel.
ASKED: dict[str, tuple[dict[str, Any], Any]] = {
    "rbf": ({"gamma": 1 / (2 * LENGTH**2)}, oracle.RBF(LENGTH)),
    "rbf, adaptive": ({"length_scale": LENGTH, "scheme": "adaptive"}, oracle.RBF(LENGTH)),
    "matern, nu = 5/2": ({"kernel": "matern", "nu": 2.5, "length_scale": LENGTH}, oracle.Matern(LENGTH, nu=2.5)),
    "rational-quadratic": ({"kernel": "rational-quadratic", "length_scale": LENGTH}, oracle.RationalQuadratic(LENGTH)),
}


def datasets(larger: int) -> dict[str, tuple[np.ndarray, ...]]:
    """Training inputs and labels, test inputs and labels; inputs standardized, labels of mean 0."""
    found = {"diabetes": load_diabetes(return_X_y=True)}
    found["friedman1"] = make_friedman1(larger + 500, n_features=10, noise=1.0, random_state=0)
    made = {}
    for name, (X, y) in found.items():
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order], y[order]
        n = larger if name == "friedman1" else 342
        scaler = StandardScaler().fit(X[:n])
        made[name] = (scaler.transform(X[:n]), y[:n] - y[:n].mean(), scaler.transform(X[n:]), y[n:] - y[:n].mean())
    return made


def timed(run: Any) -> tuple[Any, float]:
    start = time.process_time()
    return run(), time.process_time() - start


def compare(name: str, X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> list[dict[str, Any]]:
    rows = []
    for what, (asked, kernel) in ASKED.items():
        ours = TransformerKRR(alpha=ALPHA, scale=False, normalize_y=False, error=0.01, **asked)
        _, fitting = timed(lambda ours=ours: ours.fit(X, y))
        (value, bound), predicting = timed(lambda ours=ours: ours.predict(X_new, return_bound=True))
        others = {"GaussianProcessRegressor": GaussianProcessRegressor(kernel, alpha=ALPHA, optimizer=None)}
        if what.startswith("rbf"):
            others["KernelRidge"] = KernelRidge(alpha=ALPHA, kernel="rbf", gamma=1 / (2 * LENGTH**2))
        certificate = ours.network_.certificate
        for other, model in others.items():
            expected, seconds = timed(lambda model=model: model.fit(X, y).predict(X_new))
            apart = np.abs(value - expected)
            rows.append(
                {
                    "data": name,
                    "n": len(y),
                    "d": X.shape[1],
                    "kernel": what,
                    "blocks": certificate.depth,
                    "heads": certificate.heads,
                    "other": other,
                    "largest_difference": float(apart.max()),
                    "largest_bound": float(bound.max()),
                    "outside": int((apart > bound).sum()),
                    "R2": float(1 - ((value - y_new) ** 2).mean() / y_new.var()),
                    "fit_seconds": fitting,
                    "predict_seconds": predicting,
                    "other_seconds": seconds,
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--larger", type=int, default=2000, help="examples of the larger data set")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [row for name, data in datasets(asked.larger).items() for row in compare(name, *data)]
    if asked.json:
        print(json.dumps({"benchmark": "estimator", "rows": rows}))
        return
    print(
        "| data | kernel | blocks | heads | beside | differ by at most | bound | R² | CPU s, fit + predict | theirs |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['data']}, n = {row['n']:,} | {row['kernel']} | {row['blocks']} | {row['heads']} | {row['other']} "
            f"| {row['largest_difference']:.1e} | {row['largest_bound']:.1e} | {row['R2']:.3f} "
            f"| {row['fit_seconds']:.2f} + {row['predict_seconds']:.2f} | {row['other_seconds']:.2f} |"
        )
    print(f"{sum(row['outside'] for row in rows)} predictions outside their bound")


if __name__ == "__main__":
    main()
