"""The measured operator: what a response row looks like, whatever it is called.

A row R says how the prediction at a query answers to a unit written into the state of each example. Described by its
mean over the distance of the two points, by the Gaussian kernel and the normalisation nearest to it, by its gain, and
by how much depends on the order of the examples.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.linear_tasks import is_linear
from layerstep.measurement.interventions.passes import Batch
from layerstep.reprs import brief
from layerstep.tasks.kernels import KERNELS, distance

#: Multiples of the task's bandwidth at which a kernel is fitted.
WIDTHS = torch.logspace(-0.9, 0.6, 31, dtype=torch.float64).tolist()
NORMALISATIONS = ("none", "query", "example")
BINS = 10


@dataclass(frozen=True, kw_only=True)
class Operator:
    """R(q, i) = gain k_b(x_q, x_i) / norm, and what that leaves.

    profile: (distance, mean of R) in bins of equal count. bandwidth, normalisation: of the nearest Gaussian kernel:
    "none", "query" (over sum_j k(x_q, x_j)) or "example" (over sum_j k(x_i, x_j)). explained: the share of sum R² of
    that kernel; explained_by_distance: of any function of the distance. by_order: what the position of an example in
    the prompt adds to it. size: rms of a row's sum of squares. kernel "linear", of linear tasks: inner products stand
    in place of both kernel and distance; metric is then the share of any bilinear function x_q W x_i.
    """

    profile: tuple[tuple[float, float], ...]
    bandwidth: float
    normalisation: str
    gain: float
    explained: float
    explained_by_distance: float
    by_order: float
    size: float
    kernel: str = "gaussian"
    metric: float | None = None

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        if self.kernel == "linear":
            return (
                f"{self.gain:.3g} times the inner product ({self.explained:.0%} of the response; in the best metric "
                f"{self.metric:.0%}; any function of the inner product {self.explained_by_distance:.0%}; order adds "
                f"{self.by_order:.0%})"
            )
        norm = "" if self.normalisation == "none" else f" over its {self.normalisation} sum"
        return (
            f"{self.gain:.3g} times a kernel of bandwidth {self.bandwidth:.2f}{norm} ({self.explained:.0%} of the "
            f"response; any function of distance {self.explained_by_distance:.0%}; order adds {self.by_order:.0%})"
        )


def describe(task: Any, batches: list[Batch], rows: list[Float[Tensor, "_ _"]]) -> Operator | None:
    """The operator of response rows, None where nothing responds."""
    R = torch.cat([row.flatten() for row in rows])
    energy = float(R.square().sum())
    if not energy > 0:
        return None
    linear = is_linear(task)
    far, place = [], []
    for batch in batches:
        x = batch.prefix.x.double()
        q, points = x[:, -1:], x[:, :-1]
        far.append((task.gram(q, points) if linear else distance(q, points))[:, 0].flatten())
        place.append(((torch.arange(batch.n) + 0.5) / batch.n - 0.5).expand(x.shape[0], -1).flatten())
    far_, place_ = torch.cat(far), torch.cat(place).double()
    edges = far_.quantile(torch.linspace(0, 1, BINS + 1, dtype=torch.float64)[1:-1])
    bin_of = torch.bucketize(far_, edges)
    inside = torch.nn.functional.one_hot(bin_of, BINS).double()
    mean = (inside.mT @ R) / inside.sum(0).clamp_min(1)
    with_order = torch.cat([inside, inside * place_[:, None]], 1)
    by_distance = _explained(inside, R)
    if linear:
        share, gain, bandwidth, how = *_along(far_, R), 1.0, "none"
    else:
        kernels = ((width * task.v, how) for width in WIDTHS for how in NORMALISATIONS)
        fits = ((_fit(task, batches, R, width, how), width, how) for width, how in kernels)
        (share, gain), bandwidth, how = max(fits, key=lambda fit: fit[0][0])
    middle = (inside.mT @ far_) / inside.sum(0).clamp_min(1)
    return Operator(
        profile=tuple(zip(middle.tolist(), mean.tolist(), strict=True)),
        bandwidth=float(bandwidth),
        normalisation=how,
        gain=gain,
        explained=share,
        explained_by_distance=by_distance,
        by_order=_explained(with_order, R) - by_distance,
        size=(energy / sum(row.shape[0] for row in rows)) ** 0.5,
        kernel="linear" if linear else "gaussian",
        metric=_explained(torch.cat([_products(batch) for batch in batches]), R) if linear else None,
    )


def _products(batch: Batch) -> Float[Tensor, "entries dd"]:
    """All products of a coordinate of the query and one of an example."""
    x = batch.prefix.x.double()
    return torch.einsum("bd,bne->bnde", x[:, -1], x[:, :-1]).flatten(2).flatten(0, 1)


def _along(row: Float[Tensor, "entries"], R: Float[Tensor, "entries"]) -> tuple[float, float]:
    """(share of R explained, gain) of one row."""
    dot, size = float(row @ R), float(row @ row)
    return (dot * dot / (size * float(R @ R)), dot / size) if size else (0.0, 0.0)


def _explained(features: Float[Tensor, "entries k"], R: Float[Tensor, "entries"]) -> float:
    """The share of sum R² that a least-squares fit explains."""
    gram = features.mT @ features
    b = features.mT @ R
    ridge = 1e-10 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    return float(b @ torch.linalg.solve(gram + ridge, b) / R.square().sum())


def _fit(task: Any, batches: list[Batch], R: Tensor, bandwidth: float, how: str) -> tuple[float, float]:
    """(share explained, gain) of one kernel."""
    rows = []
    for batch in batches:
        x = batch.prefix.x.double()
        k = KERNELS[task.kernel](x[:, -1:], x[:, :-1], bandwidth)[:, 0]
        if how == "query":
            k = k / k.sum(-1, keepdim=True).clamp_min(1e-300)
        elif how == "example":
            k = k / KERNELS[task.kernel](x[:, :-1], x[:, :-1], bandwidth).sum(-1)
        rows.append(k.flatten())
    return _along(torch.cat(rows), R)
