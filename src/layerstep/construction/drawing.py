"""A prompt in a constructed network as a figure: the answer, how far it is from the exact one, what is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from layerstep.errors import require

if TYPE_CHECKING:
    from layerstep.construction.iterates import Iterates

#: Fewer queries on a line than this are drawn one by one, against the blocks.
CURVE = 20
SHOWN = 5  # queries drawn one by one
_LEGEND: dict[str, Any] = {"fontsize": 7, "frameon": True, "framealpha": 0.8, "edgecolor": "none"}


def draw(found: Iterates, axes: Any = None) -> Any:
    """Into three axes; those of a new figure where None are given."""
    from layerstep import plotting

    axes = plotting.new_axes(11.5, 3.4, 3) if axes is None else np.asarray(axes, dtype=object).ravel()
    require(len(axes) == 3, "axes", f"{len(axes)} axes", "3: the answer, its errors, what is read")
    curve = found.xq.shape[1] == 1 and len(found.xq) >= CURVE
    with plotting.look():
        (_answers_on_a_line if curve else _answers)(found, axes[0])
        _errors(found, axes[1])
        _reads(found, axes[2], curve)
    return axes


def _answers_on_a_line(found: Iterates, ax: Any) -> None:
    """Against x: after a few iterations and the last with its bound, the exact answer, the examples."""
    from layerstep.plotting import BLUE, INK, ORANGE

    order = found.xq[:, 0].argsort()
    x, last = found.xq[order, 0], len(found.stages) - 1
    early = sorted({round(last ** (k / 3)) for k in (0, 1, 2)} - {last}) if last else []
    for shade, index in zip((0.25, 0.45, 0.7), early, strict=False):
        ax.plot(x, found.value[index, order], color=ORANGE, alpha=shade, label=f"after {_blocks(found, index)}")
    _band(ax, x, found.value[last, order], found.bound[last, order])
    ax.plot(x, found.value[last, order], color=ORANGE, label=f"after {_blocks(found, last)}, and its bound")
    ax.plot(x, found.exact[order], "--", color=INK, linewidth=1, label="exact KRR")
    ax.plot(found.x[:, 0], found.y, "o", color=BLUE, markersize=4, label="examples")
    ax.set(xlabel="x", title="the answer")
    _limit(ax, found.y, found.exact, found.value[last])
    ax.legend(**_LEGEND)
    ax.margins(x=0)


def _answers(found: Iterates, ax: Any) -> None:
    """Against the blocks: some queries, each with its bound, and their exact answers."""
    from layerstep.plotting import INK, LOOKS

    shown = np.linspace(0, len(found.xq) - 1, min(SHOWN, len(found.xq))).round().astype(int)
    for query, look in zip(shown, LOOKS, strict=False):
        value, bound = found.value[:, query], found.bound[:, query]
        _band(ax, found.blocks, value, bound, look.color)
        ax.plot(found.blocks, value, look.dash, color=look.color, label=f"query {query + 1}")
        ax.axhline(float(found.exact[query]), color=INK, linestyle=":", linewidth=0.8)
    ax.plot([], [], ":", color=INK, linewidth=0.8, label="exact KRR")
    ax.set(xlabel="blocks", title="the answer, and its bound")
    _limit(ax, found.exact[shown], found.value[-1, shown], found.value[len(found.stages) // 4 :, shown])
    ax.legend(loc="lower right", **_LEGEND)


def _errors(found: Iterates, ax: Any) -> None:
    """The largest bound and error over the queries, and the residual, by the number of blocks."""
    from layerstep.plotting import BLUE, GREEN, ORANGE

    lines = (
        ("bound of the prediction", found.bound.amax(1), "--", BLUE),
        ("residual |y − (K + λI)w|", found.residual, "-.", GREEN),
        ("distance to exact KRR", found.error.amax(1), "-", ORANGE),
    )
    for label, values, dash, color in lines:
        drawn = np.where((values > 0) & (values < 1e100), values, np.nan)  # an axis has an end
        ax.plot(found.blocks, drawn, dash, color=color, label=label)
    ax.set(yscale="log", xlabel="blocks", title="how far it is")
    ax.legend(fontsize=7)


def _reads(found: Iterates, ax: Any, curve: bool) -> None:
    """The share of attention that a query gives to each example in the read-out."""
    from layerstep.plotting import BLUE, MAP

    if len(found.xq) == 1:
        ax.bar(np.arange(1, len(found.y) + 1), found.reads[0].numpy(), color=BLUE)
        ax.set(xlabel="example", ylabel="share of the attention", title="which examples it reads")
        return
    examples, queries = np.arange(1, len(found.y) + 1), np.arange(1, len(found.xq) + 1)
    reads, label = found.reads, "query"
    if curve:
        order = found.xq[:, 0].argsort()
        queries, reads, label = found.xq[order, 0].numpy(), reads[order], "x of the query"
    elif len(found.xq) <= 10:
        ax.set_yticks(queries)
    if found.x.numel():
        image = ax.pcolormesh(examples, queries, reads.numpy(), cmap=MAP, shading="nearest", rasterized=True, vmin=0)
        ax.figure.colorbar(image, ax=ax, label="share of its attention")
    ax.set(xlabel="example", ylabel=label, title="which examples each query reads")
    ax.grid(False)


def _band(ax: Any, x: Any, value: Any, bound: Any, color: str | None = None) -> None:
    from layerstep.plotting import ORANGE

    wide = bound.clamp(max=1e300)  # what has diverged is beyond every edge
    ax.fill_between(x, value - wide, value + wide, color=color or ORANGE, alpha=0.12, linewidth=0)


def _limit(ax: Any, *values: Any) -> None:
    """As high as the finite values and a little more; bounds of the first blocks would dwarf them."""
    every = np.concatenate([np.asarray(each).ravel() for each in values])
    every = every[np.isfinite(every)]
    low, high = (every.min(), every.max()) if len(every) else (0.0, 1.0)
    beyond = 0.15 * (high - low) or 0.15 * abs(high) or 1.0
    ax.set_ylim(low - beyond, high + beyond)


def _blocks(found: Iterates, index: int) -> str:
    count = int(found.blocks[index])
    return f"{count:,} block{'s' * (count != 1)}"
