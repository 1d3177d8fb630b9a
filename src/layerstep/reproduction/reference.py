"""Numbers quoted from the paper, and the rule that compares ours with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, inf, isfinite, log, sqrt
from statistics import stdev
from typing import Any

SIGMA_TEST = (1e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0)

#: Table "Noise-mismatch ablation, full sweep": mean squared error over that of the Bayes-optimal predictor.
NOISE_TABLE: dict[str, dict[str, tuple[float, ...]]] = {
    "sphere": {
        "TF": (1.21, 1.21, 1.21, 1.20, 1.15, 1.09, 1.18, 2.25, 4.30),
        "EO": (1.03, 1.03, 1.03, 1.02, 1.00, 1.01, 1.24, 2.58, 5.59),
    },
    "uniform": {
        "TF": (1.06, 1.06, 1.06, 1.06, 1.04, 1.03, 1.05, 1.55, 2.90),
        "EO": (1.01, 1.01, 1.01, 1.00, 1.00, 1.00, 1.07, 1.66, 3.37),
    },
    "gaussian": {
        "TF": (1.01, 1.01, 1.01, 1.01, 1.01, 1.01, 1.01, 1.03, 1.25),
        "EO": (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.04, 1.30),
    },
}

#: Transformer over encoded error at σ_test = 1 (section on noise).
TF_OVER_EO = {"sphere": 0.77, "uniform": 0.86, "gaussian": 0.97}

#: R² of the best-matching Richardson step against the layer (layers 2..10), and layers of 12 that Richardson wins.
BEST_STEP_R2 = {"sphere": 0.976, "arccos1": 0.9275}
R2_ROUNDING = {"sphere": 0.0005, "arccos1": 0.00005}  # half a unit of the last digit the paper gives
LAYERS_WON = {"sphere": 11, "arccos1": 7}

#: "κ ≈ 3,000" and "κ ≈ 10,000" (depth ablation).
KAPPA = {"sphere": 3_000, "sphere-v2": 10_000}

#: Hours of a training run on a V100 or an RTX A4000 ("Computational resources").
HOURS_A_RUN = (6, 12)


#: Tables "Default transformer architecture" and "Optimization hyperparameters", and the context-length curriculum: the
#: entries that are numbers of a run, by their name in `Run`.
PROTOCOL: dict[str, tuple[str, float]] = {
    "layers": ("layers L", 12),
    "heads": ("heads H", 8),
    "width": ("hidden width d_model", 256),
    "beta1": ("AdamW β₁", 0.9),
    "beta2": ("AdamW β₂", 0.999),
    "weight_decay": ("weight decay", 1e-4),
    "lr": ("initial learning rate", 1e-4),
    "lr_final": ("final learning rate, cosine annealing", 1e-5),
    "steps": ("training steps", 500_000),
    "batch": ("batch size", 64),
    "clip": ("gradient clipping", 1.0),
    "curriculum_start": ("curriculum: first context length", 11),
    "curriculum_add": ("curriculum: examples added", 2),
    "curriculum_every": ("curriculum: steps between additions", 2000),
}


def by_chance(seeds: Sequence[float], comparisons: int = 1) -> float:
    """t s √2, with Student's t: 95 % of the differences between two runs that differ in their seed alone are less; of
    several `comparisons` all are, in 95 % (Bonferroni). `seeds` are the values of a number by seed; infinite where no
    spread is known (one seed, or one without a number)."""
    if len(seeds) < 2 or not all(map(isfinite, seeds)):
        return inf
    from scipy.special import stdtrit  # here: training runs, which import this file, need no SciPy

    return float(stdtrit(len(seeds) - 1, 1 - 0.025 / comparisons)) * stdev(seeds) * sqrt(2)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the summary: the paper's number, ours, and its 95 % range over draws of as many prompts as the
    paper's.

    runs: how far two training runs lie apart by chance, where several seeds say it; a factor if `factor`.
    """

    quantity: str
    where: str
    paper: float
    ours: float
    low: float
    high: float
    rounding: float = 0.0
    note: str = ""
    runs: float | None = None
    factor: bool = False
    whole: bool = False  # a count, shown without decimals
    counted: bool = True  # not where the paper's number is counted in another line, or holds by definition

    def beside(self, seeds: Sequence[float], *, factor: bool = False) -> Row:
        """This line with the spread over training seeds, where it is known; `seeds` are the number's values by seed.

        factor: two runs differ by a factor, that of their logarithms' spread, as ratios of errors do.
        """
        chance = exp(by_chance([log(seed) for seed in seeds])) if factor else by_chance(seeds)
        return replace(self, runs=chance, factor=factor) if isfinite(chance) else self

    @property
    def outcome(self) -> str:
        """'reproduced' when the paper's value, to its rounding, lies in our range; 'cannot be told' when
        it does not and is no farther from ours than two runs are by chance; else 'not reproduced'."""
        if not self.low <= self.high:  # NaN: no spread is known
            return "cannot be compared"
        if self.low - self.rounding <= self.paper <= self.high + self.rounding:
            return "reproduced"
        return "cannot be told" if self._by_chance else "not reproduced"

    @property
    def _by_chance(self) -> bool:
        """Whether the paper's value, to its rounding, is no farther from ours than two runs are by chance."""
        if self.runs is None:
            return False
        smaller, larger = sorted((self.paper, self.ours))
        smaller += self.rounding
        return (larger / smaller if self.factor else larger - smaller) <= self.runs

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome}


OUTCOMES = ("reproduced", "cannot be told", "not reproduced", "cannot be compared")


def outcomes(rows: Sequence[Row]) -> dict[str, int]:
    """How many of the paper's numbers have each outcome, every number counted once."""
    counts = Counter(row.outcome for row in rows if row.counted)
    return {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]}
