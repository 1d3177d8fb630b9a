"""Probes: one affine map per site from the hidden state at x_{n+1} to the label y_{n+1}, and the path they read off."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import FileError, InputError, require, require_choice, require_count
from layerstep.files import provenance, read_tensors, write_tensors
from layerstep.measurement.readers import GPTReader, Reader, digest_of, in_float64, reader_of
from layerstep.tasks import Path, Prompts, Task, sample
from layerstep.training import GPT

RIDGE = 1e-7  # of the mean variance of a coordinate
#: Steps of `sample` that probes are fitted on: far from those of evaluation prompts with the same seed.
FIRST_STEP = 2**40


@dataclass(frozen=True, eq=False, kw_only=True)
class Probes:
    """weights: per site [W+1], the last entry the intercept. `path(prompts)` reads every site's prediction."""

    reader: Reader
    weights: tuple[Float[Tensor, "W1"], ...]
    facts: dict[str, Any]

    @torch.no_grad()
    def path(self, prompts: Prompts, *, batch: int = 256) -> Path:
        """Predictions at x_{n+1} from n examples, n = 1..N; stage l is the site after block l."""
        pieces = []
        for start in range(0, prompts.B, batch):
            states = self.reader.states(prompts[start : start + batch])
            pieces.append(torch.stack([self._read(s, w) for s, w in zip(states, self.weights, strict=True)]))
        return Path(torch.cat(pieces, dim=1), list(self.reader.stages), self.facts.get("label", "model"))

    def self_check(self, prompts: Prompts, *, tolerance: float = 0.01) -> float:
        """Largest difference between this path and that of the model in float64 on the CPU, on 4 prompts."""
        few = prompts[:4]
        here = self.path(few).values.to("cpu", torch.float64)
        twin = Probes(reader=in_float64(self.reader), weights=self.weights, facts=self.facts)
        there = twin.path(few.to(torch.float64, "cpu")).values
        difference = float((here - there).abs().max())
        remedy = "The device or dtype changes the predictions: run the model in float32 or float64, or on the CPU."
        require(
            difference <= tolerance,
            "difference to the CPU in float64",
            f"{difference:.2g}",
            f"<= {tolerance:g}",
            remedy,
        )
        return difference

    def save(self, file: str | os.PathLike) -> None:
        """One safetensors file: the weights by site, the facts in its header."""
        tensors = {f"{index}": weight for index, weight in enumerate(self.weights)}
        write_tensors(file, tensors, {"layerstep": {"sites": self.reader.sites, "facts": self.facts}})

    @staticmethod
    def load(file: str | os.PathLike, model: Any) -> Probes:
        """The probes in `file`, for the model they were fitted on; another model's are refused."""
        tensors, header = read_tensors(file)
        try:
            sites, facts = header["layerstep"]["sites"], header["layerstep"]["facts"]
            weights = tuple(tensors[f"{index}"] for index in range(len(sites)))
        except (KeyError, TypeError) as error:
            raise FileError(f"{file} holds no layerstep probes (no {error}). Fit them with ls.probe.") from error
        reader = reader_of(model)
        if isinstance(model, GPT) and any(site.startswith("attention") for site in sites):
            reader = GPTReader(model, attention=True)
        have = list(reader.sites)
        require(sites == have, "sites", sites, f"{have}, the sites of this model", "Fit its own probes with ls.probe.")
        ours = digest_of(reader.model)
        theirs = facts.get("weights", ours)  # older files do not name their model
        if theirs != ours:
            raise InputError(
                f"{file}: these probes were fitted on a model with other weights ({theirs}) than this one ({ours}). "
                "Fit its own with ls.probe or `layerstep probe`."
            )
        return Probes(reader=reader, weights=weights, facts=facts)

    @staticmethod
    def _read(state: Float[Tensor, "B M W"], weights: Float[Tensor, "W1"]) -> Float[Tensor, "B N"]:
        weights = weights.to(state.device)
        return state[:, 1:].double() @ weights[:-1] + weights[-1]


def probe(
    model: Any,
    task: Task,
    *,
    prompts: int = 38_400,
    batch: int = 256,
    seed: int = 0,
    method: Literal["least-squares", "gradient"] = "least-squares",
    lr: float = 1e-2,
    label: str = "model",
    progress: Callable[[float], None] | None = None,
) -> Probes:
    """Fit min_w sum (w·(h, 1) - y_{n+1})² over fresh prompts and all N+1 x tokens, for every site of the model.

    "least-squares": the minimum itself, from second moments summed over the stream. "gradient": Adam, one step a
    batch, its rate falling from `lr` to 0; what the paper does, and an approximation of the same minimum.
    """
    require_count(prompts=prompts, batch=batch)
    require_choice("method", method, ["least-squares", "gradient"])
    reader = reader_of(model)
    fit = _least_squares if method == "least-squares" else _gradient
    stream = _stream(reader, task, prompts, batch, seed, progress)
    weights = fit(stream, lr, -(-prompts // batch))
    facts = {"task": task.to_dict(), "prompts": prompts, "seed": seed, "method": method, "label": label}
    facts["weights"] = digest_of(reader.model)
    return Probes(reader=reader, weights=tuple(w.cpu() for w in weights), facts=facts | {"provenance": provenance()})


Stream = Iterator[tuple[list[Float[Tensor, "K W1"]], Float[Tensor, "K"]]]


def _stream(reader: Reader, task: Task, prompts: int, batch: int, seed: int, progress) -> Stream:
    """(states with a column of ones, labels) of one batch after another."""
    for index, start in enumerate(range(0, prompts, batch)):
        drawn = sample(task, min(batch, prompts - start), seed, FIRST_STEP + index)
        with torch.no_grad():
            states = [state.flatten(0, 1) for state in reader.states(drawn)]
            ones = [torch.cat([state, torch.ones_like(state[:, :1])], dim=1) for state in states]
        yield ones, drawn.y.flatten().to(ones[0])
        if progress is not None:
            progress(min(1.0, (start + batch) / prompts))


def _least_squares(stream: Stream, lr: float, steps: int) -> list[Float[Tensor, "W1"]]:
    """(C + 1e-7 mean(diag C) I) w = c, C and c the covariances of states and labels; the intercept is not shrunk.

    Second moments are summed in float64: residual streams have a mean a hundred times their smallest deviations, and
    products in float32 would lose those.
    """
    moments: list[Tensor] = []
    for states, labels in stream:
        for index, h in enumerate(states):
            h = h.double()
            products = h.mT @ torch.cat([h, labels[:, None].double()], dim=1)
            if index == len(moments):
                moments.append(products)
            else:
                moments[index] += products
    weights = []
    for moment in moments:
        count, mean = moment[-1, -2], moment[-1, :-2] / moment[-1, -2]
        mean_label = moment[-1, -1] / count
        C = moment[:-1, :-2] / count - torch.outer(mean, mean)
        c = moment[:-1, -1] / count - mean * mean_label
        ridge = RIDGE * C.diagonal().mean() * torch.eye(len(C), dtype=C.dtype, device=C.device)
        w = torch.linalg.solve(C + ridge, c)
        weights.append(torch.cat([w, (mean_label - mean @ w)[None]]))
    return weights


def _gradient(stream: Stream, lr: float, steps: int) -> list[Float[Tensor, "W1"]]:
    """Adam on the mean squared error, all sites at once: they share no weights."""
    weights: list[Tensor] = []
    optimiser = None
    for step, (states, labels) in enumerate(stream):
        if optimiser is None:
            weights = [torch.zeros(h.shape[1], dtype=h.dtype, device=h.device, requires_grad=True) for h in states]
            optimiser = torch.optim.Adam(weights, lr=lr)
        for group in optimiser.param_groups:
            group["lr"] = lr * (1 - step / steps)
        loss = sum((h @ w - labels).square().mean() for h, w in zip(states, weights, strict=True))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[union-attr]
        optimiser.step()
    return [w.detach().double() for w in weights]
