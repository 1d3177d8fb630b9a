"""Probes: one affine map per site from the hidden state at x_{n+1} to the label y_{n+1}, and the path they read off."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from layerstep.errors import (
    FileError,
    InputError,
    as_path,
    require,
    require_choice,
    require_count,
    require_kind,
    require_positive,
)
from layerstep.files import provenance, read_tensors, write_tensors
from layerstep.measurement.reading.hooks import GPTReader, Reader, digest_of, in_float64, reader_of, require_causal
from layerstep.progress import unasked
from layerstep.tasks import Prompts, TaskProtocol, Trajectory, require_task, sample
from layerstep.threads import Item, Result, one_per_worker
from layerstep.training import GPT

RIDGE = 1e-7  # of the mean variance of a coordinate
MOST_PROMPTS = 10**8
#: Steps of `sample` that probes are fitted on: far from those of evaluation prompts with the same seed.
FIRST_STEP = 2**40
#: The first of the x tokens that probes are fitted on.
FIRST_TOKEN = {"all": 0, "last": -1}
#: Prompts in a forward pass: few on a CPU, so that activations stay in a core's cache; an accelerator wants many.
PIECE, LARGE_PIECE = 16, 256


@dataclass(frozen=True, eq=False, kw_only=True)
class Probes:
    """weights: per site [W+1], the last entry the intercept. `path(prompts)` reads every site's prediction."""

    reader: Reader
    weights: tuple[Float[Tensor, "W1"], ...]
    facts: dict[str, Any]

    def __repr__(self) -> str:
        fitted = f", fitted on {count:,} prompts" if isinstance(count := self.facts.get("prompts"), int) else ""
        sites = f"{len(self.weights)} sites of width {len(self.weights[0]) - 1}" if self.weights else "no sites"
        return f"Probes({self.facts.get('label', 'model')!r}: {sites}{fitted})"

    def path(self, prompts: Prompts, *, batch: int | None = None) -> Trajectory:
        """Predictions at x_{n+1} from n examples, n = 1..N; stage l is the site after block l.

        batch: prompts in a forward pass, by default what suits the device.
        """
        require_kind("prompts", prompts, Prompts)
        batch = _piece(self.reader) if batch is None else batch
        require_count(batch=batch)

        @torch.no_grad()
        def read(start: int) -> Float[Tensor, "S b N"]:
            states = self.reader.states(prompts[start : start + batch])
            return torch.stack([self._read(s, w) for s, w in zip(states, self.weights, strict=True)])

        with several(self.reader, read, range(0, prompts.B, batch)) as pieces:
            values = torch.cat(list(pieces), dim=1)
        return Trajectory(values, list(self.reader.stages), self.facts.get("label", "model"))

    def self_check(self, prompts: Prompts, *, tolerance: float = 0.01) -> float:
        """Largest difference between this path and that of the model in float64 on the CPU, on 4 prompts.

        A layer that is NaN in both makes no difference; `identify` leaves it out and says so.
        """
        require_kind("prompts", prompts, Prompts)
        require_positive(tolerance=tolerance)
        few = prompts[:4]
        here = self.path(few).values.to("cpu", torch.float64)
        twin = Probes(reader=in_float64(self.reader), weights=self.weights, facts=self.facts)
        there = twin.path(few.to(torch.float64, "cpu")).values
        finite = here.isfinite() | there.isfinite()
        difference = float((here - there)[finite].abs().nan_to_num(torch.inf).max()) if finite.any() else 0.0
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
        write_tensors(as_path("file", file), tensors, {"layerstep": {"sites": self.reader.sites, "facts": self.facts}})

    @staticmethod
    def load(file: str | os.PathLike, model: Any) -> Probes:
        """The probes in `file`, for the model they were fitted on; another model's are refused."""
        tensors, header = read_tensors(as_path("file", file))
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
    task: TaskProtocol,
    *,
    prompts: int = 38_400,
    batch: int = 64,
    seed: int = 0,
    method: Literal["least-squares", "gradient"] = "least-squares",
    tokens: Literal["all", "last"] = "all",
    lr: float = 1e-2,
    label: str = "model",
    progress: Callable[[float], None] | None = None,
) -> Probes:
    """Fit min_w sum (w·(h, 1) - y_{n+1})² over fresh prompts and all N+1 x tokens, for every site of the model.

    "least-squares": the minimum itself, but for a ridge of 1e-7 of the mean variance, from second moments summed over
    the stream. "gradient": Adam, one step a batch, its rate falling from `lr` to 0; what the paper does, and an
    approximation of the same minimum. tokens="last": fitted on the last x token alone, as the paper words it once; they
    read all of them. A model whose states see the label they are to predict is refused.
    """
    stream = {"prompts": prompts, "batch": batch, "seed": seed, "method": method, "lr": lr, "label": label}
    with unasked("fitting probes") as show:
        return probe_each(model, task, [tokens], **stream, progress=progress or show)[0]


def probe_each(
    model: Any,
    task: TaskProtocol,
    tokens: Sequence[str],
    *,
    prompts: int = 38_400,
    batch: int = 64,
    seed: int = 0,
    method: str = "least-squares",
    lr: float = 1e-2,
    label: str = "model",
    progress: Callable[[float], None] | None = None,
) -> list[Probes]:
    """What `probe` gives for each of `tokens`, from one pass over the prompts."""
    require_task(task, "sample", "to_dict", remedy="It comes after the model.")
    require_count(1, MOST_PROMPTS, prompts=prompts)
    require_count(batch=batch)
    require_count(0, seed=seed)
    require_positive(lr=lr)
    require_choice("method", method, ["least-squares", "gradient"])
    for name in tokens:
        require_choice("tokens", name, FIRST_TOKEN)
    prompts, batch, seed = int(prompts), int(batch), int(seed)  # NumPy's numbers do not go into JSON
    reader = reader_of(model)

    def draw(index: int) -> Prompts:
        return sample(task, min(batch, prompts - index * batch), seed, FIRST_STEP + index)

    require_causal(reader, draw(0))
    fit = _least_squares if method == "least-squares" else functools.partial(_gradient, lr=lr)
    firsts = [FIRST_TOKEN[name] for name in tokens]
    found = fit(reader, draw, -(-prompts // batch), firsts, progress=progress or (lambda done: None))
    facts = {"prompts": prompts, "seed": seed, "method": method, "label": label}
    facts |= {"task": task.to_dict()}  # type: ignore[attr-defined]
    facts |= {"weights": digest_of(reader.model), "provenance": provenance()}
    return [
        Probes(reader=reader, weights=tuple(w.cpu() for w in weights), facts=facts | {"tokens": name})
        for name, weights in zip(tokens, found, strict=True)
    ]


Draw = Callable[[int], Prompts]


@dataclass(kw_only=True)
class Moments:
    """Sums over the tokens of 1, y, h, y h and h hᵀ for the states h of one site, in float64.

    The variances of a residual stream spread over ten orders of magnitude: products in float32, even of centred states,
    would lose the smallest directions, and with them the first layers.
    """

    count: int
    y: Float[Tensor, ""]
    h: Float[Tensor, "W"]
    yh: Float[Tensor, "W"]
    hh: Float[Tensor, "W W"]

    @staticmethod
    def of(h: Float[Tensor, "B M W"], y: Float[Tensor, "B M"]) -> Moments:
        h, y = h.flatten(0, 1).double(), y.flatten().to(h.device, torch.float64)
        half = h.shape[1] // 2  # a symmetric matrix: three quarters of the products are enough
        upper, rest = h[:, :half].mT @ h, h[:, half:].mT @ h[:, half:]
        hh = torch.cat([upper, torch.cat([upper[:, half:].mT, rest], dim=1)])
        return Moments(count=len(y), y=y.sum(), h=h.sum(0), yh=y @ h, hh=hh)

    def add(self, other: Moments) -> None:
        self.count += other.count
        for name in ("y", "h", "yh", "hh"):
            getattr(self, name).add_(getattr(other, name))

    def weights(self) -> Float[Tensor, "W1"]:
        """(C + 1e-7 mean(diag C) I) w = c, C and c the covariances of states and labels; the mean is not shrunk."""
        mean, mean_label = self.h / self.count, self.y / self.count
        C = self.hh / self.count - torch.outer(mean, mean)
        c = self.yh / self.count - mean * mean_label
        size = C.diagonal().mean().clamp_min(1e-200)  # states that never vary give w = 0
        w = torch.linalg.solve(C + RIDGE * size * torch.eye(len(C), dtype=C.dtype, device=C.device), c)
        return torch.cat([w, (mean_label - mean @ w)[None]])


def _least_squares(
    reader: Reader, draw: Draw, batches: int, firsts: Sequence[int], *, progress: Callable[[float], None]
) -> list[list[Tensor]]:
    """(C + ridge) w = c for every site, from second moments summed over the stream; the x tokens from each `first`."""
    size = _piece(reader)

    @torch.no_grad()
    def moments(index: int) -> list[Moments]:
        prompts, sums = draw(index), []
        for start in range(0, prompts.B, size):
            piece = prompts[start : start + size]
            states = list(reader.states(piece))
            sums = _added(sums, [Moments.of(h[:, first:], piece.y[:, first:]) for first in firsts for h in states])
        return sums

    total: list[Moments] = []
    with several(reader, moments, range(batches)) as results:
        for index, sums in enumerate(results):
            total = _added(total, sums)
            progress((index + 1) / batches)
    return _by_token([sums.weights() for sums in total], firsts)


def _added(total: list[Moments], more: list[Moments]) -> list[Moments]:
    """All sums with more added to them, in place."""
    for sums, others in zip(total, more, strict=False):
        sums.add(others)
    return total or more


def _gradient(
    reader: Reader, draw: Draw, batches: int, firsts: Sequence[int], *, progress: Callable[[float], None], lr: float
) -> list[list[Float[Tensor, "W1"]]]:
    """Adam on the mean squared error, all probes at once: they share no weights."""
    weights: list[Tensor] = []
    optimiser = None
    for step in range(batches):
        prompts = draw(step)
        with torch.no_grad():
            states = list(reader.states(prompts))
            inputs = [F.pad(h[:, first:].flatten(0, 1), (0, 1), value=1.0) for first in firsts for h in states]
        labels = [prompts.y[:, first:].flatten().to(h) for first in firsts for h in states]
        if optimiser is None:
            weights = [torch.zeros(h.shape[1], dtype=h.dtype, device=h.device, requires_grad=True) for h in inputs]
            optimiser = torch.optim.Adam(weights, lr=lr)
        for group in optimiser.param_groups:
            group["lr"] = lr * (1 - step / batches)
        loss = sum((h @ w - y).square().mean() for h, w, y in zip(inputs, weights, labels, strict=True))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[union-attr]
        optimiser.step()
        progress((step + 1) / batches)
    return _by_token([w.detach().double() for w in weights], firsts)


def _by_token(weights: list[Tensor], firsts: Sequence[int]) -> list[list[Tensor]]:
    """The sites of the first kind, of the second, and so on."""
    sites = len(weights) // len(firsts)
    return [weights[start : start + sites] for start in range(0, len(weights), sites)]


def _device(reader: Reader) -> torch.device:
    weights = next(reader.model.parameters(), None)
    return torch.device("cpu") if weights is None else weights.device


def _piece(reader: Reader) -> int:
    return PIECE if _device(reader).type == "cpu" else LARGE_PIECE


@contextmanager
def several(reader: Reader, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Iterator[Result]]:
    """work(item) for every item, in order. A GPT on a CPU does one item a core, which no busy core holds up.

    Other models may keep state between calls: theirs run one by one. Either way the numbers are the same.
    """
    if not isinstance(reader, GPTReader) or _device(reader).type != "cpu":
        yield map(work, items)
        return
    with one_per_worker(work, items) as results:
        yield results
