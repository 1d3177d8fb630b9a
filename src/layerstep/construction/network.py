"""`Construction`: the constructed transformer as a torch.nn.Module that predicts, with a bound on every prediction."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerstep.construction import files
from layerstep.construction.blocks import Block
from layerstep.construction.certificate import Prediction, certify, norm, underflow
from layerstep.construction.executor import BUDGET, Pass, Program
from layerstep.construction.fitting import farthest, require_fitting, spread
from layerstep.construction.iterates import Iterates, follow, grid, states
from layerstep.construction.schemes.base import Scheme
from layerstep.errors import InputError, as_float, quoted, require, require_count, require_kind
from layerstep.tasks.prompts import Array, Prompts, as_float_tensor
from layerstep.tasks.trajectory import Trajectory, context_lengths

# Many prompts are run in pieces whose attention weights stay in a processor's cache.
_CACHE = 2**22
_EXPANDED = 2**24


class Construction(nn.Module):
    """A transformer whose weights are constructed, and that solves kernel ridge regression in its forward pass.

    `predict` answers one prompt with a bound, `path` gives the read-out after every iteration on every prefix of
    many prompts, `forward` maps a stream to a stream by the definition.
    """

    def __init__(self, scheme: Scheme, arguments: dict[str, Any]) -> None:
        super().__init__()
        #: `problem` is what the network was constructed for, `arguments` what `construct` was given.
        self.scheme, self.problem, self.arguments = scheme, scheme.problem, arguments
        self.stream = scheme.stream
        self._told = False
        self.is_built = not scheme.too_large  # a network too large to build has its certificate only
        if self.is_built:
            made = scheme.blocks()
            blocks = [block for group in (*made.iterations, made.readout) for block in group]
            self._modules["blocks"] = nn.ModuleList(blocks)
            self._lengths, self._whole = [len(group) for group in made.iterations], made.whole
        self.certificate = scheme.certificate(tally(blocks) if self.is_built else scheme.counts())

    @property
    def blocks(self) -> nn.ModuleList:
        """The blocks, in order; InputError for a network that was certified but not built."""
        if not self.is_built:
            raise InputError(
                f"this network has {self.depth:,} blocks of width {self.width:,} and needs "
                f"{8 * self.certificate.stored:.2g} bytes of weights: it is certified, not built. "
                'Ask for a larger eps or error, or use scheme="compact".'
            )
        return self._modules["blocks"]  # type: ignore[return-value]

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return self.certificate.depth

    @property
    def width(self) -> int:
        """Hidden units of the widest MLP."""
        return self.certificate.width

    @property
    def L(self) -> int:
        """The number of iterations."""
        return self.certificate.L

    @property
    def iterations(self) -> tuple[int, ...]:
        """How many blocks each iteration has, in order; what comes after them is the read-out."""
        return tuple(self._lengths) if self.is_built else ()

    def __repr__(self) -> str:
        return f"Construction({self.certificate.scheme}: {self.depth:,} blocks of width {self.width:,})"

    def forward(self, Z: Float[Tensor, "B T D"], kinds: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The stream after all blocks, by the definition. `stream.embed` makes Z and kinds."""
        self.stream.check(Z, kinds)
        for block in self.blocks:
            Z = block(Z, kinds)
        return Z

    @torch.no_grad()
    def predict(self, x: Array, y: Array, xq: Array, *, budget: int = BUDGET, input_error: float = 0.0) -> Prediction:
        """Predictions at queries xq [M, d] from examples x [n, d], y [n], each with its bound.

        budget: attention weights of more bytes than this are recomputed for every block instead of stored.
        input_error: the relative error of the numbers in x, y and xq, where they were rounded; bounds include it.
        """
        require_count(0, budget=budget)
        require(0 <= as_float(input_error) < 1, "input_error", quoted(input_error), "a number from 0 to 1, without 1")
        scheme, problem, dtype = self.scheme, self.problem, self.dtype
        x, y, xq = self._prompt(x, y, xq, exact=not input_error)
        if problem.scales is not None:  # quotients, and differences before them, are rounded
            input_error = min(input_error + torch.finfo(torch.float64).eps, 1 - 2.0**-53)
        last = states(self, x, y, xq, [self.L], budget)[self.L]
        promised = scheme.promised(y, spread(x) / problem.kernel.v, dtype)
        apart = farthest(x, xq) if problem.kernel.reach < math.inf else 0.0
        within = apart <= problem.kernel.reach * (1 + 1e-12)
        if not within:
            promised = None
            self._tell_reach(apart)
        answer = certify(x, y, xq, last.w, last.value, problem.kernel, problem.lam, promised, input_error)
        answer = replace(answer, inside=last.inside)
        largest = float(y.abs().max()) if len(y) else 0.0
        require(
            bool((answer.bound < math.inf).all()),
            "y",
            f"labels up to {largest:.3g}",
            f"so small that no number of the forward pass leaves the range of {dtype}, {torch.finfo(dtype).max:.2g}",
            scheme.failure
            or "Use float64, divide the labels and multiply the prediction, or construct with fewer steps.",
        )
        certified = self.certificate.bound if largest <= problem.B_y and within else None
        if scheme.failure:
            trivial = norm(y) / (2 * math.sqrt(problem.lam)) + underflow(len(y), problem.lam)
            # Of steps that were counted the certificate may be 1e-60, below rounding; nobody asked for that.
            asked = self.arguments["error"] is not None
            limit = trivial if certified is None or not asked else min(trivial, certified)
            self._tell_failure(int((answer.bound > limit).sum()), len(xq), "bound", limit)
            return answer
        above = answer.above_promise | (answer.bound > (math.inf if certified is None else certified))
        if above.any() and not self._told:
            self._tell(answer, int(above.sum()), certified)
        return answer

    def unit(self, y: Float[Tensor, "*B n"]) -> Float[Tensor, "*B one"]:
        """What labels are divided by: a power of two near the largest, where squares of residuals are computed; or 1.

        It changes no digit of a prediction, which is linear in the labels.
        """
        if "cert" not in self.stream or not y.shape[-1]:
            return y.new_ones(*y.shape[:-1], 1)
        largest = y.abs().amax(-1, keepdim=True).double()
        return torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 1).to(y)

    def _tell_failure(self, failed: int, predictions: int, what: str, limit: float) -> None:
        if failed:
            warnings.warn(
                f"{failed:,} of {predictions:,} predictions have a {what} above {limit:.2g}, what the certificate or "
                f"predicting 0 has. {self.scheme.failure}",
                stacklevel=4,  # past torch's decorator
            )

    def _tell_reach(self, apart: float) -> None:
        kernel = self.problem.kernel
        warnings.warn(
            f"points {apart:.3g} apart: the kernel was fitted for distances up to {kernel.reach:.3g}, to "
            f"{kernel.error:.1g}; beyond, its Gaussians may miss {kernel.beyond:.1g}. Nothing is promised for this "
            "prompt; the bounds of its predictions hold. Construct with a larger B_x.",
            stacklevel=4,  # past torch's decorator
        )

    def _tell(self, answer: Prediction, above: int, certified: float | None) -> None:
        """Say once that bounds are above what was promised: for inputs far apart, or errors near rounding."""
        self._told = True
        promise = answer.promised if answer.promised == math.inf or certified is None else certified
        promised = "nothing can be promised" if promise == math.inf else f"promised were {promise:.2g}"
        largest = float(answer.bound.max())
        warnings.warn(
            f"{above} of {len(answer.bound)} predictions have a bound above the promise, up to {largest:.2g} where "
            f"{promised}: rounding in {self.dtype} for these inputs and labels. "
            "The bounds hold. Inputs closer together or more precision help.",
            stacklevel=4,  # past torch's decorator
        )

    def iterates(self, x: Array, y: Array, xq: Array, *, stages: Sequence[int] | None = None) -> Iterates:
        """One prompt, iteration by iteration: prediction, bound, residual, and which examples are read.

        `stages` keep some of 0..L. What is not finite has diverged; its bound is infinite.
        """
        return follow(self, *self._prompt(x, y, xq), self.stages(stages))

    def plot(self, x: Array, y: Array, xq: Array | None = None, *, axes: Any = None) -> Any:
        """A figure of `iterates`, of at most 200 stages; three matplotlib axes are returned.

        xq left out: a grid over the range of x in one dimension, the examples themselves in more.
        """
        if xq is None:
            points = as_float_tensor("x", x, "n, d")
            require(len(points) > 0, "x.shape", list(points.shape), "one example or more where xq is left out")
            xq = grid(points) if points.shape[1] == 1 else points
        some = sorted({round(k * self.L / 200) for k in range(201)})
        return self.iterates(x, y, xq, stages=some).plot(axes)

    @torch.no_grad()
    def path(
        self, prompts: Prompts, *, stages: Sequence[int] | None = None, contexts: Sequence[int] | None = None
    ) -> Trajectory:
        """The read-out after every iteration on every prefix; stage 0 is the prediction 0.

        `stages` and `contexts` keep some of 0..L and of 1..N. The paper's network knows no prompt shorter than N:
        its path has the one context N.
        """
        require_kind("prompts", prompts, Prompts, "Make them with ls.Prompts(x, y) or ls.sample(task, B, seed).")
        problem, N = self.problem, prompts.N
        require(prompts.d == problem.d, "prompts.d", prompts.d, f"{problem.d}, as this network was built for")
        if contexts is None:
            contexts = range(1, N + 1) if self.scheme.flexible else [problem.N]
        n = context_lengths(contexts, min(N, problem.N))
        every = problem.scaled(prompts.x)
        self.require_prompts(every[:, :-1], prompts.y[:, :-1], every[:, -1:], n)
        kept = {stage: index for index, stage in enumerate(self.stages(stages))}

        B, most = prompts.B, int(n.max())
        values, failed = torch.empty(len(kept), B, len(n), dtype=self.dtype), 0
        # A prompt for every prefix is N times the data: so many sequences at a time.
        group = max(1, _EXPANDED // (len(n) * most * prompts.d))
        for first in range(0, B, group):
            x, y = every[first : first + group], prompts.y[first : first + group]
            unit = self.unit(y)
            y = y / unit
            unit = unit.expand(-1, len(n)).flatten().cpu()
            for piece, run in self.pieces(
                x[:, None, :most].expand(-1, len(n), -1, -1).flatten(0, 1),
                y[:, None, :most].expand(-1, len(n), -1).flatten(0, 1),
                x[:, n].flatten(0, 1)[:, None],
                n.repeat(len(x)),
            ):
                begin = first * len(n) + piece.start
                with run.threads():
                    for stage in run.iterate():
                        if stage in kept:
                            out = run.read_out()[..., 0]
                            some = slice(begin, begin + out.shape[1])
                            values[kept[stage]].view(-1)[some] = unit[piece] * out[self.stream.row("y")].cpu()
                            if "cert" in self.stream and kept[stage] == len(kept) - 1:
                                labels = run.Z[self.stream.row("y"), :, run.spans["train"]].square().sum(1)
                                inside = out[self.stream.row("cert")]
                                failed += int((~(inside <= labels / (4 * problem.lam) + 1e-300)).sum())
        trivial = float(prompts.y.double().norm(dim=1).max()) / (2 * math.sqrt(problem.lam))
        self._tell_failure(failed, B * len(n), "certificate, from inside,", trivial)
        lost = int((~values.isfinite()).sum())
        if lost:
            warnings.warn(
                f"{lost:,} of {values.numel():,} values of this path are not finite: the steps diverge, or the labels "
                f"are too large for {self.dtype}. Keep fewer `stages`, or use a smaller eta, labels or float64.",
                stacklevel=3,  # past torch's decorator
            )
        label = f"{self.certificate.scheme} construction"
        return Trajectory(values, torch.tensor(list(kept), dtype=torch.float64), label, n)

    def stages(self, wanted: Sequence[int] | None = None) -> list[int]:
        """The stages asked for, by default all: 0, .., L."""
        if wanted is None:
            return list(range(self.L + 1))
        stages = as_float_tensor("stages", wanted, "S").tolist()
        ordered = len(stages) > 0 and all(a < b for a, b in pairwise(stages))
        whole = ordered and all(stage == int(stage) for stage in stages) and stages[0] >= 0 and stages[-1] <= self.L
        require(whole, "stages", list(wanted), f"increasing whole numbers from 0 to L = {self.L}")
        return [int(stage) for stage in stages]

    def save(self, path: str | os.PathLike) -> Path:
        """Write weights, layout, the arguments of `construct` and the certificate to one safetensors file."""
        return files.save(self, path)

    def export(self, folder: str | os.PathLike) -> Path:
        """Write `model.py`, which needs torch and safetensors only, and its `weights.safetensors`."""
        return files.export(self, folder)

    @staticmethod
    def load(path: str | os.PathLike) -> Construction:
        """The network that `save` wrote, in the precision it was saved in."""
        return files.load(path)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.blocks.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.blocks.parameters()).device

    def pieces(
        self,
        x: Float[Tensor, "B n d"],
        y: Float[Tensor, "B n"],
        xq: Float[Tensor, "B M d"],
        counts: Int[Tensor, "B"] | None = None,
        budget: int = BUDGET,
    ) -> Iterator[tuple[slice, Pass]]:
        """Forward passes not yet begun, each over some prompts; of prompt b the first counts[b] examples count."""
        program = Program(list(self.blocks), self._lengths, self._whole)  # type: ignore[arg-type]
        weight = next(self.parameters())
        B, n, _ = x.shape
        size = max(1, _CACHE // (8 * (1 + n) * (1 + n + xq.shape[1])))
        for start in range(0, B, size):
            piece = slice(start, min(start + size, B))
            some = None if counts is None else counts[piece]
            z, zq = x[piece].to(weight.device), xq[piece].to(weight.device)
            if self.scheme.flexible:
                # The kernel does not see a shift; inner products in the logits do, by rounding.
                used = torch.full((len(z),), n) if some is None else some
                inside = (torch.arange(n) < used[:, None]).to(z)[..., None]
                centre = (z * inside).sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp_min(1)
                z, zq = z - centre, zq - centre
            some = None if some is None else some.to(weight.device)
            Z, kinds = self.stream.embed(z.to(weight), y[piece].to(weight), zq.to(weight), some)
            yield piece, Pass(program, Z, kinds, n, budget)

    def _prompt(self, x: Array, y: Array, xq: Array, exact: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        d = self.problem.d
        x, y, xq = (
            as_float_tensor(name, value, axes).to("cpu", torch.float64)
            for name, value, axes in (("x", x, "n, d"), ("y", y, "n"), ("xq", xq, "M, d"))
        )
        require(x.shape[1] == d, "x.shape", list(x.shape), f"[n, {d}]: n examples of dimension {d}")
        require(y.shape == (len(x),), "y.shape", list(y.shape), f"[{len(x)}], a label for every row of x")
        require(xq.shape[1] == d, "xq.shape", list(xq.shape), f"[M, {d}]: M queries of dimension {d}")
        require(len(xq) > 0, "xq.shape", list(xq.shape), "one query or more")
        if self.problem.scales is not None and self.scheme.flexible and exact and len(x):
            # A quotient far from 0 loses the digits of small differences, and the kernel sees no shift.
            centre = x.mean(0)
            x, xq = x - centre, xq - centre
        x, xq = self.problem.scaled(x), self.problem.scaled(xq)
        self.require_prompts(x[None], y[None], xq[None], torch.tensor([len(x)]))
        return x, y, xq

    def require_prompts(
        self, x: Float[Tensor, "B n d"], y: Float[Tensor, "B n"], xq: Float[Tensor, "B M d"], n: Int[Tensor, "contexts"]
    ) -> None:
        """Refuse, with every reason, inputs, labels, queries and example counts outside the theorem."""
        require_fitting(self, x, y, xq, n)


def tally(blocks: Sequence[Block]) -> dict[str, int]:
    """Depth, width, heads and parameters of a network, counted."""
    every = Counter(blocks)
    weights = {block: list(block.parameters()) for block in every}
    sizes = {block: sum(weight.numel() for weight in own) for block, own in weights.items()}
    return {
        "depth": every.total(),
        "width": max((len(block.mlp.W_in) for block in every if block.mlp is not None), default=0),
        "heads": max((len(block.attention.masks) for block in every if block.attention is not None), default=0),
        "parameters": sum(sizes[block] * times for block, times in every.items()),
        "stored": sum({weight: weight.numel() for own in weights.values() for weight in own}.values()),
    }
