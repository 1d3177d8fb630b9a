"""scheme="paper": the theorem's network. One head, 2L + 5 blocks, widths O(√(N / eps)), error at most C_sys eps.

Read-in (three blocks), then L times two blocks, then read-out (two blocks):

    flip     attention: k = 1 / (1 + D_i);        MLP: alpha = spline of k / (1 - k) ≈ 1 / D_i
    gate     MLP: alpha = 0 on the query
    beta     MLP: beta = eta/4 [sq(y + alpha) - sq(y - alpha)] ≈ eta y / D_i
    read     attention: p = -(D^-1 K w)_i;        MLP: p = 0 on the query
    step     MLP: w += -eta lam/4 [sq(w + alpha) - sq(w - alpha)] + beta + eta p,  p = 0
    invert   attention: p = k_q·w / (1 + D_q);    MLP: k_hat = spline of 1 / k ≈ 1 + D_q
    multiply MLP: y = N/4 [sq(k_hat / N + p) - sq(k_hat / N - p)] ≈ k_q·w

Where the paper's text slips, this is what is built (see docs/construction.md for the effect of each slip):
  p lives in row d + 7 everywhere (the text of the iteration says d + 6, which is beta), and that row is cleared;
  the spline of 1 / x keeps its constant, by the form that needs none (`inverse(stable=True)`);
  constants of the squares are left out, since they cancel in the differences;
  softmax over keys, masks (query, key) (`blocks`); W_in is width x D; widths are rounded up;
  the spline of 1 / k is in the block of the read-out attention, which the count 2L + 5 needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from layerstep.construction.blocks import Block, Mask
from layerstep.construction.certificate import Certificate
from layerstep.construction.gadgets.spline_mlp import gate, product, read, richardson_step, spline
from layerstep.construction.gadgets.splines import flip, inverse, square
from layerstep.construction.problem import Precondition, Problem, require_all
from layerstep.construction.schemes.base import MOST_ITERATIONS, Blocks, Scheme
from layerstep.construction.schemes.theorem import Theorem
from layerstep.construction.stream import Stream
from layerstep.errors import require

_EVERYBODY = ("dummy", "train")
FLIP_MASK = Mask(dummy=_EVERYBODY, train=_EVERYBODY, query=_EVERYBODY)
READ_MASK = Mask(dummy=("train",), train=("train",), query=("train",))
# The paper masks the dummy alone; with its one query that is this row: the training tokens and the query itself.
READOUT_MASK = Mask(dummy=("train", "query"), train=("train", "query"), query=("train", "itself"))
# Networks that need more than so many bytes are certified, not built.
_LARGEST = 2**31
# Where only L is given, splines are not made finer than this: widths grow as eps^-1/2.
_LEAST_EPS = 1e-3


@dataclass(frozen=True, kw_only=True)
class Paper(Scheme):
    """|out - f*(q)| <= C_sys eps for every |x| <= B_x, |y_i| <= B_y, n = N (Theorem 2 of the paper)."""

    theorem: Theorem

    name: ClassVar[str] = "paper"
    options: ClassVar[dict[str, Any]] = {"eps": None, "c": 0.5}
    flexible: ClassVar[bool] = False

    @classmethod
    def for_eps(
        cls, problem: Problem, eps: float, *, L: int | None = None, eta: float | None = None, c: float | None = 0.5
    ) -> Paper:
        """The theorem's network for a tolerance; with L, splines for eps and as many iterations as that.

        eta left out: the largest step. c None: 2 eps.
        """
        c = 2 * eps if c is None else c
        inside = eps < c < 1
        # Outside the theorem's conditions the formulas fail; the nearest numbers still have an eta_max to show.
        theorem = Theorem.of(problem, eps if inside else min(eps, 0.9), c if inside else min(c, 0.9), eta)
        require_all(
            'scheme="paper" cannot be built',
            [
                Precondition(
                    inside,
                    f"eps = {eps:.3g}, c = {c:.3g}",
                    "eps < c < 1, a condition of the theorem",
                    "Ask for a smaller eps or error.",
                ),
                Precondition(
                    theorem.eta < theorem.eta_max,
                    f"eta = {eta}",
                    f"below {theorem.eta_max:.6g} = 1 / (lam_0 eps + 1 + lam_0 / kappa_min)",
                    "Leave eta out.",
                ),
            ],
        )
        needed = theorem.iterations
        possible = needed < math.inf and (needed <= MOST_ITERATIONS or L is not None or eta is None)
        allowed = f"large enough for {MOST_ITERATIONS:,} iterations; the theorem needs {needed:.3g}"
        require(possible, "eta", eta, allowed, "Leave eta out for the largest step.")
        return cls(problem=problem, L=int(needed) if L is None else L, theorem=theorem)

    @classmethod
    def for_error(
        cls,
        problem: Problem,
        error: float,
        *,
        eta: float | None = None,
        c: float | None = 0.5,
        eps: float | None = None,
    ) -> Paper:
        """The tolerance with which C_sys eps = error, sought from the guess `eps`."""
        # C_sys depends on c: with c = 2 eps both are settled by a few rounds, since a small c hardly changes C_sys.
        eps = eps or 0.1
        for _ in range(50):
            eps = error / Theorem.of(problem, 0.1, c or min(2 * eps, 0.9), eta).C_sys
        return cls.for_eps(problem, eps, eta=eta, c=c)

    @classmethod
    def of_depth(
        cls,
        problem: Problem,
        L: int | None,
        *,
        eta: float | None = None,
        c: float | None = 0.5,
        eps: float | None = None,
    ) -> Paper:
        """The smallest tolerance that L iterations reach, but not below 1e-3; or the one that is given."""
        if eps is not None:
            return cls.for_eps(problem, eps, L=L, eta=eta, c=c)
        L, c = L or 1, c or 0.5
        rate = min(Theorem.of(problem, c, c, eta).rate, 1 - 2.0**-50)  # more where eta is too large, which is refused
        eps = min(0.999 * c, max(math.exp(L * math.log1p(-rate)), _LEAST_EPS))
        return cls.for_eps(problem, eps, L=L, eta=eta, c=c)

    @classmethod
    def conditions(
        cls, problem: Problem, *, error: float | None, L: int | None, eps: float | None, c: float | None
    ) -> list[Precondition]:
        given = [name for name, value in (("eps", eps), ("error", error), ("L", L)) if value is not None]
        ok = len(given) == 1 or given == ["eps", "L"]
        B_x, v, why = problem.B_x, problem.kernel.v, "It sets the range of the splines."
        return [
            Precondition(ok, f"given: {', '.join(given) or 'none of eps, error, L'}", "one of eps, error, L", ""),
            Precondition(B_x < math.inf, "B_x = None", "the largest |x|", why),
            Precondition(problem.B_y < math.inf, "B_y = None", "the largest |y_i|", why),
            Precondition(c is None or c < 1, f"c = {c}", "above 0 and below 1", "Leave it out for 0.5."),
            Precondition(
                B_x == math.inf or B_x <= 10 * v,
                f"B_x = {B_x}",
                f"at most 10 v = {10 * v:g}, where the least kernel value is 1e-87",
                "Every constant of the theorem grows as its inverse.",
            ),
        ]

    def promised(self, y: Tensor, radius: float, dtype: torch.dtype) -> float:
        return self.theorem.bound(self.L) + self.rounding(torch.finfo(dtype).eps / 2)

    def rounding(self, u: float) -> float:
        """bound u delta² N² / eps: a square on [-delta, delta] has a floor of u delta², and is allowed eps / N²."""
        t = self.theorem
        delta = t.B_w + t.B_alpha
        return t.bound(self.L) * u * delta * delta * t.N**2 / t.eps

    def demands(self, x: Tensor, y: Tensor, xq: Tensor) -> list[Precondition]:
        # A point on the sphere |x| = B_x may have been rounded outwards.
        B_x, B_y = self.problem.B_x, self.problem.B_y
        largest_y = float(y.abs().max()) if y.numel() else 0.0
        largest_x = max(float(points.norm(dim=-1).max()) if points.numel() else 0.0 for points in (x, xq))
        why = "Outside its range a spline clips, and the prediction is wrong."
        return [
            Precondition(
                largest_y <= B_y * (1 + 1e-12),
                f"largest |y_i| = {largest_y:g}",
                f"at most B_y = {B_y:g}",
                f"{why} Construct with a larger B_y, or divide the labels by {largest_y / B_y:.3g} and "
                "multiply the prediction.",
            ),
            Precondition(
                largest_x <= B_x * (1 + 1e-12),
                f"largest |x| = {largest_x:g}",
                f"at most B_x = {B_x:g}",
                f"{why} Construct with a larger B_x, or centre the inputs.",
            ),
        ]

    def widths(self) -> dict[str, int]:
        n = self.theorem.units
        return {
            "flip": n["flip"],
            "gate": 2,
            "beta": 2 * n["sq"],
            "read": 2,
            "step": 2 * n["sq_tilde"] + 4,
            "invert": n["inv"],
            "multiply": 2 * n["sq_hat"],
        }

    @property
    def too_large(self) -> bool:
        return 8 * self.counts()["stored"] > _LARGEST or self.L > MOST_ITERATIONS

    def counts(self) -> dict[str, int]:
        d, widths = self.problem.d, self.widths()
        D = Stream(d).width
        attention = 2 * (d + 2) * D + D * D
        size = {name: 2 * width * D for name, width in widths.items()}
        for name in ("flip", "read", "invert"):
            size[name] += attention
        repeated = size["read"] + size["step"]
        stored = sum(size.values())
        return {
            "depth": 2 * self.L + 5,
            "width": max(widths.values()),
            "heads": 1,
            "parameters": stored + (self.L - 1) * repeated,
            "stored": stored,
        }

    def blocks(self) -> Blocks:
        stream, kernel, t = Stream(self.problem.d), self.problem.gaussian, self.theorem
        N, n, eta = t.N, t.units, t.eta
        flip_spline = flip(1 / (1 + N * t.kappa), n["flip"])
        sq, sq_tilde, sq_hat = (
            square(delta, n[name])
            for name, delta in (
                ("sq", t.B_y + t.B_alpha),
                ("sq_tilde", t.B_w + t.B_alpha),
                ("sq_hat", t.B_w + 3),
            )
        )
        read_in = [
            Block(
                read(stream, kernel, "s", "k", 1.0, FLIP_MASK, dummy=True),
                spline(stream, flip_spline, {"k": 1.0}, "alpha"),
            ),
            Block(None, gate(stream, "alpha", t.B_alpha)),
            Block(None, product(stream, sq, {"y": 1.0}, {"alpha": 1.0}, eta / 4, "beta")),
        ]
        read_block = Block(read(stream, kernel, "w", "p", -1.0, READ_MASK, dummy=False), gate(stream, "p", t.B_w))
        step_block = Block(None, richardson_step(stream, sq_tilde, eta, self.problem.lam))
        readout = [
            Block(
                read(stream, kernel, "w", "p", 1.0, READOUT_MASK, dummy=False),
                spline(stream, inverse(1 / (N + 1), n["inv"], stable=True), {"k": 1.0}, "k_hat"),
            ),
            Block(None, product(stream, sq_hat, {"k_hat": 1 / N}, {"p": 1.0}, N / 4, "y")),
        ]
        return Blocks(
            [[*read_in, read_block, step_block], *([read_block, step_block] for _ in range(self.L - 1))], readout
        )

    def certificate(self, counts: dict[str, int]) -> Certificate:
        problem = self.problem
        return Certificate(
            scheme="paper",
            bound=self.theorem.bound(self.L),
            trivial=problem.B_y / (2 * math.sqrt(problem.lam_0)),
            L=self.L,
            **counts,
            assumptions="n = N training tokens; |x| <= B_x; |y_i| <= B_y; exact arithmetic",
            constants=self.theorem.constants(),
        )
