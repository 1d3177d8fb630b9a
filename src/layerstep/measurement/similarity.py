"""The paper's metrics: SimE, best-matching steps, the line through them, layers won (section 5, "Metrics").

They rank solvers; they do not identify one. Predictors that iterate nothing reach a SimE and an R2 near 1 against
Richardson (docs/measurement.md prints them). For a claim use `identify`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from layerstep.errors import as_float, quoted, require, require_count, require_kind, require_seed
from layerstep.stats import interval, resampled
from layerstep.tasks import Prompts, Trajectory
from layerstep.tasks.prompts import Array

TINY = 1e-12  # an error vector shorter than this share of the labels has no direction: its cosine is 0
STEPS_AT_A_TIME = 16  # so that products stay in the cache: eight times as fast as all at once
TIE = 1e-6  # mean cosines closer than this are one and the same
UNKNOWN = -2.0  # below every cosine: stands for that of predictions that are NaN or infinite, which match nothing


@dataclass(frozen=True, kw_only=True)
class Line:
    """The least-squares line t* = intercept + slope l through the mean best steps, R2 = 1 - SSR / SST.

    `interval` holds the 2.5 % and 97.5 % quantiles of R2 over bootstrap resamples of the sequences; R2 is NaN when
    all steps are equal (SST = 0), and so is the interval when they are in every resample.
    """

    r2: float
    slope: float
    intercept: float
    interval: tuple[float, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class Match:
    """cosine [L, T, B] = cos(e_l, e_t), e = prediction - label as a vector over context lengths, per sequence."""

    cosine: Float[Tensor, "L T B"]
    layers: Float[Tensor, "L"]
    steps: Float[Tensor, "T"]
    label: str

    def __repr__(self) -> str:
        L, T, B = self.cosine.shape
        best = float(self.sime.amax(1).mean()) if L and T else float("nan")
        steps = f"{T} steps, {self.steps[0]:g} to {self.steps[-1]:g}" if T else "no steps"
        return f"Match({self.label!r}: {L} layers, {steps}; {B} prompts; mean best SimE {best:.3f})"

    @property
    def sime(self) -> Float[Tensor, "L T"]:
        """SimE(l, t): the mean cosine over sequences."""
        return self.cosine.mean(-1)

    @property
    def best_step(self) -> Float[Tensor, "B L"]:
        """t*(B, l) = argmax_t cosine, the first on ties; NaN for a layer whose predictions are not numbers."""
        best = self.cosine.nan_to_num(UNKNOWN).max(dim=1)
        return torch.where(best.values == UNKNOWN, torch.nan, self.steps[best.indices]).T

    @property
    def at_cap(self) -> Float[Tensor, "L"]:
        """Share of sequences whose best step is the last one: they would choose a later step if there were one."""
        return (self.best_step == self.steps[-1]).double().mean(0)

    def r2(self, first: float, last: float) -> float:
        """R2 of the mean best step against the layer, for layers first..last (the paper: 2..10)."""
        layers, steps = self._between(first, last, self.best_step.mean(0))
        return float(line_r2(layers, steps[None])[0])

    def line(self, first: float, last: float, *, seed: int, resamples: int = 1000) -> Line:
        """The fit behind `r2`, with its interval."""
        require_seed(seed=seed)
        require_count(1, 10**6, resamples=resamples)
        layers, best = self._between(first, last, self.best_step)
        centre = best.mean(0)
        means = best[resampled(len(best), resamples, seed)].mean(1)
        slope, intercept = np.polyfit(layers.numpy(), centre.numpy(), 1)
        low, high = interval(line_r2(layers, means), 0.95).tolist()
        r2 = float(line_r2(layers, centre[None])[0])
        return Line(r2=r2, slope=float(slope), intercept=float(intercept), interval=(low, high))

    def plot(self, *, ax: Any = None) -> Any:
        """SimE of every layer with every step, squares at each layer's most similar; the matplotlib axes are returned.

        Steps are on a logarithmic scale. ax: where to draw; left out, in a new figure of pyplot.
        """
        from layerstep import plotting

        ax = plotting.new_axes(6.5, 3.8) if ax is None else ax
        sime, layers, steps = (each.cpu().numpy() for each in (self.sime, self.layers, self.steps))
        best = steps[np.nan_to_num(sime, nan=UNKNOWN).argmax(1)]
        low = min(0.999, *sime[np.isfinite(sime)].tolist())
        with plotting.look():
            image = plotting.heat_map(ax, layers, steps, sime, best, low)
            ax.set(xlabel="layer", ylabel=f"step of {self.label}", title="how alike the errors are")
            ax.figure.colorbar(image, ax=ax, label="SimE")
        return ax

    def _between(self, first: float, last: float, steps: Float[Tensor, "*B L"]) -> tuple[Tensor, Tensor]:
        for argument, value in {"first": first, "last": last}.items():
            require(not math.isnan(as_float(value)), argument, quoted(value), "a number")
        keep = (self.layers >= as_float(first)) & (self.layers <= as_float(last))
        shown = f"{self.layers[0]:g}..{self.layers[-1]:g}"
        require(int(keep.sum()) >= 3, "first, last", f"{first}, {last}", f"a range with 3 layers or more of {shown}")
        return self.layers[keep], steps[..., keep]


def match(path: Trajectory, reference: Trajectory, target: Prompts | Array) -> Match:
    """SimE of every layer of `path` with every step of `reference`; `target` are the prompts, or their noisy labels."""
    require_kind("path", path, Trajectory)
    require_kind("reference", reference, Trajectory, "The order is path, reference, prompts.")
    require(
        path.values.shape[1:] == reference.values.shape[1:],
        "path, reference",
        f"{[path.B, path.N]} and {[reference.B, reference.N]} sequences and contexts",
        "predictions on the same prompts",
    )
    require(
        torch.equal(path.contexts, reference.contexts),
        "path, reference",
        f"contexts {path.contexts.tolist()} and {reference.contexts.tolist()}",
        "predictions at the same context lengths",
        "Make the reference with solve(..., contexts=path.contexts.tolist()).",
    )
    labels = path.labels(target).to("cpu", torch.float64)
    layers = directions(path.values.to(labels) - labels, labels)
    steps = directions(reference.values.to(labels) - labels, labels)
    # Products are summed vector by vector, not by a matrix product: equal iterates then tie exactly.
    pieces = [torch.stack([(layer * some).sum(-1) for layer in layers]) for some in steps.split(STEPS_AT_A_TIME)]
    cosine = torch.cat(pieces, dim=1)
    return Match(cosine=cosine, layers=path.stages, steps=reference.stages, label=reference.label)


def layers_won(matches: Mapping[str, Match], first: float = 1) -> dict[str, int]:
    """Number of layers >= first where each solver has the largest max_t SimE(l, t).

    A tie is won by nobody: step 0 is the same for all solvers, and layers that match it best tell none apart. Nor is a
    layer whose predictions are not numbers, and a step whose are not wins nothing.
    """
    given = isinstance(matches, Mapping) and all(isinstance(each, Match) for each in matches.values())
    require(given and len(matches) > 0, "matches", quoted(matches), "a dictionary of names and what ls.match gives")
    require(not math.isnan(as_float(first)), "first", quoted(first), "a number")
    layers = next(iter(matches.values())).layers
    same = all(torch.equal(match.layers, layers) for match in matches.values())
    require(same, "matches", "of different layers", "of the same path")
    best = torch.stack([match.sime.nan_to_num(UNKNOWN).amax(1) for match in matches.values()])
    won = winners(best) & (layers >= as_float(first)) & (best.amax(0) > UNKNOWN)
    return dict(zip(matches, won.sum(1).tolist(), strict=True))


def winners(best: Float[Tensor, "solver ..."]) -> Bool[Tensor, "solver ..."]:
    """Where a solver's value is the largest, and no other's is the same."""
    near = best >= best.amax(0) - TIE
    return near & (near.sum(0) == 1)


def directions(errors: Float[Tensor, "S B N"], labels: Float[Tensor, "B N"]) -> Float[Tensor, "S B N"]:
    """errors / |errors| of every sequence, 0 where they are but rounding of its labels."""
    norm = errors.norm(dim=-1, keepdim=True)
    rounding = norm <= TINY * labels.norm(dim=-1, keepdim=True)
    return torch.where(rounding, 0.0, errors / norm.clamp_min(torch.finfo(norm.dtype).tiny))


def line_r2(layers: Float[Tensor, "L"], steps: Float[Tensor, "R L"]) -> Float[Tensor, "R"]:
    """1 - SSR / SST of the line through (layers, steps): the squared correlation, NaN when steps are constant."""
    x = layers - layers.mean()
    y = steps - steps.mean(-1, keepdim=True)
    sst = y.square().sum(-1)
    equal = (steps == steps[..., :1]).all(-1)  # sst may be rounding of their mean
    slope = y @ x / x.square().sum()
    ssr = (y - slope.unsqueeze(-1) * x).square().sum(-1)
    return torch.where(equal, torch.nan, 1 - ssr / sst)
