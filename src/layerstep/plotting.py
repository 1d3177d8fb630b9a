"""One look for all figures: colours that survive grey print and colour-blindness, and a shape for each as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

# Okabe and Ito's palette, in an order whose lightness differs too; a dash pattern goes with each.
SOLVER_COLORS = {"richardson": "#D55E00", "cg": "#0072B2", "gd": "#009E73", "nesterov": "#CC79A7"}
SOLVER_DASHES = {"richardson": "-", "cg": "--", "gd": "-.", "nesterov": ":"}
LAW_LOOKS = {
    "sphere": ("#D55E00", "-"),
    "uniform": ("#0072B2", "--"),
    "gaussian": ("#009E73", "-."),
    "gaussian-1.0": ("#CC79A7", ":"),
}
SEED_LOOKS = (("#D55E00", "-"), ("#0072B2", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#222222", "-"))
INK, BLUE, ORANGE, GREEN = "#222222", "#0072B2", "#D55E00", "#009E73"

_RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
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
    "svg.fonttype": "none",
    "svg.hashsalt": "layerstep",
    "pdf.fonttype": 42,
    "figure.constrained_layout.use": True,
}


@contextmanager
def figure(width: float, height: float) -> Iterator[Figure]:
    """A figure of this project's look; size in inches."""
    with mpl.rc_context(_RC):
        yield Figure(figsize=(width, height))


def context_colors(count: int) -> np.ndarray:
    """Colours for increasing context lengths: dark is short, light is long, lightness monotone."""
    return mpl.colormaps["viridis"](np.linspace(0.0, 0.88, count))
