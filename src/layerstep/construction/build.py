"""`construct`: arguments to a scheme, with every reason at once when there is none."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch

from layerstep.construction.certificate import Precondition, require_all
from layerstep.construction.network import Construction
from layerstep.construction.schemes.base import depth_and_sink
from layerstep.construction.schemes.compact import Compact
from layerstep.construction.schemes.exact import Exact
from layerstep.construction.schemes.paper import plan
from layerstep.construction.steps import ChebyshevSteps, ConstantSteps, Steps
from layerstep.errors import (
    as_device,
    as_float,
    require,
    require_choice,
    require_count,
    require_positive,
    require_square,
)

SCHEMES = ("paper", "exact", "compact")
# Where no error is asked for, the sink leaks this fraction: below what float64 rounding does to the same numbers.
_LEAK = 2.0**-43
# The options that one scheme alone reads, and the values that ask for nothing: the others would ignore any other.
_OPTIONS = {"eps": ("paper", (None,)), "c": ("paper", (0.5, None)), "rho": ("exact", (None,)), "heads": ("exact", (2,))}


def construct(
    d: int,
    N: int,
    v: float,
    lam: float,
    *,
    B_x: float | None = None,
    B_y: float | None = None,
    scheme: str = "paper",
    eps: float | None = None,
    error: float | None = None,
    eta: float | None = None,
    c: float | None = 0.5,
    L: int | None = None,
    rho: float | None = None,
    heads: int = 2,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "cpu",
) -> Construction:
    """A transformer that predicts with f*(q) = k_q·(K + lam I)^-1 y, K the Gaussian kernel of bandwidth v.

    d, N: dimension and number of examples. lam: the ridge (the paper's lam_0 N). Every |x| <= B_x, which the paper's
    scheme needs and the others do not; every |y_i| <= B_y, which they need for a guarantee. Give one of `error`, the
    guaranteed distance to f*; `eps`, the theorem's tolerance (paper scheme, error C_sys eps); `L`, a number of
    iterations, whatever that guarantees.

    scheme   "paper": the theorem's network, 2L + 5 blocks. "exact": the row-sum preconditioned iteration without
             approximation. "compact": the smallest, without preconditioner.
    eta      a constant step: Richardson's iteration. Left out: the paper's largest step (paper), Chebyshev
             coefficients (exact, compact).
    c        the constant of the theorem, eps < c < 1 (paper scheme); None for 2 eps.
    rho      preconditioner D + rho I (exact scheme). Left out: 0, the paper's, with eta; lam without.
    heads    2 for L + 1 blocks, 1 for 2L + 1 (exact scheme).

    An option that the scheme does not read is refused, but for B_x.
    """
    device = as_device(device)
    require_count(d=d, N=N, heads=heads)
    require_square(v=v)
    require_positive(lam=lam)
    optional = {"B_x": B_x, "B_y": B_y, "eps": eps, "error": error, "eta": eta, "c": c}
    require_positive(**{name: value for name, value in optional.items() if value is not None})
    require_choice("scheme", scheme, SCHEMES)
    if L is not None:
        require_count(L=L)
    require(rho is None or 0 <= as_float(rho) < math.inf, "rho", repr(rho), "a finite number of at least 0")
    # NumPy's numbers are welcome, but weights and files are made of Python's.
    d, N, heads, L = int(d), int(N), int(heads), None if L is None else int(L)
    v, lam, rho = float(v), float(lam), None if rho is None else float(rho)
    B_x, B_y, eps, error, eta, c = (None if value is None else float(value) for value in optional.values())
    arguments = {"d": d, "N": N, "v": v, "lam": lam, "B_x": B_x, "B_y": B_y, "scheme": scheme, "eps": eps}
    arguments |= {"error": error, "eta": eta, "c": c, "L": L, "rho": rho, "heads": heads}
    ok = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    require(ok, "dtype", repr(dtype), "a floating-point type of torch")
    u = torch.finfo(dtype).eps / 2
    require(
        lam / N > 4 * u,
        "dtype",
        dtype,
        f"precise enough for lam / N = {lam / N:.2g} > 4 u = {4 * u:.2g}",
        "Rounded attention weights can make the system indefinite: use float64 or a larger lam.",
    )
    unread = [
        Precondition(arguments[name] in unused, f"{name} = {arguments[name]!r}", f'left out: for scheme="{owner}"', "")
        for name, (owner, unused) in _OPTIONS.items()
        if scheme != owner
    ]
    if scheme == "paper":
        made = plan(d, N, v, lam, B_x=B_x, B_y=B_y, eps=eps, error=error, eta=eta, c=c, L=L, unread=unread)
    else:
        made = _sink_scheme(scheme, d, N, v, lam, B_y, error, eta, L, rho, heads, unread)
        require(
            made.a < torch.finfo(dtype).max,
            "dtype",
            dtype,
            f"large enough for the sink weight {made.a:.2g}",
            "Ask for a larger error, or use float32 or float64.",
        )
    network = Construction(made, arguments).to(device=device, dtype=dtype)
    if (eps is not None or error is not None) and network.is_built:
        _warn(network, u)
    return network


def _warn(network: Construction, u: float) -> None:
    """Say when a guarantee that was asked for is empty, or drowned by rounding."""
    bound, trivial = network.certificate.bound, network.certificate.trivial
    rounding = network.scheme.rounding(u)
    hold = "Bounds of single predictions still hold."
    if network.certificate.vacuous:
        warnings.warn(
            f"the bound {bound:.3g} says nothing: predicting 0 has error at most {trivial:.3g}. "
            f"Ask for a smaller error. {hold}",
            stacklevel=3,
        )
    if bound is not None and rounding > bound:
        warnings.warn(
            f"rounding at u = {u:.1g} may add {rounding:.2g}, more than the guaranteed {bound:.3g}. "
            f"{'Use float64' if u > 1e-15 else 'Ask for less'}. {hold}",
            stacklevel=3,
        )


def _sink_scheme(
    scheme: str,
    d: int,
    N: int,
    v: float,
    lam: float,
    B_y: float | None,
    error: float | None,
    eta: float | None,
    L: int | None,
    rho: float | None,
    heads: int,
    unread: list[Precondition],
) -> Compact | Exact:
    require_all(
        f'scheme="{scheme}" cannot be built',
        [
            Precondition(
                (error is None) != (L is None),
                f"error = {error} and L = {L}",
                "one of the two, not both",
                "error asks for a guarantee, L for a number of iterations.",
            ),
            Precondition(
                error is None or B_y is not None,
                "B_y = None",
                "the largest |y_i| when an error is asked for",
                "The guaranteed error is a multiple of it.",
            ),
            Precondition(
                scheme != "exact" or heads in (1, 2), f"heads = {heads}", "1 or 2", "2 heads need half the blocks."
            ),
            *unread,
        ],
    )
    if scheme == "exact":
        rho = rho if rho is not None else (0.0 if eta is not None else lam)
        lo, hi = Exact.interval(N, lam, rho)
    else:
        lo, hi = Compact.interval(N, lam)
    # Where lam swallows N the interval is one number, and the steps divide by its width.
    hi = max(hi, lo * (1 + 2.0**-49))
    steps: Steps = ChebyshevSteps(lo=lo, hi=hi) if eta is None else ConstantSteps(lo=lo, hi=hi, eta=eta)
    kind: Any = Exact if scheme == "exact" else Compact
    if error is not None and B_y is not None:
        target = error / (B_y * math.sqrt(N / lam))
        phi, delta = (0.75 * target, 0.49 * target) if scheme == "exact" else (target, 0.495 * target)
        L, a = depth_and_sink(kind.relative_bound, steps, N, target, phi, delta)
    else:
        a = N / _LEAK
    extra = {"rho": rho, "heads": heads} if scheme == "exact" else {}
    return kind(d=d, N=N, v=v, lam=lam, B_y=B_y, steps=steps, L=L, a=a, **extra)
