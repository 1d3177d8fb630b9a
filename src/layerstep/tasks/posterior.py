"""What the best predictor answers: the posterior mean, which is exact kernel ridge regression."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require


def posterior_means(gram: Float[Tensor, "B M M"], y: Float[Tensor, "B M"], lam: float) -> Float[Tensor, "B M"]:
    """k_n · (K_n + lam I)⁻¹ y at x_{n+1} from the first n pairs, for n = 0..N, from one Cholesky factor.

    With L Lᵀ = K + lam I over all points, row n+1 of L begins with L_n⁻¹ k_n: the answer is ((L - diag L) L⁻¹ y)_{n+1}.
    """
    L = cholesky(gram, lam)
    z = torch.linalg.solve_triangular(L, y.unsqueeze(-1), upper=False)
    return (L.tril(-1) @ z).squeeze(-1)


def coefficients(
    K: Float[Tensor, "*batch n n"], y: Float[Tensor, "*batch n m"], lam: float
) -> Float[Tensor, "*batch n m"]:
    """w = (K + lam I)⁻¹ y, of several labels at once: k · w is exact kernel ridge regression."""
    return torch.cholesky_solve(y, cholesky(K, lam))


def cholesky(K: Float[Tensor, "*batch n n"], lam: float) -> Float[Tensor, "*batch n n"]:
    """The factor L of K + lam I = L Lᵀ; a ridge that rounding swallows is an InputError."""
    L, failed = torch.linalg.cholesky_ex(ridge(K, lam))
    require(
        not bool(failed.any()),
        "lam",
        f"{lam:.3g}",
        f"large enough that K + lam I is positive definite in {K.dtype}",
        "Raise sigma, or use float64.",
    )
    return L


def ridge(K: Float[Tensor, "*batch n n"], lam: float) -> Float[Tensor, "*batch n n"]:
    """K + lam I."""
    return K + lam * torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
