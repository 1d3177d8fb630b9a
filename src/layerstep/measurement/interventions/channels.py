"""Channels: the few directions of a site in which what varies there by nature reaches the prediction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.interventions.alignment import LEFT, Inputs, Moments

#: The most channels of a site, and the least influence of one, as a share of the greatest.
CHANNELS, LEAST = 12, 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class Channels:
    """Directions in which a site reaches the prediction, the most influential first.

    Natural variation beside the inputs, h = root z with white z, changes the prediction by J root z. The right singular
    vectors of J root are the channels: they do not depend on the units of the stream. answers: their responses,
    orthonormal; influence: the singular values.
    """

    answers: Float[Tensor, "entries m"]
    influence: Float[Tensor, "m"]
    directions: Float[Tensor, "W m"]  # of the stream, one natural unit each
    readers: Float[Tensor, "W m"]  # how much of each there is, of what is left beside the inputs

    @staticmethod
    def of(J: Float[Tensor, "entries W"], moments: Moments) -> Channels:
        U, S, V = torch.linalg.svd(J @ moments.root, full_matrices=False)
        count = min(CHANNELS, int((LEAST * S[0] < S).sum()))
        V = V[:count].mT
        return Channels(
            answers=U[:, :count],
            influence=S[:count],
            directions=moments.root @ V,
            readers=moments.inverse @ moments.root @ V,
        )

    def first(self, count: int) -> Channels:
        parts = {name: getattr(self, name)[..., :count] for name in ("answers", "influence", "directions", "readers")}
        return Channels(**parts)

    def shares(self, rows: Float[Tensor, "k entries"]) -> Float[Tensor, "k m"]:
        """The share of each row that the first 1..m channels explain, with the writer that suits it best."""
        size = rows.square().sum(1, keepdim=True)
        found = (rows @ self.answers).square().cumsum(1)
        known = (size > 1e-200) & size.isfinite()  # steps that are too long for a prompt overflow
        return torch.where(known, found / size.clamp_min(1e-300), torch.zeros_like(found))

    def weights(self, row: Float[Tensor, "entries"]) -> Float[Tensor, "m"]:
        """How much of each channel the writer has whose response is nearest to a row."""
        return (self.answers.mT @ row) / self.influence


def in_channels(
    quantities: Float[Tensor, "tokens k"], channels: Channels, moments: Moments, inputs: Inputs
) -> tuple[Float[Tensor, "m k"], Float[Tensor, "k"]]:
    """Weights of the quantities' readers on the channels, which are white, and their R² beside the inputs."""
    s = inputs.left(quantities)
    raw, left = quantities.square().mean(0), s.square().mean(0)
    cross = (moments.left @ channels.readers).mT @ s / len(s)
    return cross, torch.where(left > LEFT * raw, cross.square().sum(0) / left.clamp_min(1e-300), torch.zeros_like(left))
