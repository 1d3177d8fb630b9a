"""The numbers of one model, trained or constructed: error by layer, SimE with every solver, best-matching steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan

from layerstep.solvers.base import Solver
from layerstep.solvers.conjugate_gradient import ConjugateGradient
from layerstep.solvers.gradient_descent import GradientDescent
from layerstep.solvers.nesterov import Nesterov
from layerstep.solvers.richardson import Richardson

#: The four solvers that the paper compares with, by the names of the command line. Exact CG: the plain recursion's
#: bumps from step 12 on are rounding (see the figure on CG precision).
COMPARED: dict[str, Solver] = {
    "richardson": Richardson(),
    "cg": ConjugateGradient(reorthogonalize=True),
    "gd": GradientDescent(),
    "nesterov": Nesterov(),
}
SOLVER_LABELS = {name: solver.label for name, solver in COMPARED.items()}
CUT = 0.1  # a layer is cut off by the budget of steps where this share of its prompts match the last step best


@dataclass(frozen=True, kw_only=True)
class SolverMatch:
    """Layers 1..L against the steps of one solver. `steps`, `sime` [L, T]: those that are shown; `best_step`,
    `best_sime`: of the mean over prompts; `mean`, `sd`, `at_cap`: of each prompt's best step; `r2`, `slope`,
    `intercept`: of the line through the means."""

    steps: list[float]
    sime: list[list[float]]
    best_step: list[float]
    best_sime: list[float]
    mean: list[float]
    sd: list[float]
    at_cap: list[float]
    r2: float
    r2_low: float
    r2_high: float
    slope: float
    intercept: float

    @property
    def linearity(self) -> float:
        """R² of the line; 0 where all layers match one step and there is no line."""
        return 0.0 if isnan(self.r2) else self.r2

    @property
    def r2_text(self) -> str:
        return r2_text(self.r2)


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """The layers of a model against the paper's four solvers; lines go through layers `first` to `last`."""

    first: int
    last: int
    solvers: dict[str, SolverMatch]
    won: dict[str, int]
    won_low: float
    won_high: float

    @property
    def richardson(self) -> SolverMatch:
        return self.solvers["richardson"]

    def is_cut_off(self, solver: str) -> bool:
        """Whether more than a third of the layers of a solver's line are cut off by the budget of steps."""
        cut = [share > CUT for share in self.solvers[solver].at_cap[self.first - 1 : self.last]]
        return 3 * sum(cut) > len(cut)


@dataclass(frozen=True, kw_only=True)
class ModelNumbers:
    """Errors by context length and stage (`layer_mse` [context, layer], layer 0 is the embedding), those of exact KRR,
    and the alignment with the solvers, as read by probes of all x tokens and by probes of the last one."""

    name: str
    label: str
    setting: str
    training: str
    trained_steps: int
    contexts: list[int]
    layers: list[float]
    layer_mse: list[list[float]]
    krr: list[float]
    over_krr: float  # error at n = N over that of exact KRR: noiseless targets, 2,048 prompts
    alignment: Alignment
    last_token: Alignment | None = None

    @property
    def solvers(self) -> dict[str, SolverMatch]:
        return self.alignment.solvers

    @property
    def richardson(self) -> SolverMatch:
        return self.alignment.richardson

    @property
    def won(self) -> int:
        """Layers that are most similar to Richardson."""
        return self.alignment.won["richardson"]

    @property
    def depth(self) -> int:
        return len(self.layers) - 1

    @property
    def share_won(self) -> float:
        return self.won / self.depth

    def by_last_token(self) -> ModelNumbers | None:
        """The same model as probes read it that were fitted on the last x token alone."""
        return replace(self, alignment=self.last_token) if self.last_token else None


Models = Mapping[str, ModelNumbers]


def r2_text(r2: float, digits: int = 3) -> str:
    """R² of best-matching steps; a model whose layers all match one step has none."""
    return "none" if isnan(r2) else f"{r2:.{digits}f}"


def twin(models: Models, others: Sequence[str], setting: str = "sphere") -> str:
    """The default model of a setting that was trained as long as most of `others`: a fair column beside theirs."""
    lengths = [models[name].trained_steps for name in others if name in models]
    usual = max(lengths, key=lengths.count) if lengths else None
    candidates = [name for name in (setting, f"{setting}-fast") if name in models]
    return next((name for name in candidates if models[name].trained_steps == usual), setting)
