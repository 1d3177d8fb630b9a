"""Theorem 2 of the paper: its constants, its number of iterations, its splines, and the error it promises."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from layerstep.construction.certificate import Constant
from layerstep.construction.problem import Problem
from layerstep.errors import require

# The largest fraction of eta_max that is used unless eta is given: the theorem asks for less than 1.
_OF_ETA_MAX = 0.9999


@dataclass(frozen=True, kw_only=True)
class Theorem:
    """|out - f*(q)| <= C_sys eps for every |x| <= B_x, |y_i| <= B_y, n = N, after `iterations` steps eta < eta_max."""

    N: int
    lam_0: float
    kappa: float
    B_y: float
    eps: float
    c: float
    eta: float

    @classmethod
    def of(cls, problem: Problem, eps: float, c: float, eta: float | None) -> Theorem:
        """The constants for a problem, also outside the theorem's conditions. eta left out: the largest."""
        theorem = cls(
            N=problem.N, lam_0=problem.lam_0, kappa=problem.kappa_min, B_y=problem.B_y, eps=eps, c=c, eta=eta or 1.0
        )
        finite = theorem.kappa > 0 and max(theorem.C_sys, *theorem.sizes().values()) < math.inf
        given = f"B_y = {problem.B_y:g}, kappa_min = {theorem.kappa:g}, lam / N = {theorem.lam_0:g}, eps = {eps:g}"
        require(finite, "the theorem's constants", f"infinite, for {given}", "finite", "Give smaller B_x and B_y.")
        return theorem if eta is not None else replace(theorem, eta=_OF_ETA_MAX * theorem.eta_max)

    @property
    def eta_max(self) -> float:
        return 1 / (self.lam_0 * self.eps + 1 + self.lam_0 / self.kappa)

    @property
    def B_alpha(self) -> float:
        return 1 / (self.N * self.kappa) + 1 / self.N

    @property
    def A(self) -> float:
        return (self.lam_0**-0.5 + 1) * self.B_y / self.lam_0

    @property
    def b(self) -> float:
        top = self.B_y * self.lam_0**-0.5 + 2 * (1 + self.lam_0)
        return top / (self.lam_0 * (1 - self.c) * math.sqrt(self.kappa))

    @property
    def B_w(self) -> float:
        return (self.A / math.sqrt(self.kappa) + self.b) / math.sqrt(self.N) + self.A / self.N

    @property
    def B_w_tilde(self) -> float:
        return self.A / math.sqrt(self.kappa) + self.b + self.A

    @property
    def C_sys(self) -> float:
        return self.A * (2 / math.sqrt(self.kappa) + 1) + 2 * self.b + 0.5

    @property
    def rate(self) -> float:
        """eta lam_0 (1 - c): an iteration reduces the error by the factor 1 - rate."""
        return self.eta * self.lam_0 * (1 - self.c)

    @property
    def iterations(self) -> float:
        """log eps / log(1 - eta lam_0 (1 - c)), rounded up; infinite where eta is too small for a number."""
        if self.rate < 1e-300:
            return math.inf
        return max(1, math.ceil(math.log(1 / self.eps) / -math.log1p(-self.rate)))

    def sizes(self) -> dict[str, float]:
        N, eps, B_w, B_alpha = self.N, self.eps, self.B_w, self.B_alpha
        return {
            "flip": 2 * (math.sqrt(1 + 1 / (N * self.kappa)) - 1) * math.sqrt(N / eps),
            "sq": (self.B_y + B_alpha) * math.sqrt(N / eps),
            "sq_tilde": (B_w + B_alpha) * N / math.sqrt(eps),
            "inv": 3 * math.sqrt((N + 1) / eps),
            "sq_hat": (B_w + 3) * math.sqrt(N / eps),
        }

    @cached_property
    def units(self) -> dict[str, int]:
        """Units of each spline, as the theorem says, rounded up."""
        return {name: max(1, math.ceil(size)) for name, size in self.sizes().items()}

    def bound(self, L: int) -> float:
        """C_sys eps; with fewer than the theorem's iterations, the proposition's bound for as many as there are."""
        if self.iterations <= L:
            return self.C_sys * self.eps
        start = math.exp(L * math.log1p(-self.rate)) * self.A / math.sqrt(self.kappa)
        return start + (self.b + 0.5 + self.B_w_tilde) * self.eps

    def constants(self) -> tuple[Constant, ...]:
        n = self.units
        return (
            Constant("eps", self.eps, "tolerance of the theorem"),
            Constant("c", self.c, "constant of the theorem, eps < c < 1"),
            Constant("lam_0", self.lam_0, "ridge per example, lam / N"),
            Constant("kappa_min", self.kappa, "least kernel value, exp(-2 B_x² / v²)"),
            Constant("L_theorem", self.iterations, "iterations for C_sys eps, log eps / log(1 - eta lam_0 (1 - c))"),
            Constant("eta", self.eta, "step size"),
            Constant("eta_max", self.eta_max, "1 / (lam_0 eps + 1 + lam_0 / kappa_min)"),
            Constant("B_alpha", self.B_alpha, "range of alpha, 1 / (N kappa_min) + 1 / N"),
            Constant("B_w", self.B_w, "range of w"),
            Constant("B_w_tilde", self.B_w_tilde, "the same without N"),
            Constant("C_sys", self.C_sys, "error over eps"),
            Constant("n_flip", n["flip"], "units of the spline of x / (1 - x), block 1"),
            Constant("n_sq", n["sq"], "units of the square in y alpha, block 3"),
            Constant("n_sq_tilde", n["sq_tilde"], "units of the square in alpha w, every step"),
            Constant("n_inv", n["inv"], "units of the spline of 1 / x, read-out"),
            Constant("n_sq_hat", n["sq_hat"], "units of the square in k_hat p, read-out"),
        )
