"""The four solvers that the paper compares with, by the names of the command line."""

from __future__ import annotations

from layerstep.solvers.base import Solver
from layerstep.solvers.conjugate_gradient import ConjugateGradient
from layerstep.solvers.gradient_descent import GradientDescent
from layerstep.solvers.nesterov import Nesterov
from layerstep.solvers.richardson import Richardson

#: Exact CG: the plain recursion's bumps from step 12 on are rounding (see the figure on CG precision).
COMPARED: dict[str, Solver] = {
    "richardson": Richardson(),
    "cg": ConjugateGradient(reorthogonalize=True),
    "gd": GradientDescent(),
    "nesterov": Nesterov(),
}
