"""One prompt, iteration by iteration: what a constructed network would answer if its read-out came now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.construction.certificate import certify, norm
from layerstep.construction.executor import BUDGET, Pass
from layerstep.tasks.posterior import coefficients

if TYPE_CHECKING:
    from layerstep.construction.network import Construction


@dataclass(frozen=True)
class State:
    """w: the coefficients that belong to `value`, the read-out; inside: the network's own certificate, or None."""

    w: Float[Tensor, "n"]
    value: Float[Tensor, "M"]
    inside: Float[Tensor, "M"] | None


def states(
    network: Construction, x: Tensor, y: Tensor, xq: Tensor, stages: Collection[int], budget: int = BUDGET
) -> dict[int, State]:
    """The states of one checked prompt after these iterations."""
    row, unit = network.stream.row, network.unit(y)
    found: dict[int, dict[str, list[Tensor]]] = {stage: {"w": [], "y": [], "cert": []} for stage in stages}
    for run in _passes(network, x, y / unit, xq, budget):
        with run.threads():
            for stage in run.iterate():
                if stage not in found:
                    continue
                out = run.read_out()
                for name in {"y", "cert"} & set(network.stream):
                    found[stage][name].append(out[row(name)].flatten().to("cpu", torch.float64))
                # No query is a key before the read-out, so all prompts have these coefficients.
                w = run.closed[row("w"), 0, run.spans["train"]]
                found[stage]["w"].append(w.to("cpu", torch.float64, copy=True))
    return {
        stage: State(
            w=unit * of["w"][0],
            value=unit * torch.cat(of["y"]),
            inside=unit * torch.cat(of["cert"]).clamp_min(0).sqrt() if of["cert"] else None,
        )
        for stage, of in found.items()
    }


def _passes(network: Construction, x: Tensor, y: Tensor, xq: Tensor, budget: int = BUDGET) -> Iterator[Pass]:
    # The theorem has one query per prompt; the sink schemes take all queries in one.
    B, queries = (1, xq[None]) if network.scheme.flexible else (len(xq), xq[:, None])
    for _, run in network.pieces(x.expand(B, -1, -1), y.expand(B, -1), queries, None, budget):
        yield run


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Iterates:
    """A prompt x [n, d], y [n], xq [M, d] in a network: the prediction after every iteration, and its bound.

    stages [S]: iterations; blocks [S]: how many blocks that takes, with the read-out. value, bound [S, M]: the
    prediction, and a bound on its distance to exact [M], as `Prediction` has them after the last; w [S, n]: the
    coefficients; residual [S]: |y - (K + lam I) w|. reads [M, n]: which examples a query reads, its attention weights
    in the read-out as shares of their sum.
    """

    label: str
    x: Float[Tensor, "n d"]
    y: Float[Tensor, "n"]
    xq: Float[Tensor, "M d"]
    stages: Int[Tensor, "S"]
    blocks: Int[Tensor, "S"]
    value: Float[Tensor, "S M"]
    bound: Float[Tensor, "S M"]
    w: Float[Tensor, "S n"]
    residual: Float[Tensor, "S"]
    exact: Float[Tensor, "M"]
    reads: Float[Tensor, "M n"]

    def __repr__(self) -> str:
        (S, M), n = self.value.shape, len(self.y)
        last = float(self.bound[-1].max())
        return f"Iterates({self.label}: S={S}, M={M} queries, n={n} examples, last bound at most {last:.2g})"

    @property
    def error(self) -> Float[Tensor, "S M"]:
        """The distance to exact kernel ridge regression, as far as float64 knows that."""
        return (self.value - self.exact).abs()

    def plot(self, axes: Any = None) -> Any:
        """The answer, its distance to the exact one, and which examples are read: three matplotlib axes, returned.

        axes: three to draw into; left out, those of a new figure of pyplot.
        """
        from layerstep.construction.drawing import draw

        return draw(self, axes)


@torch.no_grad()
def follow(network: Construction, x: Tensor, y: Tensor, xq: Tensor, stages: Sequence[int]) -> Iterates:
    """`Construction.iterates`, of a checked prompt in the network's own units."""
    kernel, lam = network.problem.kernel, network.problem.lam
    found, row = states(network, x, y, xq, stages), network.stream.row("w")
    K = kernel(x, x)
    bounds = [certify(x, y, xq, found[stage].w, found[stage].value, kernel, lam).bound for stage in stages]
    w = torch.stack([found[stage].w for stage in stages])
    before = list(accumulate(network.iterations, initial=0))
    answer = network.depth - before[-1]
    return Iterates(
        label=network.certificate.scheme,
        x=x,
        y=y,
        xq=xq,
        stages=torch.tensor(stages),
        blocks=torch.tensor([before[stage] + answer for stage in stages]),
        value=torch.stack([found[stage].value for stage in stages]),
        bound=torch.stack(bounds).nan_to_num(nan=torch.inf),
        w=w,
        residual=torch.tensor([norm(y - K @ each - lam * each) for each in w], dtype=torch.float64),
        exact=kernel(xq, x) @ coefficients(K, y[:, None], lam)[:, 0],
        reads=torch.cat([run.reads(row).to("cpu", torch.float64).flatten(0, 1) for run in _passes(network, x, y, xq)]),
    )


def grid(x: Float[Tensor, "n 1"], points: int = 121) -> Float[Tensor, "M 1"]:
    """Queries over the range of the examples, and a tenth of it beyond at each end."""
    low, high = float(x.min()), float(x.max())
    beyond = 0.1 * (high - low) or 1.0
    return torch.linspace(low - beyond, high + beyond, points, dtype=torch.float64)[:, None]
