"""Two readings of a path that name no family: how the step grows with the context, and which spectral filter it is.

A fixed-coefficient solver predicts sum_k φ(s_k) c_k, c_k the components of exact KRR along the eigenvectors of the
system. Its filter φ says what it does to each; Richardson is 1 - exp(-s τ), gradient descent 1 - exp(-(s τ)²).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.crossfit import Evidence
from layerstep.measurement.identification.decision import Judgement
from layerstep.solvers.system import Batch, System
from layerstep.stats import resamples

RESAMPLES = 100
POWERS = (0.5, 0.75, 1.0, 1.5, 2.0)
INVERSE_M = (0.0, 0.25, 0.5, 1.0)
NORMALISATIONS = ("row sums", "largest eigenvalue", "fixed")
SHAPES = tuple(itertools.product(POWERS, INVERSE_M))
TAU = torch.logspace(-1, 7, 97, dtype=torch.float64)
BINS = torch.logspace(-7, 0.05, 128, dtype=torch.float64)  # of s, on which filters are evaluated


@dataclass(frozen=True, eq=False, kw_only=True)
class Slopes:
    """g [L] = slope of log max(t*, .5) on log n, t*(l, n) the best step of preconditioned Richardson at that n alone.

    0 for a normalised iteration, about 1 for a fixed step or a ridge. A wrong bandwidth imitates the second, so g
    is given at the fitted v and at its neighbours on the grid: v [K], g [K, L], sd [K, L] by bootstrap.
    """

    fitted: float
    v: Float[Tensor, "K"]
    g: Float[Tensor, "K L"]
    sd: Float[Tensor, "K L"]


def slopes(evidence: Evidence, judgement: Judgement, *, seed: int) -> Slopes | None:
    """g at the fitted bandwidth and its neighbours; None with fewer than three long contexts."""
    library = evidence.library
    centre = library.candidates[judgement.fit("richardson").candidates[0]]
    grid = sorted({c.v for c in library.candidates})
    place = grid.index(centre.v)
    near = [library.find("richardson", v) for v in grid[max(place - 1, 0) : place + 2]]
    n = torch.tensor(library.contexts, dtype=torch.float64)
    long = n >= 0.15 * n[-1]
    if int(long.sum()) < 3:
        return None
    log_n = n[long].log() - n[long].log().mean()
    away = (evidence.values - library.krr).float()
    draws = resamples(away.shape[1], RESAMPLES, seed).float()
    g, sd = [], []
    for candidate in near:
        steps = torch.tensor(candidate.family.steps, dtype=torch.float64).clamp_min(0.5).log()
        table = library.table[candidate.rows]
        loss = torch.stack([(layer - table).square()[..., long] for layer in away])  # [L, T, B, n]
        sums = torch.einsum("rb,ltbn->rltn", torch.cat([torch.ones_like(draws[:1]), draws]), loss)
        slope = steps[sums.argmin(2)] @ log_n / log_n.square().sum()  # [R, L]
        g.append(slope[0])
        sd.append(slope[1:].std(0))
    at = torch.tensor([candidate.v for candidate in near], dtype=torch.float64)
    return Slopes(fitted=centre.v, v=at, g=torch.stack(g), sd=torch.stack(sd))


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
    """The filter with the least mean U over usable layers; v is one of those that the three nearest families fitted."""
    usable = torch.isin(evidence.layers, torch.tensor(judgement.usable, dtype=torch.float64))
    values, total = evidence.values[usable].float(), evidence.distance[usable].float()
    table = torch.cat([_filter(BINS, TAU, p, inverse) for p, inverse in SHAPES]).T.float()  # [K, shapes tau]
    losses = {}
    for v in {v for fit in judgement.fits[:3] for v in fit.v}:
        components = _components(evidence, v)
        loss = torch.stack([_losses(values, part.float() @ table) for part in components])  # [3, L, B, shapes tau]
        U = _mean_U(loss, total, torch.ones(1, total.shape[1]))[0]
        losses[v] = (float(U.min()), U, loss, components)
    v = min(losses, key=lambda v: losses[v][0])
    least, U, loss, components = losses[v]
    place, shape = divmod(int(U.argmin()), len(SHAPES))
    support = _mean_U(loss, total, resamples(total.shape[1], RESAMPLES, seed).float()).amin(-1).argmin(-1)
    each = loss[place].sum(1).unflatten(-1, (len(SHAPES), len(TAU)))[:, shape]
    p, inverse = SHAPES[shape]
    return FilterFit(
        normalisation=NORMALISATIONS[place],
        p=p,
        inverse_m=inverse,
        v=v,
        support=float((support == place).double().mean()),
        U=least,
        tau=TAU[each.argmin(-1)],
        free=_free_bands(components[place], evidence.values[usable], evidence.distance[usable]),
    )


def _losses(values: Float[Tensor, "L B C"], path: Float[Tensor, "B C F"]) -> Float[Tensor, "L B F"]:
    """sum_n (M_l - path)² of every sequence."""
    cross = torch.einsum("lbc,bcf->lbf", values, path)
    return (values.square().sum(-1, keepdim=True) - 2 * cross + path.square().sum(1)).clamp_min(0)


def _mean_U(
    loss: Float[Tensor, "K L B F"], total: Float[Tensor, "L B"], draws: Float[Tensor, "R B"]
) -> Float[Tensor, "R K S"]:
    """mean_l min_tau U_l of every normalisation and shape, for every resample of the sequences."""
    sums = torch.einsum("rb,klbf->rklf", draws, loss).unflatten(-1, (len(SHAPES), len(TAU)))
    return (sums.amin(-1) / (draws @ total.T)[:, None, :, None]).mean(2)


def _filter(s: Float[Tensor, "K"], tau: Float[Tensor, "T"], p: float, inverse_m: float) -> Float[Tensor, "T K"]:
    z = (s * tau.unsqueeze(-1)) ** p
    return -torch.expm1(-z) if inverse_m == 0 else 1 - (1 + z * inverse_m) ** (-1 / inverse_m)


def _components(evidence: Evidence, v: float) -> list[Float[Tensor, "B C K"]]:
    """For each normalisation the components c_k of KRR gathered on the bins of log s, split linearly between the two
    nearest."""
    library = evidence.library
    batch = Batch.of(library.prompts, replace(library.task, v=v))
    systems = [batch.system(n) for n in library.contexts]
    return [torch.stack([_binned(*_spectrum(s, name)) for s in systems], dim=1) for name in NORMALISATIONS]


def _spectrum(system: System, name: str) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B n"]]:
    """(s, c): normalised eigenvalues and the components of exact KRR."""
    if name == "row sums":
        return system.row_sum.values, system.row_sum.weights / system.row_sum.values
    values = system.ridged.values
    largest = values[:, -1:] if name == "largest eigenvalue" else system.batch.eig_max.unsqueeze(-1)
    return values / largest, system.ridged.weights / values


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
