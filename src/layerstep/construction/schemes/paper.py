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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from layerstep.construction.blocks import Block, Mask
from layerstep.construction.certificate import Certificate, Constant, Precondition, require_all
from layerstep.construction.gadgets.spline_mlp import gate, product, read, richardson_step, spline
from layerstep.construction.gadgets.splines import flip, inverse, square
from layerstep.construction.schemes.base import Blocks, Scheme

_EVERYBODY = ("dummy", "train")
FLIP_MASK = Mask(dummy=_EVERYBODY, train=_EVERYBODY, query=_EVERYBODY)
READ_MASK = Mask(dummy=("train",), train=("train",), query=("train",))
# The paper masks the dummy alone; with its one query that is this row: the training tokens and the query itself.
READOUT_MASK = Mask(dummy=("train", "query"), train=("train", "query"), query=("train", "itself"))
# The largest fraction of eta_max that is used unless eta is given: the theorem asks for less than 1.
_OF_ETA_MAX = 0.9999
# Where only L is given, splines are not made finer than this: widths grow as eps^-1/2.
_LEAST_EPS = 1e-3


@dataclass(frozen=True, kw_only=True)
class Paper(Scheme):
    """|out - f*(q)| <= C_sys eps for every |x| <= B_x, |y_i| <= B_y, n = N (Theorem 2 of the paper)."""

    B_x: float
    B_y: float
    eps: float
    eta: float
    c: float
    L: int

    flexible: ClassVar[bool] = False

    @property
    def lam_0(self) -> float:
        return self.lam / self.N

    @property
    def kappa(self) -> float:
        return math.exp(-2 * (self.B_x / self.v) ** 2)

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
    def L_theorem(self) -> int:
        return math.ceil(math.log(1 / self.eps) / -math.log1p(-self.rate))

    @cached_property
    def units(self) -> dict[str, int]:
        """Units of each spline, as the theorem says, rounded up."""
        N, eps, B_w, B_alpha = self.N, self.eps, self.B_w, self.B_alpha
        sizes = {
            "flip": 2 * (math.sqrt(1 + 1 / (N * self.kappa)) - 1) * math.sqrt(N / eps),
            "sq": (self.B_y + B_alpha) * math.sqrt(N / eps),
            "sq_tilde": (B_w + B_alpha) * N / math.sqrt(eps),
            "inv": 3 * math.sqrt((N + 1) / eps),
            "sq_hat": (B_w + 3) * math.sqrt(N / eps),
        }
        return {name: max(1, math.ceil(size)) for name, size in sizes.items()}

    def bound(self) -> float:
        """C_sys eps; with fewer than the theorem's iterations, the proposition's bound for as many as there are."""
        if self.L_theorem <= self.L:
            return self.C_sys * self.eps
        start = math.exp(self.L * math.log1p(-self.rate)) * self.A / math.sqrt(self.kappa)
        return start + (self.b + 0.5 + self.B_w_tilde) * self.eps

    def promised(self, y: Tensor) -> float:
        return self.bound()

    def rounding(self, u: float) -> float:
        """bound u delta² N² / eps: a square on [-delta, delta] has a floor of u delta², and is allowed eps / N²."""
        return self.bound() * u * (self.B_w + self.B_alpha) ** 2 * self.N**2 / self.eps

    def demands(self, x: Tensor, y: Tensor, xq: Tensor) -> list[Precondition]:
        # A point on the sphere |x| = B_x may have been rounded outwards.
        largest_y = float(y.abs().max()) if y.numel() else 0.0
        largest_x = max(float(points.norm(dim=-1).max()) if points.numel() else 0.0 for points in (x, xq))
        why = "Outside its range a spline clips, and the prediction is wrong."
        return [
            Precondition(
                largest_y <= self.B_y * (1 + 1e-12),
                f"largest |y_i| = {largest_y:g}",
                f"at most B_y = {self.B_y:g}",
                f"{why} Construct with a larger B_y, or divide the labels by {largest_y / self.B_y:.3g} and "
                "multiply the prediction.",
            ),
            Precondition(
                largest_x <= self.B_x * (1 + 1e-12),
                f"largest |x| = {largest_x:g}",
                f"at most B_x = {self.B_x:g}",
                f"{why} Construct with a larger B_x, or centre the inputs.",
            ),
        ]

    def widths(self) -> dict[str, int]:
        n = self.units
        return {
            "flip": n["flip"],
            "gate": 2,
            "beta": 2 * n["sq"],
            "read": 2,
            "step": 2 * n["sq_tilde"] + 4,
            "invert": n["inv"],
            "multiply": 2 * n["sq_hat"],
        }

    def counts(self) -> dict[str, int]:
        D, widths = self.stream.width, self.widths()
        attention = 2 * (self.d + 2) * D + D * D
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
        stream, N, n, eta = self.stream, self.N, self.units, self.eta
        flip_spline = flip(1 / (1 + N * self.kappa), n["flip"])
        sq, sq_tilde, sq_hat = (
            square(delta, n[name])
            for name, delta in (
                ("sq", self.B_y + self.B_alpha),
                ("sq_tilde", self.B_w + self.B_alpha),
                ("sq_hat", self.B_w + 3),
            )
        )
        read_in = [
            Block(
                read(stream, self.v, "s", "k", 1.0, FLIP_MASK, dummy=True),
                spline(stream, flip_spline, {"k": 1.0}, "alpha"),
            ),
            Block(None, gate(stream, "alpha", self.B_alpha)),
            Block(None, product(stream, sq, {"y": 1.0}, {"alpha": 1.0}, eta / 4, "beta")),
        ]
        read_block = Block(read(stream, self.v, "w", "p", -1.0, READ_MASK, dummy=False), gate(stream, "p", self.B_w))
        step_block = Block(None, richardson_step(stream, sq_tilde, eta, self.lam))
        readout = [
            Block(
                read(stream, self.v, "w", "p", 1.0, READOUT_MASK, dummy=False),
                spline(stream, inverse(1 / (N + 1), n["inv"], stable=True), {"k": 1.0}, "k_hat"),
            ),
            Block(None, product(stream, sq_hat, {"k_hat": 1 / N}, {"p": 1.0}, N / 4, "y")),
        ]
        return Blocks(
            [[*read_in, read_block, step_block], *([read_block, step_block] for _ in range(self.L - 1))], readout
        )

    def certificate(self, counts: dict[str, int]) -> Certificate:
        n = self.units
        return Certificate(
            scheme="paper",
            bound=self.bound(),
            trivial=self.B_y / (2 * math.sqrt(self.lam_0)),
            L=self.L,
            **counts,
            assumptions="n = N training tokens; |x| <= B_x; |y_i| <= B_y; exact arithmetic",
            constants=(
                Constant("eps", self.eps, "tolerance of the theorem"),
                Constant("c", self.c, "constant of the theorem, eps < c < 1"),
                Constant("lam_0", self.lam_0, "ridge per example, lam / N"),
                Constant("kappa_min", self.kappa, "least kernel value, exp(-2 B_x² / v²)"),
                Constant("L_theorem", self.L_theorem, "iterations for C_sys eps, log eps / log(1 - eta lam_0 (1 - c))"),
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
            ),
        )


def plan(
    d: int,
    N: int,
    v: float,
    lam: float,
    *,
    B_x: float | None,
    B_y: float | None,
    eps: float | None,
    error: float | None,
    eta: float | None,
    c: float | None,
    L: int | None,
    unread: Sequence[Precondition] = (),
) -> Paper:
    """The theorem's network for a tolerance, an error or a number of iterations; InputError lists every failure.

    L alone: the smallest tolerance that so many iterations reach, but not below 1e-3. L and eps: splines for eps, as
    many iterations as L.
    """
    given = [name for name, value in (("eps", eps), ("error", error), ("L", L)) if value is not None]
    ok = len(given) == 1 or given == ["eps", "L"]
    require_all(
        'scheme="paper" cannot be built',
        [
            Precondition(ok, f"given: {', '.join(given) or 'none of eps, error, L'}", "one of eps, error, L", ""),
            Precondition(B_x is not None, "B_x = None", "the largest |x|", "It sets the range of the splines."),
            Precondition(B_y is not None, "B_y = None", "the largest |y_i|", "It sets the range of the splines."),
            Precondition(c is None or 0 < c < 1, f"c = {c}", "above 0 and below 1", "Leave it out for 0.5."),
            Precondition(
                B_x is None or B_x <= 10 * v,
                f"B_x = {B_x}",
                f"at most 10 v = {10 * v:g}, where the least kernel value is 1e-87",
                "Every constant of the theorem grows as its inverse.",
            ),
            *unread,
        ],
    )

    def candidate(eps: float, c: float) -> Paper:
        draft = Paper(
            d=d, N=N, v=v, lam=lam, B_x=float(B_x or 0), B_y=float(B_y or 0), eps=eps, eta=eta or 1.0, c=c, L=1
        )
        if eta is None:
            draft = replace(draft, eta=_OF_ETA_MAX * draft.eta_max)
        return replace(draft, L=L or max(1, draft.L_theorem))

    if error is not None:
        # C_sys depends on c: with c = 2 eps both are settled by a few rounds, since a small c hardly changes C_sys.
        eps = 0.1
        for _ in range(50):
            eps = error / candidate(0.1, c or min(2 * eps, 0.9)).C_sys
    elif eps is None:
        c = c or 0.5
        reached = math.exp((L or 1) * math.log1p(-candidate(c, c).rate))
        eps = min(0.999 * c, max(reached, _LEAST_EPS))
    eps = float(eps or 0)
    c = c if c is not None else 2 * eps
    # Outside the theorem's conditions the formulas fail; the nearest candidate still has an eta_max to show.
    scheme = candidate(min(eps, 0.9), min(c, 0.9)) if not eps < c < 1 else candidate(eps, c)
    require_all(
        'scheme="paper" cannot be built',
        [
            Precondition(
                eps < c < 1,
                f"eps = {eps:.3g}, c = {c:.3g}",
                "eps < c < 1, a condition of the theorem",
                "Ask for a smaller eps or error.",
            ),
            Precondition(
                scheme.eta < scheme.eta_max,
                f"eta = {eta}",
                f"below {scheme.eta_max:.6g} = 1 / (lam_0 eps + 1 + lam_0 / kappa_min)",
                "Leave eta out.",
            ),
        ],
    )
    return scheme
