"""Reference values of the paper, and the rule that compares ours with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, inf, isfinite, log, sqrt
from statistics import stdev
from typing import Any

#: Table "Noise-mismatch ablation, full sweep": mean squared error over that of the Bayes-optimal predictor, by level of
#: noise; of the transformer, and of the encoded ridge. It has one Gaussian column, which both of ours are compared
#: with: s.d. 0.6 as the text says, and 1.0, which fits.
NOISE_TRANSFORMER: dict[str, tuple[float, ...]] = {
    "sphere": (1.21, 1.21, 1.21, 1.20, 1.15, 1.09, 1.18, 2.25, 4.30),
    "uniform": (1.06, 1.06, 1.06, 1.06, 1.04, 1.03, 1.05, 1.55, 2.90),
    "gaussian": (1.01, 1.01, 1.01, 1.01, 1.01, 1.01, 1.01, 1.03, 1.25),
}
NOISE_ENCODED: dict[str, tuple[float, ...]] = {
    "sphere": (1.03, 1.03, 1.03, 1.02, 1.00, 1.01, 1.24, 2.58, 5.59),
    "uniform": (1.01, 1.01, 1.01, 1.00, 1.00, 1.00, 1.07, 1.66, 3.37),
    "gaussian": (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.04, 1.30),
}
#: The column of the table by setting.
NOISE_COLUMNS = {"sphere": "sphere", "uniform": "uniform", "gaussian": "gaussian", "gaussian-1.0": "gaussian"}

#: Transformer over encoded error at σ_test = 1 (section on noise).
TF_OVER_EO = {"sphere": 0.77, "uniform": 0.86, "gaussian": 0.97}

#: R² of the best-matching Richardson step against the layer (layers 2..10), and layers of 12 that Richardson wins.
BEST_STEP_R2 = {"sphere": 0.976, "arccos1": 0.9275}
R2_ROUNDING = {"sphere": 0.0005, "arccos1": 0.00005}  # half a unit of the last digit the paper gives
LAYERS_WON = {"sphere": 11, "arccos1": 7}

#: "κ ≈ 3,000" and "κ ≈ 10,000" (depth ablation).
KAPPA = {"sphere": 3_000, "sphere-v2": 10_000}
KAPPA_ROUNDING = {"sphere": 500, "sphere-v2": 5000}

#: Hours of a training run on a V100 or an RTX A4000 ("Computational resources").
HOURS_PER_RUN = (6, 12)
PAPER_STEPS = 500_000
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
    "steps": ("training steps", PAPER_STEPS),
    "batch": ("batch size", 64),
    "clip": ("gradient clipping", 1.0),
    "curriculum_start": ("curriculum: first context length", 11),
    "curriculum_add": ("curriculum: examples added", 2),
    "curriculum_every": ("curriculum: steps between additions", 2000),
}


def seed_variation(values: Sequence[float], comparisons: int = 1) -> float:
    """t s √2, with Student's t: 95 % of the differences between two runs that differ in their seed alone are less; of
    several `comparisons` all are, in 95 % (Bonferroni). `values` are a number by seed; infinite where no variation is
    known (one seed, or one without a number)."""
    if len(values) < 2 or not all(map(isfinite, values)):
        return inf
    from scipy.special import stdtrit  # here: training runs, which import this file, need no SciPy

    return float(stdtrit(len(values) - 1, 1 - 0.025 / comparisons)) * stdev(values) * sqrt(2)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The paper's number beside ours and its 95 % range over draws of as many prompts as the paper's.

    seed_variation: how far two training runs lie apart, where several seeds say it; a factor if `factor`.
    """

    quantity: str
    where: str
    paper: float
    ours: float
    low: float
    high: float
    rounding: float = 0.0
    note: str = ""
    seed_variation: float | None = None
    factor: bool = False
    whole: bool = False  # a count, shown without decimals
    counted: bool = True  # not where the paper's number is counted in another line, or holds by definition

    def with_seeds(self, values: Sequence[float], *, factor: bool = False) -> Comparison:
        """With the variation over training seeds, where it is known; `values` are the number by seed.

        factor: two runs differ by a factor, that of their logarithms' spread, as ratios of errors do.
        """
        apart = exp(seed_variation([log(value) for value in values])) if factor else seed_variation(values)
        return replace(self, seed_variation=apart, factor=factor) if isfinite(apart) else self

    @property
    def outcome(self) -> str:
        """'reproduced' when the paper's value, to its rounding, lies in our range; 'inconclusive' when it does not and
        is not farther from ours than two runs may be; else 'not reproduced'."""
        if not self.low <= self.high:  # NaN: no range is known
            return "not comparable"
        if self.low - self.rounding <= self.paper <= self.high + self.rounding:
            return "reproduced"
        return "inconclusive" if self._within_seeds else "not reproduced"

    @property
    def _within_seeds(self) -> bool:
        """Whether the paper's value, to its rounding, is not farther from ours than two runs may be."""
        if self.seed_variation is None:
            return False
        smaller, larger = sorted((self.paper, self.ours))
        smaller += self.rounding
        return (larger / smaller if self.factor else larger - smaller) <= self.seed_variation

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome}


OUTCOMES = ("reproduced", "inconclusive", "not reproduced", "not comparable")


def outcomes(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """How many of the paper's numbers have each outcome, every number counted once."""
    counts = Counter(each.outcome for each in comparisons if each.counted)
    return {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]}
