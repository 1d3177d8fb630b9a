"""Alignment: where a site holds a quantity s, and how to write it. Closed forms from float64 moments.

Both h and s are first regressed on what the token knows anyway (its x, its y, its position), so that the inputs
stay fixed. With Sigma the covariance of what is left of h:

    reader  u = Sigma⁺ Cov(h, s)          writer  a = Sigma u / (u' Sigma u)          u' a = 1

Without holding the inputs fixed, a writer of the coefficients moves the label too, and a layer that reads the label
again undoes the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import InputError
from layerstep.measurement.interventions.passes import Batch

#: Directions of less than this share of the largest variance, or of the states' mean square, are rounding.
CUTOFF, ROUNDING = 1e-12, 1e-12
#: A quantity of which less than this share is left beside the inputs is a function of them: it cannot be aligned.
LEFT = 1e-8
#: Nor is one of which less than this share of what is left can be read.
READABLE = 1e-3


def known_inputs(batches: list[Batch], *, label: bool = True) -> Float[Tensor, "tokens Z"]:
    """What a token knows anyway, at all examples of all batches (or, label=False, at the queries).

    1 at its position and, for other lengths, at its length; x, all products of two coordinates; y, y x, y².
    """
    longest = max(batch.n for batch in batches)
    columns = []
    for index, batch in enumerate(batches):
        points = slice(0, batch.n) if label else slice(batch.n, batch.n + 1)
        x, y = batch.prefix.x[:, points].double(), batch.prefix.y[:, points].double()[..., None]
        first, second = torch.triu_indices(x.shape[-1], x.shape[-1])
        parts = [x, x[..., first] * x[..., second]]
        parts += [y, y * x, y * y] if label else []
        place = torch.eye(longest, dtype=x.dtype)[: x.shape[1]] if label else x.new_zeros(1, 0)
        length = torch.eye(len(batches), dtype=x.dtype)[index].expand(x.shape[1], -1)
        fixed = torch.cat([place, length], -1).expand(x.shape[0], -1, -1)
        columns.append(torch.cat([*parts, fixed], -1).flatten(0, 1))
    return torch.cat(columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class Inputs:
    """An orthonormal basis of what the tokens know: `left(values)` is what it does not explain."""

    basis: Float[Tensor, "tokens rank"]

    @staticmethod
    def of(known: Float[Tensor, "tokens Z"]) -> Inputs:
        scaled = known / known.norm(dim=0).clamp_min(1e-300)
        U, S, _ = torch.linalg.svd(scaled, full_matrices=False)
        return Inputs(basis=U[:, 1e-9 * S[0] < S])

    def left(self, values: Float[Tensor, "tokens k"]) -> Float[Tensor, "tokens k"]:
        return values - self.basis @ (self.basis.mT @ values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Moments:
    """What is left of the states of one site beside the inputs: covariance, its pseudo-inverse, the states."""

    left: Float[Tensor, "tokens W"]
    covariance: Float[Tensor, "W W"]
    inverse: Float[Tensor, "W W"]
    root: Float[Tensor, "W W"]  # its square root, for random directions
    rank: int

    @staticmethod
    def of(states: Float[Tensor, "tokens W"], inputs: Inputs) -> Moments:
        left = inputs.left(states.double())
        covariance = left.mT @ left / len(left)
        try:
            values, vectors = torch.linalg.eigh(covariance)
        except torch.linalg.LinAlgError as error:
            largest = float(states.abs().max())
            raise InputError(
                f"model: its states reach {largest:.2g}, too large to compare. Nothing was tried."
            ) from error
        size = float(states.double().square().mean()) if len(states) else 0.0
        keep = values > max(CUTOFF * float(values[-1]), ROUNDING * size)
        values, vectors = values[keep], vectors[:, keep]
        inverse = (vectors / values) @ vectors.mT
        return Moments(
            left=left,
            covariance=covariance,
            inverse=inverse,
            root=(vectors * values.sqrt()) @ vectors.mT,
            rank=int(keep.sum()),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Alignment:
    """Readers and writers of k quantities at one site. explained: R² of the reader beside the inputs."""

    readers: Float[Tensor, "W k"]
    writers: Float[Tensor, "W k"]
    explained: Float[Tensor, "k"]
    scale: Float[Tensor, "k"]  # rms of the quantity itself
    usable: Float[Tensor, "k"]  # 1 where something is read that the inputs do not give

    def pick(self, index: int) -> tuple[Float[Tensor, "W"], Float[Tensor, "W"], float, float]:
        """(reader, writer, R², rms) of one quantity."""
        return (
            self.readers[:, index],
            self.writers[:, index],
            float(self.explained[index]),
            float(self.scale[index]),
        )


def align(moments: Moments, inputs: Inputs, quantities: Float[Tensor, "tokens k"]) -> Alignment:
    """Readers u and writers a of the quantities, u' a = 1."""
    s = inputs.left(quantities)
    raw, left = quantities.square().mean(0), s.square().mean(0)
    cross = moments.left.mT @ s / len(s)
    readers = moments.inverse @ cross
    read = (readers * cross).sum(0)  # variance of what is read
    usable = (left > LEFT * raw) & (read > READABLE * left)
    writers = cross / torch.where(usable, read, torch.ones_like(read))
    gain = (readers * writers).sum(0)  # 1 but for the directions cut off as rounding
    writers = writers / torch.where(usable, gain, torch.ones_like(gain))
    return Alignment(
        readers=readers,
        writers=torch.where(usable, writers, torch.zeros_like(writers)),
        explained=torch.where(usable, read / left.clamp_min(1e-300), torch.zeros_like(read)),
        scale=raw.sqrt(),
        usable=usable.double(),
    )
