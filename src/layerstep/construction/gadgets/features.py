"""Heads that give every example its polynomials of x - mean x, damped by exp(-|x - mean x|²/2v²)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from layerstep.construction.gadgets.pairs import SELF, Head, SignPair
from layerstep.construction.schemes.deflation import feature_scale, monomials


def feature_heads(pair: SignPair, v: float, degree: int, unit: float) -> list[list[Head]]:
    """Z += unit exp(-|x - mu|²/2v²) (x - mu)^alpha / (v^|alpha| √alpha!), |alpha| <= degree: the heads of each block.

    A token's own exponential gives 1 and x - mu. With a pair of signs that reads coordinate i it gives the products
    with i, in d blocks. Products of two, once there, are read by pairs that multiply them by a third coordinate, two
    pairs per block.
    """
    stream = pair.stream
    d, x, mu, one = stream.d, stream.rows("x") / v, stream.rows("mu") / v, stream.rows("one")
    inside = stream.forms({"one": 1.0, "s": -1.0})
    # -|x - mu|²/2v² = -|x|²/2v² + <mu, x - mu/2>/v²
    logit = torch.cat([one, mu]), torch.cat([stream.forms({"x2": -0.5 / v / v}), x - mu / 2])
    rows = {monomial: stream["Z"].start + row for row, monomial in enumerate(monomials(d, degree))}

    def times(products: Sequence[tuple[int, ...]]) -> Tensor:
        """The value that is the last factor of each product, in its row."""
        value = torch.zeros(stream.width, stream.width, dtype=torch.float64)
        for each in products:
            value[rows[each]] = unit * feature_scale(each) * (x - mu)[each[-1]]
        return value

    value = times([(i,) for i in range(d)])
    value[rows[()]] = unit * inside[0]
    first, *blocks = [
        pair.heads((x - mu)[[i]], inside, times([(i, j) for j in range(i, d)]), mask=SELF, logit=logit)
        for i in range(d if degree >= 2 else 0)
    ] or [[]]
    blocks = [[pair.exponential(logit, value), *first], *blocks]
    if degree < 3:
        return blocks
    damped = torch.eye(stream.width, dtype=torch.float64) / unit
    cubes = [
        pair.heads(
            damped[[rows[ij]]] / feature_scale(ij), inside, times([(*ij, k) for k in range(ij[1], d)]), mask=SELF
        )
        for ij in itertools.combinations_with_replacement(range(d), 2)
    ]
    return [*blocks, *([*one, *other] for one, other in itertools.zip_longest(cubes[::2], cubes[1::2], fillvalue=[]))]
