"""`Construction`: the constructed transformer as a torch.nn.Module that predicts, with a bound on every prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerstep.construction.certificate import Precondition, Prediction, certify, require_all
from layerstep.construction.executor import BUDGET, Pass, Program
from layerstep.construction.schemes.base import Scheme, tally
from layerstep.construction.stream import Stream
from layerstep.errors import InputError, require
from layerstep.tasks.prompts import Array, Prompts, as_float_tensor
from layerstep.tasks.trajectory import Trajectory, context_lengths

# Many prompts are run in pieces whose attention weights stay in a processor's cache.
_CACHE = 2**22
_EXPANDED = 2**24
# Networks that need more than so many bytes are certified, not built.
LARGEST = 2**31


class Construction(nn.Module):
    """A transformer whose weights are written down, and that solves kernel ridge regression in its forward pass.

    `predict` answers one prompt with a bound, `path` gives the read-out after every iteration on every prefix of
    many prompts, `forward` maps a stream to a stream by the definition.
    """

    def __init__(self, scheme: Scheme, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.scheme, self.arguments = scheme, arguments
        self.stream = Stream(scheme.d)
        counts = scheme.counts()
        # Counted first where it can be: a spline network may be far too wide to build.
        if counts is None or 8 * counts["stored"] <= LARGEST:
            made = scheme.blocks()
            counts = tally(made)
            self.blocks = nn.ModuleList(made.all())
            self._lengths = [len(group) for group in made.iterations]
        self.certificate = scheme.certificate(counts)

    def __getattr__(self, name: str) -> Any:
        # Submodules are found here; a network that was certified but not built has no blocks.
        if name == "blocks" and "certificate" in self.__dict__ and not self.is_built:
            raise InputError(
                f"this network has {self.depth:,} blocks of width {self.width:,} and needs "
                f"{8 * self.certificate.stored:.2g} bytes of weights: it is certified, not built. "
                'Ask for a larger eps or error, or use scheme="compact".'
            )
        return super().__getattr__(name)

    @property
    def is_built(self) -> bool:
        """False for a network too large to build, which has its certificate only."""
        return "blocks" in self._modules

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

    def __repr__(self) -> str:
        return f"Construction({self.certificate.scheme}: {self.depth:,} blocks of width {self.width:,})"

    def forward(self, Z: Float[Tensor, "B T D"], kinds: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The stream after all blocks, by the definition. `stream.embed` makes Z and kinds."""
        self.stream.check(Z, kinds)
        for block in self.blocks:
            Z = block(Z, kinds)
        return Z

    @torch.no_grad()
    def predict(self, x: Array, y: Array, xq: Array, *, budget: int = BUDGET) -> Prediction:
        """Predictions at queries xq [M, d] from examples x [n, d], y [n], each with its bound.

        `budget`: attention weights of more bytes than this are recomputed for every block instead of stored.
        """
        x, y, xq = self._prompt(x, y, xq)
        # The theorem has one query a prompt; the sink schemes take all queries in one.
        B, queries = (1, xq[None]) if self.scheme.flexible else (len(xq), xq[:, None])
        w, values = y.new_zeros(len(y)), []
        for _, run in self.pieces(x.expand(B, -1, -1), y.expand(B, -1), queries, None, budget):
            with run.threads():
                for _ in run.iterate():
                    pass
                values.append(run.read_out()[self.stream.row("y")].flatten())
            # No query is a key before the read-out, so all prompts have these coefficients.
            w = run.Z[self.stream.row("w"), 0, run.spans["train"]]
        value = torch.cat(values).to("cpu", torch.float64)
        return certify(x, y, xq, w, value, self.scheme.v, self.scheme.lam, self.scheme.promised(y))

    @torch.no_grad()
    def path(
        self, prompts: Prompts, *, stages: Sequence[int] | None = None, contexts: Sequence[int] | None = None
    ) -> Trajectory:
        """The read-out after every iteration on every prefix; stage 0 is the prediction 0.

        `stages` and `contexts` keep some of 0..L and of 1..N. The paper's network knows no prompt shorter than N:
        its path has the one context N.
        """
        scheme, N = self.scheme, prompts.N
        require(prompts.d == scheme.d, "prompts.d", prompts.d, f"{scheme.d}, as this network was built for")
        if contexts is None:
            contexts = range(1, N + 1) if scheme.flexible else [scheme.N]
        n = context_lengths(contexts, min(N, scheme.N))
        self.require_prompts(prompts.x[:, :-1].flatten(0, 1), prompts.y[:, :-1].flatten(), prompts.x[:, -1], n)
        kept = {stage: index for index, stage in enumerate(self.stages(stages))}

        B, most = prompts.B, int(n.max())
        values = torch.empty(len(kept), B, len(n), dtype=self.dtype)
        # A prompt for every prefix is N times the data: so many sequences at a time.
        group = max(1, _EXPANDED // (len(n) * most * prompts.d))
        for first in range(0, B, group):
            x, y = prompts.x[first : first + group], prompts.y[first : first + group]
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
                            out = run.read_out()[self.stream.row("y"), :, 0].cpu()
                            values[kept[stage]].view(-1)[begin : begin + len(out)] = out
        label = f"{self.certificate.scheme} construction"
        return Trajectory(values, torch.tensor(list(kept), dtype=torch.float64), label, n)

    def stages(self, wanted: Sequence[int] | None = None) -> list[int]:
        """The stages asked for, by default all: 0, .., L."""
        stages = list(range(self.L + 1) if wanted is None else wanted)
        ordered = len(stages) > 0 and all(a < b for a, b in pairwise(stages))
        whole = ordered and all(stage == int(stage) for stage in stages) and stages[0] >= 0 and stages[-1] <= self.L
        require(whole, "stages", stages, f"increasing whole numbers from 0 to L = {self.L}")
        return [int(stage) for stage in stages]

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
        program = Program(list(self.blocks), self._lengths)  # type: ignore[arg-type]
        B, n, _ = x.shape
        size = max(1, _CACHE // (8 * (1 + n) * (1 + n + xq.shape[1])))
        for start in range(0, B, size):
            piece = slice(start, min(start + size, B))
            some = None if counts is None else counts[piece]
            z, zq = x[piece].to(self.device), xq[piece].to(self.device)
            if self.scheme.flexible:
                # The kernel does not see a shift; inner products in the logits do, by rounding.
                used = torch.full((len(z),), n) if some is None else some
                inside = (torch.arange(n) < used[:, None]).to(z)[..., None]
                centre = (z * inside).sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp_min(1)
                z, zq = z - centre, zq - centre
            labels = y[piece].to(self.device, self.dtype)
            some = None if some is None else some.to(self.device)
            Z, kinds = self.stream.embed(z.to(self.dtype), labels, zq.to(self.dtype), some)
            yield piece, Pass(program, Z, kinds, n, budget)

    def _prompt(self, x: Array, y: Array, xq: Array) -> tuple[Tensor, Tensor, Tensor]:
        d = self.scheme.d
        x, y, xq = (
            as_float_tensor(name, value, axes).to("cpu", torch.float64)
            for name, value, axes in (("x", x, 2), ("y", y, 1), ("xq", xq, 2))
        )
        require(x.shape[1] == d, "x.shape", list(x.shape), f"[n, {d}]: n examples of dimension {d}")
        require(y.shape == (len(x),), "y.shape", list(y.shape), f"[{len(x)}], a label for every row of x")
        require(xq.shape[1] == d, "xq.shape", list(xq.shape), f"[M, {d}]: M queries of dimension {d}")
        require(len(xq) > 0, "xq.shape", list(xq.shape), "one query or more")
        self.require_prompts(x, y, xq, torch.tensor([len(x)]))
        return x, y, xq

    def require_prompts(self, x: Tensor, y: Tensor, xq: Tensor, n: Int[Tensor, "contexts"]) -> None:
        """Refuse, with every reason, inputs [.., d], labels, queries [.., d] and example counts outside the theorem."""
        N, lam = self.scheme.N, self.scheme.lam
        u = torch.finfo(self.dtype).eps / 2
        longest, shortest = int(n.max()), int(n.min())
        count = f"exactly {N}" if not self.scheme.flexible else f"at most {N}"
        require_all(
            "this prompt does not fit this network",
            [
                Precondition(
                    longest <= N and (self.scheme.flexible or shortest == N),
                    f"n = {longest if longest > N else shortest} training tokens",
                    f"{count}, which this network was built for",
                    f"Construct one with N = {longest}.",
                ),
                Precondition(
                    lam / N > 4 * u,
                    f"dtype = {self.dtype}",
                    f"precise enough for lam / N = {lam / N:.2g} > 4 u = {4 * u:.2g}",
                    "Rounded attention weights can make the system indefinite: use float64 or a larger lam.",
                ),
                *self.scheme.demands(x, y, xq),
            ],
        )
