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
from layerstep.solvers.in_weights.chebyshev import ChebyshevInWeights
from layerstep.solvers.in_weights.conjugate_gradient import ConjugateGradientInWeights
from layerstep.solvers.in_weights.gradient_descent import GradientDescentInWeights
from layerstep.solvers.in_weights.momentum import HeavyBallInWeights, NesterovInWeights
from layerstep.solvers.in_weights.newton import Newton
from layerstep.solvers.in_weights.plus_plus import GradientDescentPlusPlus
from layerstep.solvers.kaczmarz import Kaczmarz
from layerstep.solvers.nesterov import Nesterov
from layerstep.solvers.newton_schulz import NewtonSchulz
from layerstep.solvers.online import CausalGD, OnlineGD
from layerstep.solvers.preconditioned import Preconditioned as Preconditioned
from layerstep.solvers.preconditioned import inverse_covariance as inverse_covariance
from layerstep.solvers.priors import DiscreteMMSE as DiscreteMMSE
from layerstep.solvers.priors import SoftmaxAverage
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
    "gd-weights": GradientDescentInWeights(),
    "gd-weights-fixed": GradientDescentInWeights(step="fixed"),
    "gd++": GradientDescentPlusPlus(),
    "newton": Newton(),
    "newton-frobenius": Newton(start="frobenius"),
    "newton-identity": Newton(start="identity"),
    "cg-weights": ConjugateGradientInWeights(),
    "nesterov-weights": NesterovInWeights(),
    "heavy-ball-weights": HeavyBallInWeights(),
    "chebyshev-weights": ChebyshevInWeights(),
    "kaczmarz": Kaczmarz(),
    "online-gd": OnlineGD(),
    "causal-gd": CausalGD(),
    "softmax-average": SoftmaxAverage(),
}
PAPER_SOLVERS = ("richardson", "cg", "gd", "nesterov")
