"""Which name of the literature is which solver here, and which iterations are one and the same.

K = XXᵀ are the inner products of the examples, S = XᵀX + lam I, θ = Xᵀw. tests/solvers/test_in_weights.py checks every
"equal" against a recursion in θ that forms no kernel matrix.
"""

from __future__ import annotations

#: name in the literature, name here, what it is in θ and in w, other names for the same iterates.
LITERATURE: tuple[tuple[str, str, str, str], ...] = (
    (
        "gradient descent (Akyürek, von Oswald, Fu, ...)",
        "gd-weights",
        "θ += eta (Xᵀ(y - Xθ) - lam θ)",
        "equal: richardson-plain. Not gd, which descends in w",
    ),
    ("gradient descent, one step size for all n", "gd-weights-fixed", "the same, eta of the longest prefix", ""),
    (
        "gradient descent, one step size for all prompts",
        "GradientDescentInWeights(eta=...)",
        "the same, eta given",
        "equal: Richardson(preconditioner='none', eta=...)",
    ),
    ("GD++ (von Oswald 2022)", "gd++", "x_i -= gamma XᵀX x_i beside y_i -= eta ...", "a filter on the spectrum of K"),
    (
        "preconditioned gradient descent (Ahn, Gatmiry)",
        "Preconditioned(P=...)",
        "θ += eta (P Xᵀ(y - Xθ) - lam θ)",
        "equal: gd-weights with the kernel x'Pz",
    ),
    (
        "iterative Newton (Fu 2023, in print)",
        "newton",
        "M += M (I - SM), M = S / eig_max(S)²",
        "gd at step 2^t without a ridge: gd has m (m + lam) where Newton has (m + lam)²",
    ),
    ("iterative Newton (Fu 2023, in code)", "newton-frobenius", "the same from M = S / |S²|_F", ""),
    (
        "Newton-Schulz from a multiple of I",
        "newton-identity",
        "the same from M = I / eig_max(S)",
        "equal: gd-weights at step 2^t, newton-schulz at t + 1",
    ),
    ("conjugate gradients, CGLS", "cg-weights", "CG on S θ = Xᵀy", "not cg, which is CG on (K + lam I) w = y"),
    ("Nesterov, momentum", "nesterov-weights", "accelerated descent on S", "not nesterov, which descends in w"),
    ("heavy ball", "heavy-ball-weights", "Polyak's momentum on S", "not heavy-ball, which has row sums"),
    ("Chebyshev", "chebyshev-weights", "semi-iteration on S", "not chebyshev, which has row sums"),
    (
        "Kaczmarz, one sweep per step",
        "kaczmarz",
        "onto one equation after another",
        "equal: Gauss-Seidel on K + lam I",
    ),
    (
        "online gradient descent, LMS, one pass of SGD",
        "online-gd",
        "θ += eta x_i (y_i - x_i·θ) once, path in eta",
        "equal: (stril(K) + I / eta) w = y",
    ),
    ("gradient descent under a causal mask (Ding)", "causal-gd", "w_i sees j <= i only", "tril(K) in place of K"),
    (
        "recursive least squares, mesa layer",
        "recursive",
        "ridge regression on the first t examples",
        "equal: the rank-one updates of P = S⁻¹",
    ),
    ("ridge path, OLS at its end", "ridge", "(XᵀX + I / t)⁻¹ Xᵀy", "exact at t = 1 / lam"),
    (
        "dMMSE over a pool of tasks (Raventós)",
        "DiscreteMMSE(pool=...)",
        "posterior mean, path in 1 / sigma²",
        "not linear in the labels",
    ),
    ("nearest neighbours", "knn", "ridge regression on the t nearest examples", "nearest in |x - z|"),
    ("softmax attention that solves nothing", "softmax-average", "sum_j softmax(t x·x_j) y_j", ""),
    ("shrinkage", "shrink", "min(t / 100, 1) times ridge regression", ""),
)


def literature() -> str:
    """The table, in Markdown."""
    head = ["in the literature", "here", "what it is", "the same iterates, or not"]
    rows = [head, ["---"] * 4, *map(list, LITERATURE)]
    return "\n".join("| " + " | ".join(_code(cell, i) for i, cell in enumerate(row)) + " |" for row in rows)


def _code(cell: str, column: int) -> str:
    return f"`{cell}`" if column == 1 and cell not in ("here", "---") else cell.replace("|", "\\|")
