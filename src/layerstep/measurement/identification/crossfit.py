"""Cross-fitted residuals: steps chosen on one half of the sequences and scored on the other.

M_l is the prediction of layer l, A_t that of a candidate after t steps, KRR the exact one; |.|² sums over sequences
b and context lengths n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.errors import require_callable, require_kind
from layerstep.measurement.identification.families import Family
from layerstep.measurement.identification.features import own_features
from layerstep.measurement.identification.library import Candidate, Library
from layerstep.measurement.identification.refinement import Blends, blends_of
from layerstep.reprs import brief
from layerstep.tasks import Prompts, require_task
from layerstep.threads import one_thread

AT_A_TIME = 16  # candidates whose residuals are made together: products of a size, in the cache
LIVE = 1e-3  # of the mean square label: layers nearer to KRR say nothing of the way there


@dataclass(frozen=True, eq=False, kw_only=True)
class Residuals:
    """What every result is made from, per candidate q, layer l and sequence b.

    distance [L, B]: sum_n (M_l - KRR)². left [Q, L, B]: sum_n r² with r = M_l - A_t, t chosen on the half b is not in.
    structured [Q, L, B]: sum_n r r^ with r^ what the residual features predict of r, fitted on the half b is not
    in: its expectation is 0 when r is unpredictable. fitted [Q, L, 2]: min_t of the mean of sum_n r² over each half;
    place [Q, L, 2]: where that t is among the steps. candidates: the library's, and for each half and family the ridge
    between those of the grid that fits best there. label_share [L]: the share of the variance of M_l that the
    features predict, 0 when the layer does not see the labels.
    """

    library: Library
    candidates: tuple[Candidate, ...]
    values: Float[Tensor, "L B C"]
    layers: Float[Tensor, "L"]
    halves: tuple[slice, slice]
    distance: Float[Tensor, "L B"]
    left: Float[Tensor, "Q L B"]
    structured: Float[Tensor, "Q L B"]
    fitted: Float[Tensor, "Q L 2"]
    place: Int[Tensor, "Q L 2"]
    label_share: Float[Tensor, "L"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Instrument:
    """Library and residual features on one set of prompts: prepared once, it serves any number of models on them."""

    library: Library
    features: Float[Tensor, "F B C"]
    halves: tuple[slice, slice]
    spread: Float[Tensor, "2 R"]  # sum over each half of |A_t - KRR|²
    blends: tuple[Blends, ...]  # ridges between those of the grid

    __repr__ = brief

    @staticmethod
    def prepare(
        prompts: Prompts,
        task: Any,
        contexts: Sequence[int] | None = None,
        progress: Callable[[float], None] | None = None,
        *,
        families: Sequence[Family] | None = None,
        bandwidths: Sequence[float] | None = None,
        ridges: Sequence[float] | None = None,
        anchor: Float[Tensor, "B C"] | None = None,
        cache: bool = False,
    ) -> Instrument:
        """Run all families on `prompts`, at every bandwidth and ridge: multiples of the task's.

        families: by default those of the task, ls.FAMILIES or on linear tasks ls.linear_families(task). anchor: what
        distances are measured from at the contexts, in place of exact KRR.
        cache: take the library from the user's cache directory, or put it there, for prompts that are used again.
        """
        require_kind("prompts", prompts, Prompts, "They come before the task.")
        require_task(task, "gram", "lam", remedy="It comes after the prompts.")
        if progress is not None:
            require_callable("progress", progress, "a function of the fraction done")
        library = Library.build(
            prompts,
            task,
            contexts,
            progress,
            families=families,
            bandwidths=bandwidths,
            ridges=ridges,
            anchor=anchor,
            cache=cache,
        )
        about = (library.prompts, library.task, library.contexts)
        features = torch.cat([library.domain.features(*about), own_features(*about)]) * library.weight
        middle = (library.prompts.B + 1) // 2
        halves = (slice(0, middle), slice(middle, library.prompts.B))
        spread = torch.stack([library.table[:, h].square().sum(dim=(1, 2)) for h in halves])
        blends = tuple(blends_of(library, halves)) if library.domain.between else ()
        return Instrument(library=library, features=features, halves=halves, spread=spread, blends=blends)

    @one_thread()  # a thousand small products: threads would only wait for each other
    def cross_fit(self, values: Float[Tensor, "L B C"], layers: Float[Tensor, "L"]) -> Residuals:
        """Residuals of finite predictions `values` at the library's contexts, sequences in the user's order."""
        library = self.library
        values = values.to(library.krr)[:, library.order] * library.weight
        away = values - library.krr
        candidates, fitted, place = self._fitted(away)
        L, Q = len(values), len(candidates)
        left = torch.empty(Q, L, library.prompts.B, dtype=torch.float64)
        structured = torch.empty_like(left)
        label_share = torch.zeros(L, dtype=torch.float64)
        for h in (0, 1):
            train, test = self.halves[h], self.halves[1 - h]
            predict = self._predictor(train, test)
            for start in range(0, Q, AT_A_TIME):  # the residuals of all would be the largest array here
                some = slice(start, start + AT_A_TIME)
                made = zip(candidates[some], place[some, :, h], strict=True)
                residual = away - torch.stack([library.predictions(candidate, steps) for candidate, steps in made])
                r = residual[:, :, test]
                left[some, :, test] = r.square().sum(-1)
                expected = predict(residual[:, :, train].flatten(0, 1)).view_as(r)
                structured[some, :, test] = (r * expected).sum(-1)
            centred = values - values.mean(dim=(1, 2), keepdim=True)
            total = centred.square().sum(dim=(1, 2)).clamp_min(torch.finfo(values.dtype).tiny)
            label_share += (centred[:, test] * predict(centred[:, train])).sum(dim=(1, 2)) / total
        return Residuals(
            library=library,
            candidates=candidates,
            values=values,
            layers=layers,
            halves=self.halves,
            distance=away.square().sum(-1),
            left=left,
            structured=structured,
            fitted=fitted,
            place=place,
            label_share=label_share,
        )

    def _fitted(
        self, away: Float[Tensor, "L B C"]
    ) -> tuple[tuple[Candidate, ...], Float[Tensor, "Q L 2"], Int[Tensor, "Q L 2"]]:
        """The candidates, and of each the least mean loss over each half and the place of its step."""
        library = self.library
        losses = [self._losses(away, h) for h in (0, 1)]
        candidates = list(library.candidates)
        least = [[tuple(loss[:, candidate.rows].min(1)) for loss in losses] for candidate in candidates]
        distance = away.square().sum(-1).mean(1).to(library.table)
        far = distance > LIVE * library.prompts.y.square().mean() * len(library.contexts)
        for blends in self.blends if bool(far.any()) else ():
            both = [blends.losses(loss, h, library).min(-1) for h, loss in enumerate(losses)]
            for k in sorted({int((best.values[:, far] / distance[far]).mean(1).argmin()) for best in both}):
                candidates.append(blends.candidate(k, library))
                least.append([(best.values[k], best.indices[k]) for best in both])
        fitted, place = (torch.stack([torch.stack([pair[h][i] for h in (0, 1)], -1) for pair in least]) for i in (0, 1))
        return tuple(candidates), fitted.double(), place

    def _losses(self, away: Float[Tensor, "L B C"], h: int) -> Float[Tensor, "L R"]:
        """Mean over half h of sum_n (m - a)² = |m|² - 2 m·a + |a|² for every row a = A_t - KRR; m = M_l - KRR."""
        here = self.halves[h]
        m = away[:, here].flatten(1).to(self.library.table)
        cross = m @ self.library.table[:, here].flatten(1).T
        return (m.square().sum(1, keepdim=True) - 2 * cross + self.spread[h]).clamp_min(0) / away[:, here].shape[1]

    def _predictor(self, train: slice, test: slice):
        """r on the training half -> r^ on the other, by least squares on the features with the domain's shrinkage."""
        phi = self.features[:, train].flatten(1)
        gram = phi @ phi.T / phi.shape[1]
        gram += self.library.domain.shrinkage * torch.eye(len(phi), dtype=phi.dtype)
        factor = torch.linalg.cholesky(gram)
        out = self.features[:, test]

        def predict(r: Float[Tensor, "L Btrain C"]) -> Float[Tensor, "L Btest C"]:
            weights = torch.cholesky_solve(phi @ r.flatten(1).T / phi.shape[1], factor)
            return torch.einsum("fl,fbc->lbc", weights, out)

        return predict
