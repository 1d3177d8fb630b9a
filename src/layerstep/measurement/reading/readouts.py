"""Three readings of every layer: what predicts the label best, what the model's own output will be, what its head says.

A probe fitted on y finds the best prediction in a state, whether the model uses it or not. An affine map fitted to the
model's own output finds what that output is already like. The model's own head, applied to a layer it was not trained
for (the lens), is the prediction where a network adds its prediction up at the query. Where the three disagree, what
is read depends on the reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require_count, require_kind, require_seed
from layerstep.measurement.reading.hooks import EditableReader, GPTReader, first_points, reader_of, require_causal
from layerstep.measurement.reading.probes import FIRST_STEP, Moments
from layerstep.tasks import Prompts, Task, Trajectory, sample

#: From the state of a site at all tokens [B, T, W] to predictions at the reader's queries [B, Q].
Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class Readouts:
    """The same layers, read three ways; `lens` is None where the model's head is not known."""

    labels: Trajectory
    output: Trajectory
    lens: Trajectory | None
    final: Float[Tensor, "B N"]  # the model's own predictions

    def named(self) -> dict[str, Trajectory]:
        found = {"labels": self.labels, "output": self.output}
        return found if self.lens is None else found | {"lens": self.lens}

    def disagreement(self) -> dict[tuple[str, str], Float[Tensor, "S"]]:
        """Per layer mean (a - b)² of two readings over the mean square of the model's own predictions."""
        named = self.named()
        size = self.final.square().mean()
        pairs = [(a, b) for a in named for b in named if a < b]
        return {(a, b): (named[a].values - named[b].values).square().mean((1, 2)) / size for a, b in pairs}

    def lines(self) -> list[str]:
        """One line per layer: how far apart the readings are."""
        found = self.disagreement()
        return [
            f"stage {stage:g}: "
            + ", ".join(f"{a} and {b} differ by {float(gap[s]):.2%}" for (a, b), gap in found.items())
            for s, stage in enumerate(self.labels.stages)
        ]


def read_three_ways(
    model: Any,
    task: Task,
    prompts: Prompts,
    *,
    fit: int = 1024,
    batch: int = 64,
    seed: int = 0,
    head: Head | None = None,
) -> Readouts:
    """Read `prompts` at every layer by a probe on labels, a map to the model's output, and its own head.

    fit: prompts that both maps are fitted on, in closed form. head: of a module that is not a layerstep GPT.
    """
    require_kind("prompts", prompts, Prompts)
    require_count(fit=fit, batch=batch)
    require_seed(seed=seed)
    reader = reader_of(model)
    require_kind("model", reader, EditableReader, "Its reader has no run(prompts, edits): wrap the model in ls.Hooked.")
    if isinstance(reader, GPTReader) and head is None:
        head = _head_of(reader)
    drawn = [sample(task, min(batch, fit - start), seed, FIRST_STEP + start) for start in range(0, fit, batch)]
    require_causal(reader, drawn[0])
    sums: dict[str, list[Moments]] = {}
    for part in drawn:
        states, final, _ = _passes(reader, part, None)  # type: ignore[arg-type]
        for name, target in {"labels": part.y.to(final)[:, 1:], "output": final}.items():
            more = [Moments.of(h, target) for h in states]
            for total, each in zip(sums.setdefault(name, more), more, strict=True):
                if total is not each:
                    total.add(each)
    maps = {name: [moments.weights() for moments in sums[name]] for name in sums}
    states, final, lens = _passes(reader, prompts, head)  # type: ignore[arg-type]
    stages = list(reader.stages)

    def read(name: str) -> Trajectory:
        weights = (w.to(h.device) for h, w in zip(states, maps[name], strict=True))
        values = [h.double() @ w[:-1] + w[-1] for h, w in zip(states, weights, strict=True)]
        return Trajectory(torch.stack(values), stages, name)

    through = Trajectory(torch.stack(lens), stages, "lens") if lens else None
    return Readouts(labels=read("labels"), output=read("output"), lens=through, final=final)


def _head_of(reader: GPTReader) -> Head:
    """The head of a GPT at the reader's queries."""

    def head(state: Tensor) -> Tensor:
        said = reader.model.head(state)
        return said if reader.mask == "causal" else said[:, -1:]

    return head


@torch.no_grad()
def _passes(
    reader: EditableReader, prompts: Prompts, head: Head | None
) -> tuple[list[Float[Tensor, "B N W"]], Float[Tensor, "B N"], list[Float[Tensor, "B N"]]]:
    """At x_2..x_{N+1}: the states of every site, the model's predictions, and what the head says of every site."""
    causal = reader.mask == "causal"
    wholes = [prompts] if causal else [first_points(prompts, n + 1) for n in range(1, prompts.N + 1)]
    first = 1 if causal else 0
    states: list[list[Tensor]] = [[] for _ in reader.sites]
    said: list[list[Tensor]] = [[] for _ in reader.sites]
    final = []
    for whole in wholes:
        recording = reader.run(whole)
        final.append(reader.predictions(recording)[:, first:].double())
        for index, state in enumerate(recording):
            states[index].append(state[:, reader.queries][:, first:])
            if head is not None:
                said[index].append(head(state)[:, first:].double())
    lens = [] if head is None else [torch.cat(parts, dim=1) for parts in said]
    return [torch.cat(parts, dim=1) for parts in states], torch.cat(final, dim=1), lens
