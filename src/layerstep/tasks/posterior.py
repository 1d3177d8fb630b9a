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


def linear_means(x: Float[Tensor, "B M d"], y: Float[Tensor, "B M"], lam: float) -> Float[Tensor, "B M"]:
    """x_{n+1} · θ_n, θ_n = (XᵀX + lam I)⁻¹ Xᵀy from the first n pairs, n = 0..N; without a ridge that of minimum norm.

    From the singular values of X, as numpy.linalg.lstsq: those that are rounding count as 0, so that the answer is a
    continuous function of lam down to 0.
    """
    means = torch.zeros_like(y)
    for n in range(1, x.shape[1]):
        U, s, Vh = torch.linalg.svd(x[:, :n], full_matrices=False)
        cut = max(n, x.shape[2]) * torch.finfo(x.dtype).eps * s[:, :1]
        inverse = torch.where(s > cut, 1 / (s + lam / s), 0)  # squares of huge ones are infinite
        means[:, n] = torch.einsum("bd,bkd,bk,bnk,bn->b", x[:, n], Vh, inverse, U, y[:, :n])
    return means


#: Without noise the likelihood is a limit: that of a noise this small, as a share of E y².
NO_NOISE = 1e-10


def sparse_means(x: Float[Tensor, "B M d"], y: Float[Tensor, "B M"], lam: float, k: int) -> Float[Tensor, "B M"]:
    """E[x_{n+1} · θ | n pairs], n = 0..N: k coordinates of θ, any with equal probability, are N(0, 1), the others 0.

    Given its support, θ is Gaussian: each support's recursive least squares, weighted by the likelihood of the labels
    so far, the product of those of y_i given what came before.
    """
    supports = torch.combinations(torch.arange(x.shape[2], device=x.device), k)
    lam = max(lam, NO_NOISE * float(x.square().mean()) * k, torch.finfo(x.dtype).tiny)
    theta = x.new_zeros(len(x), len(supports), k)
    P = torch.eye(k).to(x).expand(len(x), len(supports), k, k)  # covariance of θ
    likelihood, means = x.new_zeros(len(x), len(supports)), torch.empty_like(y)
    for n in range(x.shape[1]):
        q = x[:, n][:, supports]
        predicted = (q * theta).sum(-1)
        means[:, n] = (likelihood.softmax(1) * predicted).sum(1)
        Pq = (P @ q.unsqueeze(-1)).squeeze(-1)
        variance = (q * Pq).sum(-1) + lam
        missed = y[:, n, None] - predicted
        likelihood = likelihood - (missed.square() / variance + variance.log()) / 2
        theta = theta + Pq * (missed / variance).unsqueeze(-1)
        P = P - Pq.unsqueeze(-1) * (Pq / variance.unsqueeze(-1)).unsqueeze(-2)
    return means


def pool_means(
    x: Float[Tensor, "B M d"], y: Float[Tensor, "B M"], lam: float, pool: Float[Tensor, "P d"]
) -> Float[Tensor, "B M"]:
    """E[x_{n+1} · θ | n pairs], n = 0..N, θ any of the pool with equal probability (dMMSE)."""
    f = torch.einsum("bmd,pd->bpm", x, pool)
    lam = max(lam, NO_NOISE * float(f.square().mean()), torch.finfo(x.dtype).tiny)
    return (_before((f - y[:, None]).square() / (-2 * lam)).softmax(1) * f).sum(1)


def _before(values: Float[Tensor, "B C M"]) -> Float[Tensor, "B C M"]:
    """Sums of the first n values, n = 0..N."""
    return torch.nn.functional.pad(values[..., :-1].cumsum(-1), (1, 0))
