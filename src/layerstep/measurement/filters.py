"""Two readings of a path that name no family: how the step grows with the context, and which spectral filter it is.

A fixed-coefficient solver predicts sum_k φ(s_k) c_k, c_k the components of exact KRR along the eigenvectors of the
system. Its filter φ says what it does to each; Richardson is 1 - exp(-s τ), gradient descent 1 - exp(-(s τ)²).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.decision import Judgement
from layerstep.measurement.evidence import Evidence
from layerstep.solvers.system import Batch, System

RESAMPLES = 100
POWERS = (0.5, 0.75, 1.0, 1.5, 2.0)
INVERSE_M = (0.0, 0.25, 0.5, 1.0)
NORMALISATIONS = ("row sums", "largest eigenvalue", "fixed")
BINS = torch.logspace(-7, 0.05, 128, dtype=torch.float64)  # of s, on which filters are evaluated


@dataclass(frozen=True, eq=False, kw_only=True)
class Slopes:
    """g [L] = slope of log max(t*, .5) on log n, t*(l, n) the best step of preconditioned Richardson at that n alone.

    0 for a normalised iteration, about 1 for a fixed step or a ridge. A wrong bandwidth imitates the second, so g
    is given at the fitted v and at its two neighbours: v [3], g [3, L], sd [3, L] by bootstrap.
    """

    v: Float[Tensor, "3"]
    g: Float[Tensor, "3 L"]
    sd: Float[Tensor, "3 L"]


def slopes(evidence: Evidence, judgement: Judgement, *, seed: int) -> Slopes | None:
    """g at the fitted bandwidth and its neighbours; None with fewer than three long contexts."""
    library = evidence.library
    centre = library.candidates[judgement.fit("richardson").candidates[0]]
    grid = sorted({c.v for c in library.candidates})
    place = min(max(grid.index(centre.v), 1), len(grid) - 2)
    near = [library.find("richardson", grid[place + step]) for step in (-1, 0, 1)]
    n = torch.tensor(library.contexts, dtype=torch.float64)
    long = n >= 0.15 * n[-1]
    if int(long.sum()) < 3:
        return None
    log_n = n[long].log() - n[long].log().mean()
    away = (evidence.values - library.krr).float()
    draws = torch.from_numpy(_counts(away.shape[1], seed)).float()
    g, sd = [], []
    for candidate in near:
        steps = torch.tensor(candidate.family.steps, dtype=torch.float64).clamp_min(0.5).log()
        table = library.table[candidate.rows]
        loss = torch.stack([(layer - table).square()[..., long] for layer in away])  # [L, T, B, n]
        sums = torch.einsum("rb,ltbn->rltn", torch.cat([torch.ones_like(draws[:1]), draws]), loss)
        slope = steps[sums.argmin(2)] @ log_n / log_n.square().sum()  # [R, L]
        g.append(slope[0])
        sd.append(slope[1:].std(0))
    return Slopes(v=torch.tensor([c.v for c in near], dtype=torch.float64), g=torch.stack(g), sd=torch.stack(sd))


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterFit:
    """φ(s) = 1 - (1 + (s τ)^p / m)^-m, τ free per layer; (p, 1/m) = (1, 0) Richardson, (2, 0) GD, (1, 1) ridge.

    The best of three normalisations of s; `support` is the share of bootstrap resamples that choose it. U: mean over
    usable layers of what the fit leaves. `free` [L]: what one free coefficient per spectral band leaves.
    """

    normalisation: str
    p: float
    inverse_m: float
    v: float
    support: float
    U: float
    tau: Float[Tensor, "L"]
    free: Float[Tensor, "L"]


def fit_filter(evidence: Evidence, judgement: Judgement, *, seed: int) -> FilterFit:
    """The best filter over usable layers, with v free over the values fitted by the families nearest to the path."""
    usable = torch.isin(evidence.layers, torch.tensor(judgement.usable, dtype=torch.float64))
    values, total = evidence.values[usable], evidence.distance[usable]
    shapes = list(itertools.product(POWERS, INVERSE_M))
    tau = torch.logspace(-1, 7, 60, dtype=torch.float64)
    table = torch.stack([_filter(BINS, tau, p, inverse) for p, inverse in shapes]).flatten(0, 1).T  # [bins, F tau]
    best = None
    for v in sorted({v for fit in judgement.fits[:6] for v in fit.v}):
        for name in NORMALISATIONS:
            components = _components(evidence, v, name)  # [B, C, bins]
            path = components @ table  # [B, C, F tau]
            square = torch.einsum("bcf,bcf->bf", path, path)
            cross = torch.stack([torch.einsum("bc,bcf->bf", layer, path) for layer in values])
            loss = (values.square().sum(-1).unsqueeze(-1) - 2 * cross + square).clamp_min(0)  # [L, B, F tau]
            U = loss.sum(1).unflatten(-1, (len(shapes), len(tau))) / total.sum(1)[:, None, None]
            mean = U.amin(-1).mean(0)
            if best is None or mean.min() < best[0]:
                best = (float(mean.min()), v, name, int(mean.argmin()), U, components)
    assert best is not None
    U_best, v, name, shape, U, components = best
    support = _support(evidence, values, total, v, shapes, tau, table, name, seed)
    p, inverse = shapes[shape]
    return FilterFit(
        normalisation=name,
        p=p,
        inverse_m=inverse,
        v=v,
        support=support,
        U=U_best,
        tau=tau[U[:, shape].argmin(-1)],
        free=_free_bands(components, values, total),
    )


def _support(evidence: Evidence, values, total, v: float, shapes, tau, table, chosen: str, seed: int) -> float:
    """Share of resamples of the sequences in which the chosen normalisation is still the best at this v."""
    draws = torch.from_numpy(_counts(values.shape[1], seed))
    scores = []
    for name in NORMALISATIONS:
        path = _components(evidence, v, name) @ table
        square = torch.einsum("bcf,bcf->bf", path, path)
        U = []
        for layer, distance in zip(values, total, strict=True):
            loss = layer.square().sum(-1, keepdim=True) - 2 * torch.einsum("bc,bcf->bf", layer, path) + square
            U.append((draws @ loss).unflatten(-1, (len(shapes), len(tau))).amin(-1) / (draws @ distance)[:, None])
        scores.append(torch.stack(U).mean(0).amin(-1))
    winner = torch.stack(scores).argmin(0)
    return float((winner == NORMALISATIONS.index(chosen)).double().mean())


def _filter(s: Float[Tensor, "K"], tau: Float[Tensor, "T"], p: float, inverse_m: float) -> Float[Tensor, "T K"]:
    z = (s * tau.unsqueeze(-1)) ** p
    return -torch.expm1(-z) if inverse_m == 0 else 1 - (1 + z * inverse_m) ** (-1 / inverse_m)


def _components(evidence: Evidence, v: float, name: str) -> Float[Tensor, "B C K"]:
    """The components c_k of KRR gathered on the bins of log s, split linearly between the two nearest."""
    library = evidence.library
    batch = Batch.of(library.prompts, replace(library.task, v=v))
    columns = [_binned(*_spectrum(batch.system(n), name)) for n in library.contexts]
    return torch.stack(columns, dim=1)


def _spectrum(system: System, name: str) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B n"]]:
    """(s, c): normalised eigenvalues and the components of exact KRR."""
    if name == "row sums":
        return system.row_sum.values, system.row_sum.weights / system.row_sum.values
    values = system.plain.values + system.lam
    largest = values[:, -1:] if name == "largest eigenvalue" else system.batch.eig_max.unsqueeze(-1)
    return values / largest, system.plain.weights / values


def _binned(s: Float[Tensor, "B n"], c: Float[Tensor, "B n"]) -> Float[Tensor, "B K"]:
    low, high = BINS[0].log(), BINS[-1].log()
    place = ((s.log() - low) / (high - low) * (len(BINS) - 1)).clamp(0, len(BINS) - 1.001)
    left = place.long()
    share = place - left
    out = torch.zeros(len(s), len(BINS), dtype=s.dtype)
    return out.scatter_add(1, left, c * (1 - share)).scatter_add(1, left + 1, c * share)


def _free_bands(components: Float[Tensor, "B C K"], values: Float[Tensor, "L B C"], total) -> Float[Tensor, "L"]:
    """What is left of |M_l - KRR|² by the best sum_j a_j (KRR in band j), 8 bands of log s."""
    bands = components.unflatten(-1, (8, -1)).sum(-1).flatten(0, 1)
    target = values.flatten(1).T
    gram = bands.T @ bands + 1e-9 * torch.eye(8, dtype=bands.dtype) * bands.square().sum() / 8
    weights = torch.linalg.solve(gram, bands.T @ target)
    return (target - bands @ weights).square().sum(0) / total.sum(1)


def _counts(B: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).multinomial(B, np.full(B, 1 / B), size=RESAMPLES).astype(float)
