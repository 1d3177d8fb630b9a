"""Passes through a model for the causal instrument: states at the examples, and the gradient of one prediction.

A batch has one context length n: the prediction at x_{n+1} from n examples is the one that is watched. Under a causal
mask the model sees the whole prompts and answers all lengths; under an open mask it sees the first n+1 points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import InputError
from layerstep.measurement.reading.edits import Edit, Recording
from layerstep.measurement.reading.hooks import EditableReader, first_points
from layerstep.tasks import Prompts, sample

#: Prompts in a pass.
PIECE = 16
#: Steps of `sample` from which the instrument draws; far from those of probes and evaluations.
FIRST_STEP = 2**41


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """Prompts whose prediction at x_{n+1} is watched."""

    prompts: Prompts  # what the model sees
    prefix: Prompts  # the n examples and the query
    n: int

    def pieces(self, size: int = PIECE) -> Iterator[Batch]:
        for start in range(0, self.prompts.B, size):
            part = slice(start, start + size)
            yield Batch(prompts=self.prompts[part], prefix=self.prefix[part], n=self.n)


def draw(reader: EditableReader, task: Any, count: int, seed: int, stream: int) -> list[Batch]:
    """`count` fresh prompts in batches of three context lengths: N, about 3N/4 and about N/2."""
    lengths = sorted({task.N, max(2, round(0.75 * task.N)), max(2, round(0.5 * task.N))}, reverse=True)
    prompts = sample(task, count, seed, FIRST_STEP + stream)
    batches = []
    for index, n in enumerate(lengths):
        part = prompts[index :: len(lengths)]
        prefix = first_points(part, n + 1)
        batches.append(Batch(prompts=part if reader.mask == "causal" else prefix, prefix=prefix, n=n))
    return batches


def at_examples(reader: EditableReader, state: Float[Tensor, "B T W"], n: int) -> Float[Tensor, "B n W"]:
    return state[:, reader.examples][:, :n]


def at_query(reader: EditableReader, values: Tensor, n: int) -> Tensor:
    """The entry of the query x_{n+1} along axis 1, which runs over the reader's queries."""
    return values[:, n if reader.mask == "causal" else 0]


def prediction(reader: EditableReader, recording: Recording, n: int) -> Float[Tensor, "B"]:
    return at_query(reader, reader.predictions(recording), n)


@torch.no_grad()
def record(reader: EditableReader, batch: Batch, edits: dict[str, Edit] | None = None) -> Recording:
    return reader.run(batch.prompts, edits or {})


@dataclass(frozen=True, eq=False, kw_only=True)
class Gradients:
    """Derivatives by the state of every site, in float64 on the CPU.

    examples, query: of the watched prediction, by the states at the examples and at the query. one_on: of what is read
    at the query one site later, by the states at the examples; one fewer than sites.
    """

    examples: list[Float[Tensor, "_ _ _"]]
    query: list[Float[Tensor, "_ _"]]
    one_on: list[Float[Tensor, "_ _ _"]]


def gradients(reader: EditableReader, batch: Batch, read: Sequence[Float[Tensor, "_"]]) -> Gradients:
    """One forward and one backward pass per piece: a shift of zero is written into every site at once.

    read: per site the reader of the model's output at a query.
    """
    parts = [_gradients(reader, piece, read) for piece in batch.pieces()]

    def joined(name: str) -> list[Tensor]:
        return [torch.cat(pieces) for pieces in zip(*(getattr(part, name) for part in parts), strict=True)]

    return Gradients(examples=joined("examples"), query=joined("query"), one_on=joined("one_on"))


def _gradients(reader: EditableReader, batch: Batch, read: Sequence[Float[Tensor, "_"]]) -> Gradients:
    sites, n = reader.sites, batch.n
    shifts: dict[str, Tensor] = {}

    def shift(site: str) -> Edit:
        def edit(h: Tensor) -> Tensor:
            shifts[site] = torch.zeros_like(h, requires_grad=True)
            return h + shifts[site]

        return edit

    def moved(gradient: Tensor | None, site: str) -> Tensor:
        gradient = torch.zeros_like(shifts[site]) if gradient is None else gradient
        return gradient.detach().to("cpu", torch.float64)

    with torch.enable_grad():
        recording = reader.run(batch.prompts, {site: shift(site) for site in sites})
        watched = prediction(reader, recording, n).sum()
        later = [
            (at_query(reader, state[:, reader.queries], n) @ u.to(state)).sum()
            for state, u in zip(recording[1:], read[1:], strict=True)
        ]
    if not watched.requires_grad:
        raise InputError("model: its predictions have no gradient. Remove torch.no_grad() or .detach() inside it.")
    one_on = []
    for site, value in zip(sites, later, strict=False):
        (gradient,) = torch.autograd.grad(value, [shifts[site]], retain_graph=True, allow_unused=True)
        one_on.append(at_examples(reader, moved(gradient, site), n))
    found = torch.autograd.grad(watched, [shifts[site] for site in sites], allow_unused=True)
    whole = [moved(gradient, site) for site, gradient in zip(sites, found, strict=True)]
    return Gradients(
        examples=[at_examples(reader, gradient, n) for gradient in whole],
        query=[at_query(reader, gradient[:, reader.queries], n) for gradient in whole],
        one_on=one_on,
    )


def states(
    reader: EditableReader, batches: Sequence[Batch]
) -> tuple[list[list[Float[Tensor, "_ _ _"]]], list[list[Float[Tensor, "_ _"]]], list[Float[Tensor, "_"]]]:
    """Per site and batch the states at the examples and at the query, and per batch the model's predictions."""
    examples: list[list[Tensor]] = [[] for _ in reader.sites]
    queries: list[list[Tensor]] = [[] for _ in reader.sites]
    outputs = []
    for batch in batches:
        parts = [record(reader, piece) for piece in batch.pieces()]
        outputs.append(torch.cat([prediction(reader, part, batch.n) for part in parts]).to("cpu", torch.float64))
        for index in range(len(reader.sites)):
            whole = [at_examples(reader, part[index], batch.n).cpu() for part in parts]
            asked = [at_query(reader, part[index][:, reader.queries], batch.n).cpu() for part in parts]
            examples[index].append(torch.cat(whole))
            queries[index].append(torch.cat(asked))
    return examples, queries, outputs
