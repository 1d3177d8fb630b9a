"""Ridges between those of the grid.

Predictions are smooth in log lam. A(lam) = sum_i w_i A(lam_i), with the Lagrange weights w of the four nearest ridges
of the grid, is off by at most 4e-4 of the distance to KRR at ridges 1.6 apart, where the nearest of the grid is off by
up to .8 (heavy ball, whose constants are made of the ridge). No solver is run again to look for the best of them: as
sum_i w_i = 1,

    |m - sum_i w_i a_i|² = sum_i w_i |m - a_i|² - (sum_i w_i |a_i|² - |sum_i w_i a_i|²),

and the bracket does not depend on the layer m.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.library import Candidate, Library

BETWEEN = 16  # ridges tried between two of the grid
NODES = 4  # of the grid that one of them is made from


@dataclass(frozen=True, eq=False, kw_only=True)
class Blends:
    """One family at ridges between those of its candidates: lam [K], made of the candidates `of` with weights [K, I];
    bracket [2, K, T] is the term of the formula above, its mean over the sequences of each half."""

    of: tuple[int, ...]
    lam: Float[Tensor, "K"]
    weights: Float[Tensor, "K I"]
    bracket: Float[Tensor, "2 K T"]

    def losses(self, loss: Float[Tensor, "L R"], h: int, library: Library) -> Float[Tensor, "K L T"]:
        """Of the blends, from those of the library's rows on half h."""
        own = torch.stack([loss[:, library.candidates[q].rows] for q in self.of])
        return (torch.einsum("ki,ilt->klt", self.weights, own) - self.bracket[h].unsqueeze(1)).clamp_min(0)

    def candidate(self, k: int, library: Library) -> Candidate:
        """The k-th of them."""
        there = [(library.candidates[q].rows, w) for q, w in zip(self.of, self.weights[k].tolist(), strict=True) if w]
        return replace(library.candidates[self.of[0]], lam=float(self.lam[k]), rows=slice(0), parts=tuple(there))


def blends_of(library: Library, halves: Sequence[slice]) -> Iterator[Blends]:
    """For every family that was run at four ridges above 0 or more."""
    families: dict[tuple[str, float], list[int]] = {}
    for q, candidate in enumerate(library.candidates):
        if candidate.lam > 0:
            families.setdefault((candidate.family.name, candidate.v), []).append(q)
    made: dict[tuple[float, ...], tuple[Tensor, Tensor]] = {}  # most families have the same ridges
    for places in families.values():
        if len(places) < NODES:
            continue
        places.sort(key=lambda q: library.candidates[q].lam)
        ridges = tuple(library.candidates[q].lam for q in places)
        if ridges not in made:
            nodes = torch.tensor(ridges, dtype=torch.float64).log()
            between = torch.arange(1, BETWEEN) / BETWEEN
            log_lam = (nodes[:-1, None] + nodes.diff()[:, None] * between).flatten()
            made[ridges] = log_lam.exp(), _lagrange(log_lam, nodes).float()
        lam, weights = made[ridges]
        tables = torch.stack([library.table[library.candidates[q].rows] for q in places])
        brackets = []
        for half in halves:
            inner = torch.einsum("itbc,jtbc->ijt", tables[:, :, half], tables[:, :, half])
            squares = torch.einsum("ki,iit->kt", weights, inner)
            bracket = squares - torch.einsum("ki,kj,ijt->kt", weights, weights, inner)
            brackets.append(bracket / tables[:, :, half].shape[2])
        yield Blends(of=tuple(places), lam=lam, weights=weights, bracket=torch.stack(brackets))


def _lagrange(x: Float[Tensor, "K"], nodes: Float[Tensor, "I"]) -> Float[Tensor, "K I"]:
    """Weights of the polynomial through the four nodes around x; 0 for the others."""
    right = torch.searchsorted(nodes, x)
    first = (right - NODES // 2).clamp(0, len(nodes) - NODES)
    out = torch.zeros(len(x), len(nodes), dtype=x.dtype)
    for k, start in enumerate(first.tolist()):
        there = nodes[start : start + NODES]
        for i in range(NODES):
            others = torch.cat([there[:i], there[i + 1 :]])
            out[k, start + i] = ((x[k] - others) / (there[i] - others)).prod()
    return out
