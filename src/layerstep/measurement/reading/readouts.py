"""Three readings of every layer: what predicts the label best, what the model's own output will be, what its head says.

A probe fitted on y finds the best prediction in a state, whether the model uses it or not. An affine map fitted to the
model's own output finds what that output is already like. The model's own head, applied to a layer it was not trained
for (the lens), is the prediction where a network adds its prediction up at the query. Where the three disagree, what
is read depends on the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import InputError, require_callable, require_count, require_kind, require_seed
from layerstep.measurement.reading.hooks import EditableReader, GPTReader, first_points, reader_of, require_causal
from layerstep.measurement.reading.probes import FIRST_STEP, MOST_PROMPTS, PIECE, Moments, several
from layerstep.reprs import brief
from layerstep.tasks import Prompts, Trajectory, require_task, sample

#: From the state of a site at all tokens [B, T, W] to predictions at the reader's queries [B, Q].
Head = Callable[[Tensor], Tensor]
#: What each reading is called in a sentence.
NAMES = {"labels": "a probe fitted on y", "output": "a map to the model's output", "lens": "the model's own head"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Readouts:
    """The same layers, read three ways; `lens` is None where the model's head is not known."""

    labels: Trajectory
    output: Trajectory
    lens: Trajectory | None
    final: Float[Tensor, "B N"]  # the model's own predictions

    __repr__ = brief

    def named(self) -> dict[str, Trajectory]:
        found = {"labels": self.labels, "output": self.output}
        return found if self.lens is None else found | {"lens": self.lens}

    def disagreement(self) -> dict[tuple[str, str], Float[Tensor, "S"]]:
        """Per layer mean (a - b)² of two readings over the mean square of the model's own predictions."""
        named = self.named()
        size = self.final.square().mean().clamp_min(torch.finfo(self.final.dtype).tiny)
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


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerReaders:
    """The three readers of every site of a model, fitted: `read(prompts)` reads any prompts with them.

    labels, output: per site the weights [W+1] of an affine map, the last entry the intercept. contexts: the context
    lengths that are read, None for all of them.
    """

    reader: EditableReader
    labels: tuple[Float[Tensor, "_"], ...]
    output: tuple[Float[Tensor, "_"], ...]
    head: Head | None
    contexts: tuple[int, ...] | None = None

    def with_labels(self, weights: Sequence[Float[Tensor, "_"]]) -> LayerReaders:
        """The same with other probes on labels, such as those fitted on more prompts."""
        return replace(self, labels=tuple(weights))

    def read(self, prompts: Prompts) -> Readouts:
        """The three readings of `prompts`."""
        maps = {"labels": self.labels, "output": self.output}
        lengths = list(self.contexts or range(1, prompts.N + 1))

        def one(start: int) -> tuple[dict[str, Tensor], Tensor]:
            states, final, lens = _pass(self.reader, prompts[start : start + PIECE], self.head, lengths)
            found = {name: torch.stack(list(map(_apply, states, weights))) for name, weights in maps.items()}
            return (found | {"lens": torch.stack(lens)} if lens else found), final

        with several(self.reader, one, range(0, prompts.B, PIECE)) as pieces:
            parts, finals = zip(*pieces, strict=True)
        stages = list(self.reader.stages)
        paths = {
            name: Trajectory(torch.cat([part[name] for part in parts], dim=1), stages, name, lengths)
            for name in parts[0]
        }
        return Readouts(lens=paths.pop("lens", None), **paths, final=torch.cat(finals))


def fit_readers(
    model: Any,
    task: Any,
    *,
    fit: int = 1024,
    batch: int = 64,
    seed: int = 0,
    head: Head | None = None,
    contexts: Sequence[int] | None = None,
    progress: Callable[[float], None] | None = None,
) -> LayerReaders:
    """Fit the probe on labels and the map to the model's output at every site, on `fit` fresh prompts, in closed form.

    head: of a module that is not a layerstep GPT. contexts: which context lengths to fit on and to read, all of them
    by default; an open mask needs a forward pass for each.
    """
    require_task(task, "sample")
    require_count(1, MOST_PROMPTS, fit=fit)
    require_count(batch=batch)
    require_seed(seed=seed)
    if head is not None:
        require_callable("head", head, "a function from a state [B, T, W] to predictions at the queries [B, Q]")
    reader = reader_of(model)
    require_kind("model", reader, EditableReader, "Its reader has no run(prompts, edits): wrap the model in ls.Hooked.")
    if isinstance(reader, GPTReader) and head is None:
        head = _head_of(reader)
    lengths = list(contexts or range(1, task.N + 1))
    starts = range(0, fit, batch)

    def draw(start: int) -> Prompts:
        return sample(task, min(batch, fit - start), seed, FIRST_STEP + start)

    require_causal(reader, draw(0))

    def sums_of(start: int) -> list[_Sums]:
        prompts, sums = draw(start), []
        for first in range(0, prompts.B, PIECE):
            piece = prompts[first : first + PIECE]
            states, final, _ = _pass(reader, piece, None, lengths)  # type: ignore[arg-type]
            targets = [piece.y.to(final)[:, lengths], final]
            sums = _Sums.added(sums, [_Sums.of(h, targets) for h in states])
        return sums

    total: list[_Sums] = []
    with several(reader, sums_of, starts) as results:
        for done, sums in enumerate(results, start=1):
            total = _Sums.added(total, sums)
            if progress is not None:
                progress(done / len(starts))
    labels, output = (tuple(sums.weights(k) for sums in total) for k in (0, 1))
    chosen = None if contexts is None else tuple(lengths)
    return LayerReaders(reader=reader, labels=labels, output=output, head=head, contexts=chosen)  # type: ignore[arg-type]


def read_three_ways(
    model: Any,
    task: Any,
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
    return fit_readers(model, task, fit=fit, batch=batch, seed=seed, head=head).read(prompts)


@dataclass(kw_only=True)
class _Sums:
    """Sums over the tokens of one site for several targets y [k]: the moments of the states are made once."""

    states: Moments
    y: Float[Tensor, "k"]
    yh: Float[Tensor, "k W"]

    @staticmethod
    def of(h: Float[Tensor, "B n W"], targets: Sequence[Float[Tensor, "B n"]]) -> _Sums:
        y = torch.stack([target.flatten() for target in targets]).double()
        return _Sums(states=Moments.of(h, targets[0]), y=y.sum(1), yh=y @ h.flatten(0, 1).double())

    @staticmethod
    def added(total: list[_Sums], more: list[_Sums]) -> list[_Sums]:
        for sums, others in zip(total, more, strict=False):
            sums.states.add(others.states)
            sums.y.add_(others.y)
            sums.yh.add_(others.yh)
        return total or more

    def weights(self, target: int) -> Float[Tensor, "_"]:
        own = self.states
        return Moments(count=own.count, y=self.y[target], h=own.h, yh=self.yh[target], hh=own.hh).weights()


def _apply(state: Float[Tensor, "B n W"], weights: Float[Tensor, "_"]) -> Float[Tensor, "B n"]:
    weights = weights.to(state.device)
    return state.double() @ weights[:-1] + weights[-1]


def _head_of(reader: GPTReader) -> Head:
    """The head of a GPT at the reader's queries."""

    def head(state: Tensor) -> Tensor:
        said = reader.model.head(state)
        return said if reader.mask == "causal" else said[:, -1:]

    return head


@torch.no_grad()
def _pass(
    reader: EditableReader, prompts: Prompts, head: Head | None, lengths: list[int]
) -> tuple[list[Float[Tensor, "B n W"]], Float[Tensor, "B n"], list[Float[Tensor, "B n"]]]:
    """At x_{n+1} for n in `lengths`: the states of every site, the model's predictions, and what the head says."""
    causal = reader.mask == "causal"
    wholes = [prompts] if causal else [first_points(prompts, n + 1) for n in lengths]
    picked: list[int] = lengths if causal else [0]
    states: list[list[Tensor]] = [[] for _ in reader.sites]
    said: list[list[Tensor]] = [[] for _ in reader.sites]
    final = []
    for whole in wholes:
        recording = reader.run(whole)
        final.append(reader.predictions(recording)[:, picked].double())
        for index, state in enumerate(recording):
            states[index].append(state[:, reader.queries][:, picked])
            if head is not None:
                said[index].append(_said(head, state, picked))
    lens = [] if head is None else [torch.cat(parts, dim=1) for parts in said]
    return [torch.cat(parts, dim=1) for parts in states], torch.cat(final, dim=1), lens


def _said(head: Head, state: Tensor, picked: list[int]) -> Tensor:
    """What the head says at the picked queries."""
    must = "It must turn a state [B, T, W] into predictions at the queries [B, Q]."
    try:
        made = head(state)
    except Exception as error:  # a function of the user's
        raise InputError(f"head: raised {type(error).__name__}: {error}. {must}") from error
    if not isinstance(made, Tensor) or made.ndim != 2 or made.shape[1] <= max(picked):
        shape = list(made.shape) if isinstance(made, Tensor) else type(made).__name__
        raise InputError(f"head: gives {shape}. {must}")
    return made[:, picked].double()
