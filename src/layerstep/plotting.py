"""One look for all figures: colours that survive grey print and colour-blindness, and a dash pattern for each too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

INK, BLUE, ORANGE, GREEN, PINK = "#222222", "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # Okabe and Ito


class Look(NamedTuple):
    """How a line is drawn."""

    color: str
    dash: str


#: In an order whose lightness differs too; for members of a series of up to five.
LOOKS = (Look(ORANGE, "-"), Look(BLUE, "--"), Look(GREEN, "-."), Look(PINK, ":"), Look(INK, "-"))
SOLVER_LOOKS = {
    "richardson": Look(ORANGE, "-"),
    "cg": Look(BLUE, "--"),
    "gd": Look(GREEN, "-."),
    "nesterov": Look(PINK, ":"),
}
#: The colour map of values from 0 to 1.
MAP = "cividis"

_RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,  # one ink, which a page in dark mode replaces
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",  # text stays text: a third of the size, and can be searched
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "figure.constrained_layout.use": True,
    "text.hinting": "none",  # text is as wide in a file as it was when the figure was laid out
    "pdf.fonttype": 42,
    "svg.hashsalt": "layerstep",
}


@contextmanager
def figure(width: float, height: float) -> Iterator[Figure]:
    """A figure of this project's look; size in inches."""
    with mpl.rc_context(_RC):
        yield Figure(figsize=(width, height))


def context_colors(count: int) -> np.ndarray:
    """Colours for increasing context lengths: dark is short, light is long, lightness monotone."""
    return mpl.colormaps["viridis"](np.linspace(0.0, 0.88, count))


def lay_out(figure: Figure) -> None:
    """Give everything its place, once for all files."""
    with mpl.rc_context(_RC):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")


def save(figure: Figure, file: Path, kind: str, *, sheet: bool = True) -> None:
    """The same bytes for the same figure. sheet: white where nothing is drawn; else what shows the figure is seen."""
    date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with mpl.rc_context(_RC):
        figure.savefig(file, format=kind, dpi=160, metadata=date, transparent=not sheet)


def look() -> AbstractContextManager:
    """To draw in: what is made inside has this project's look."""
    return mpl.rc_context(_RC)


def new_axes(width: float, height: float, columns: int = 1) -> Any:
    """Axes of a new figure of pyplot, which a notebook shows: one, over stages or layers, or an array of `columns`."""
    from matplotlib import pyplot

    with look():
        axes = pyplot.subplots(1, columns, figsize=(width, height))[1]
    if columns == 1:
        axes.xaxis.get_major_locator().set_params(integer=True)  # there is no layer 0.5
    return axes


def heat_map(
    ax: Axes, layers: np.ndarray, steps: np.ndarray, values: np.ndarray, best: np.ndarray, low: float
) -> ScalarMappable:
    """values [layers, steps] from `low` to 1, steps on a logarithmic scale with a place for 0; squares mark `best`."""
    image = ax.pcolormesh(
        layers, steps + 1, values.T, cmap=MAP, norm=Normalize(low, 1), shading="nearest", rasterized=True
    )
    look = {"markerfacecolor": "none", "markeredgecolor": ORANGE, "markeredgewidth": 1.4, "clip_on": False}
    ax.plot(layers, best + 1, "s", markersize=5 if len(layers) <= 12 else 3.5, **look)
    ticks = [t for t in (0, 1, 3, 10, 30, 100, 300, 1000) if t <= steps[-1]]
    ax.set(yscale="log")
    ax.set_yticks([t + 1 for t in ticks], [str(t) for t in ticks])
    ax.set_xticks(layers[:: max(1, len(layers) // 6)])
    ax.minorticks_off()
    ax.grid(False)
    return image
