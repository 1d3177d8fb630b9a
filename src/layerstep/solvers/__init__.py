"""What a classical solver answers, step by step, on all prefixes of all sequences at once."""

from layerstep.solvers.base import IterativeSolver as IterativeSolver
from layerstep.solvers.base import Solver
from layerstep.solvers.baselines import NadarayaWatson, NearestNeighbors, RecursiveKRR, RidgePath, Shrinkage
from layerstep.solvers.boosting import Boosting
from layerstep.solvers.causal import CausalBoosting, CausalRichardson
from layerstep.solvers.chebyshev import Chebyshev
from layerstep.solvers.conjugate_gradient import ConjugateGradient
from layerstep.solvers.gradient_descent import GradientDescent
from layerstep.solvers.heavy_ball import HeavyBall
from layerstep.solvers.nesterov import Nesterov
from layerstep.solvers.newton_schulz import NewtonSchulz
from layerstep.solvers.richardson import Richardson
from layerstep.solvers.solving import exact as exact
from layerstep.solvers.solving import solve as solve
from layerstep.solvers.solving import solve_all as solve_all

#: Every solver by the name the command line and the verdicts use; the paper's four first. A new one is its file and
#: its entry here.
SOLVERS: dict[str, Solver] = {
    "richardson": Richardson(),
    "cg": ConjugateGradient(),
    "gd": GradientDescent(),
    "nesterov": Nesterov(),
    "richardson-plain": Richardson(preconditioner="none"),
    "richardson-fixed": Richardson(preconditioner="none", step="fixed"),
    "cg-row-sum": ConjugateGradient(preconditioner="row-sum"),
    "chebyshev": Chebyshev(),
    "heavy-ball": HeavyBall(),
    "newton-schulz": NewtonSchulz(),
    "ridge": RidgePath(),
    "nadaraya-watson": NadarayaWatson(),
    "knn": NearestNeighbors(),
    "shrink": Shrinkage(),
    "boost": Boosting(),
    "causal-richardson": CausalRichardson(),
    "causal-boost": CausalBoosting(),
    "recursive": RecursiveKRR(),
}
PAPER_SOLVERS = ("richardson", "cg", "gd", "nesterov")
