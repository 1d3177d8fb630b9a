"""The readings of a model beside each other: which solver each follows, and where they disagree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.identification.result import Verdict
from layerstep.measurement.reading.readouts import NAMES, Readouts
from layerstep.reprs import cut

#: Readings that differ by less than this share of the model's own mean square say the same.
SAME = 0.02


@dataclass(frozen=True, eq=False, kw_only=True)
class Readings:
    """Every layer read three ways on the same prompts. labels: a probe fitted on y; output: an affine map fitted to
    the model's own output; lens: the model's own head, None where it is not known.

    sites [S]: where; verdicts: which solver each reading follows. errors: per reading the mean squared distance of
    every layer to exact KRR; the mean square of the model's own predictions is 1.
    """

    sites: tuple[str, ...]
    readouts: Readouts = field(repr=False)
    verdicts: dict[str, Verdict] = field(repr=False)
    errors: dict[str, Float[Tensor, "S"]] = field(repr=False)

    def __repr__(self) -> str:
        said = ", ".join(f"{name}: {verdict.solver}" for name, verdict in self.verdicts.items())
        return cut(f"Readings({len(self.sites)} sites; {said})")

    @staticmethod
    def of(
        sites: tuple[str, ...], readouts: Readouts, verdicts: dict[str, Verdict], krr: Float[Tensor, "B n"]
    ) -> Readings:
        size = readouts.final.square().mean().clamp_min(torch.finfo(torch.float64).tiny)
        errors = {name: (path.values - krr).square().mean((1, 2)) / size for name, path in readouts.named().items()}
        return Readings(sites=sites, readouts=readouts, verdicts=verdicts, errors=errors)

    @property
    def disagreement(self) -> dict[tuple[str, str], Float[Tensor, "S"]]:
        """Per pair of readings the mean squared difference of every layer, over the model's own mean square."""
        return self.readouts.disagreement()

    @property
    def widest(self) -> tuple[str, str, str, float]:
        """(reading, other reading, site, difference) where two readings are farthest apart, behind the first site."""
        first = 1 if len(self.sites) > 1 else 0
        found = [
            (float(gap[index].nan_to_num()), a, b, self.sites[index])
            for (a, b), gap in self.disagreement.items()
            for index in range(first, len(self.sites))
        ]
        gap, a, b, site = max(found)
        return a, b, site, gap

    def meaning(self) -> str:
        """One sentence: where the readings disagree, and what follows."""
        a, b, site, gap = self.widest
        if gap < SAME:
            return (
                f"All readings of a layer say the same (they differ by {gap:.1%} at most): the reader matters little."
            )
        return (
            f"{_capital(NAMES[a])} and {NAMES[b]} differ most at {site}, by {gap:.0%} of the output's mean square: "
            "what is read there depends on the reader, and a verdict about one reading is not one about the model."
        )

    def lines(self) -> list[str]:
        """A line per site: distance to exact KRR of each reading, and how far apart they are."""
        pairs = self.disagreement
        heads = [f"{name}-KRR" for name in self.errors] + [f"{a}-{b}" for a, b in pairs]
        rows = [f"  {'site':<12}" + "".join(f"{head:>15}" for head in heads)]
        for index, site in enumerate(self.sites):
            values = [float(error[index]) for error in self.errors.values()]
            values += [float(gap[index]) for gap in pairs.values()]
            rows.append(f"  {site:<12}" + "".join(f"{value:>15.4f}" for value in values))
        return rows

    def to_dict(self) -> dict[str, Any]:
        return {
            "sites": list(self.sites),
            "meaning": self.meaning(),
            "distance_to_krr": {name: error.tolist() for name, error in self.errors.items()},
            "disagreement": {f"{a}, {b}": gap.tolist() for (a, b), gap in self.disagreement.items()},
            "verdicts": {name: {"solver": each.solver, "status": each.status} for name, each in self.verdicts.items()},
        }


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]
