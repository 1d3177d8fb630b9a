"""The one type everything is compared in: predictions by stage, sequence and context length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.errors import InputError, as_float, in_words, require
from layerstep.tasks.prompts import Array, Prompts, as_float_tensor


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Trajectory:
    """values [S, B, N]: the prediction of stage s on sequence b at x_{n+1} from the first n examples.

    A stage is a solver's step, a model's layer or a constructed iteration; `stages` [S] numbers them.
    `contexts` [N] are the context lengths n, 1..N unless said otherwise.
    """

    values: Float[Tensor, "S B N"]
    stages: Float[Tensor, "S"]
    label: str
    contexts: Int[Tensor, "N"]

    def __init__(self, values: Array, stages: Array, label: str = "trajectory", contexts: Array | None = None) -> None:
        # Values may hold NaN (a layer that diverged): who reads the trajectory decides what that means.
        values = as_float_tensor("values", values, "S, B, N", finite=False)
        S, _, N = values.shape
        stages = as_float_tensor("stages", stages, "S").to("cpu", torch.float64)
        require(len(stages) == S, "stages", f"{len(stages)} numbers", f"{S} numbers, one per stage")
        require(bool((stages.diff() > 0).all()), "stages", stages.tolist(), "increasing")
        lengths = torch.arange(1, N + 1) if contexts is None else context_lengths(contexts)
        require(len(lengths) == N, "contexts", f"{len(lengths)} numbers", f"{N} numbers, one per context")
        fields = {"values": values, "stages": stages, "label": label, "contexts": lengths}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        stages = _abbreviate(self.stages.tolist())
        return f"Trajectory({self.label!r}, S={self.S}, B={self.B}, N={self.N}, stages [{stages}], {self.values.dtype})"

    @property
    def S(self) -> int:
        return self.values.shape[0]

    @property
    def B(self) -> int:
        return self.values.shape[1]

    @property
    def N(self) -> int:
        return self.values.shape[2]

    def at(self, stage: float) -> Float[Tensor, "B N"]:
        """Predictions of one stage."""
        index = torch.nonzero(self.stages == as_float(stage))
        if len(index) == 0:
            raise InputError(
                f"stage = {in_words(stage)}: this trajectory has stages {_abbreviate(self.stages.tolist())}."
            )
        return self.values[int(index)]

    def labels(self, target: Array | Prompts) -> Float[Tensor, "B N"]:
        """What the predictions are compared with: `target`, or the noisy labels of prompts at these contexts."""
        if isinstance(target, Prompts):
            longest = int(self.contexts.max())
            require(longest <= target.N, "contexts", f"up to {longest}", f"at most N = {target.N} of the prompts")
            target = target.target[:, self.contexts.to(target.y.device) - 1]
        target = as_float_tensor("target", target, "B, N")
        require(target.shape == (self.B, self.N), "target.shape", list(target.shape), f"{[self.B, self.N]}")
        return target

    def mse(self, target: Array | Prompts) -> Float[Tensor, "S N"]:
        """Mean over sequences of the squared error, by stage and context length."""
        return (self.values - self.labels(target).to(self.values)).square().mean(dim=1)

    def plot(self, target: Array | Prompts | None = None, *, ax: Any = None) -> Any:
        """Mean squared error by stage, a line for each of up to six context lengths; the matplotlib axes are returned.

        target: what `mse` takes; left out, the last stage: how far there still is to go. ax: where to draw; left out,
        in a new figure of pyplot.
        """
        from layerstep import plotting

        last = target is None
        errors = self.mse(self.values[-1].nan_to_num() if target is None else target).cpu()
        kept = sorted({round(k * (self.N - 1) / 5) for k in range(6)})
        ax = plotting.new_axes(6.5, 3.6) if ax is None else ax
        with plotting.look():
            for color, index in zip(plotting.context_colors(len(kept)), kept, strict=True):
                drawn = errors[:, index].where(errors[:, index] > 0, torch.nan)  # the last stage is 0 from itself
                marker = {"marker": "o", "markersize": 3} if self.S <= 30 else {}
                ax.plot(self.stages, drawn, color=color, label=f"n = {int(self.contexts[index])}", **marker)
            what = f"mean squared {'distance to the last stage' if last else 'error'}"
            uneven = float(self.stages[-1]) > 10 * self.S
            ax.set(xscale="symlog" if uneven else "linear", yscale="log", xlabel="stage")
            ax.set(ylabel=what, title=self.label)
            ax.legend(ncols=2)
        return ax


def context_lengths(contexts: Array, N: int | None = None) -> Int[Tensor, "C"]:
    """`contexts` as a tensor: increasing whole numbers from 1, up to N where there is one; InputError says why not."""
    numbers = as_float_tensor("contexts", contexts, "N").cpu()
    whole = bool((numbers == numbers.round()).all())
    shown = numbers.long().tolist() if whole else numbers.tolist()
    ordered = len(shown) > 0 and bool((numbers.diff() > 0).all())
    require(whole and ordered, "contexts", shown, "increasing whole numbers, at least one")
    inside = shown[0] >= 1 and (N is None or shown[-1] <= N)
    require(inside, "contexts", shown, "1 or more" if N is None else f"from 1 to {N}")
    return numbers.long()


def _abbreviate(numbers: list[float]) -> str:
    shown = [f"{number:g}" for number in numbers]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:4], "...", *shown[-2:]])
