"""Which spectral filter a layer is, without naming a family.

A fixed-coefficient solver predicts sum_k φ(s_k) c_k, c_k the components of exact KRR along the eigenvectors of the
system. Its filter φ says what it does to each; Richardson is 1 - exp(-s τ), gradient descent 1 - exp(-(s τ)²).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.crossfit import Residuals
from layerstep.measurement.identification.decision import RangeResult, Rule
from layerstep.measurement.identification.descriptions import RESAMPLES, Description
from layerstep.solvers.system import Batch, System
from layerstep.stats import resamples
from layerstep.threads import one_per_worker

POWERS = (0.5, 0.75, 1.0, 1.5, 2.0)
INVERSE_M = (0.0, 0.25, 0.5, 1.0)
NORMALISATIONS = ("row sums", "largest eigenvalue", "fixed")
SHAPES = tuple(itertools.product(POWERS, INVERSE_M))
TAU = torch.logspace(-1, 7, 97, dtype=torch.float64)
BINS = torch.logspace(-7, 0.05, 128, dtype=torch.float64)  # of s, on which filters are evaluated


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterFit(Description):
    """φ(s) = 1 - (1 + (s τ)^p / m)^-m, τ free per layer; (p, 1/m) = (1, 0) Richardson, (2, 0) GD, (1, 1) ridge.

    The best of three normalisations of s; `support` is the share of bootstrap resamples that choose it. U: mean over
    usable layers of what the fit leaves. `free` [L]: what one free coefficient per spectral band leaves.
    """

    name: ClassVar[str] = "filter"

    normalisation: str
    p: float
    inverse_m: float
    v: float
    support: float
    U: float
    tau: Float[Tensor, "L"]
    free: Float[Tensor, "L"]

    @staticmethod
    def of(residuals: Residuals, overall: RangeResult, rule: Rule, seed: int) -> FilterFit | None:
        """The least mean U over usable layers; v is one of those that the three nearest families fitted."""
        if not overall.fits:
            return None
        usable = torch.isin(residuals.layers, torch.tensor(overall.usable, dtype=torch.float64))
        values, total = residuals.values[usable].float(), residuals.distance[usable].float()
        table = torch.cat([_filter(BINS, TAU, p, inverse) for p, inverse in SHAPES]).T.float()  # [K, shapes tau]

        def at(v: float) -> tuple[float, float, Tensor, Tensor, dict[str, Tensor]]:
            components = _components(residuals, v)
            loss = torch.stack([_losses(values, part.float() @ table) for part in components.values()])
            U = _mean_U(loss, total, torch.ones(1, total.shape[1]))[0]  # loss [3, L, B, shapes tau]
            return float(U.min()), v, U, loss, components

        with one_per_worker(at, dict.fromkeys(v for fit in overall.fits[:3] for v in fit.v)) as found:
            least, v, U, loss, components = min(found, key=lambda each: each[0])
        place, shape = divmod(int(U.argmin()), len(SHAPES))
        support = _mean_U(loss, total, resamples(total.shape[1], RESAMPLES, seed).float()).amin(-1).argmin(-1)
        each = loss[place].sum(1).unflatten(-1, (len(SHAPES), len(TAU)))[:, shape]
        p, inverse = SHAPES[shape]
        name = list(components)[place]
        return FilterFit(
            normalisation=name,
            p=p,
            inverse_m=inverse,
            v=v,
            support=float((support == place).double().mean()),
            U=least,
            tau=TAU[each.argmin(-1)],
            free=_free_bands(components[name], residuals.values[usable], residuals.distance[usable]),
        )

    def lines(self) -> Iterator[str]:
        yield (
            f"filter: {self.normalisation}, p = {self.p:g}, 1/m = {self.inverse_m:g}, v = {self.v:.3g}, "
            f"U = {self.U:.3f}, support {self.support:.0%}; free bands leave {float(self.free.mean()):.3f}"
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


def _components(residuals: Residuals, v: float) -> dict[str, Float[Tensor, "B C K"]]:
    """For each normalisation the components c_k of KRR gathered on the bins of log s, split linearly between the two
    nearest."""
    library = residuals.library
    batch = Batch.of(library.prompts, library.task, v)
    systems = [batch.system(n) for n in library.contexts]
    names = NORMALISATIONS if batch.least_row_sum > 0 else NORMALISATIONS[1:]
    columns = {name: torch.stack([_binned(*_spectrum(s, name)) for s in systems], dim=1) for name in names}
    return {name: column * library.weight.unsqueeze(-1) for name, column in columns.items()}


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
