"""`construct`: a problem, the scheme's plan for it, the network."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from layerstep.construction.kernels import Gaussian, GaussianMixture, Kernel, Mixture, as_kernel, as_profile
from layerstep.construction.network import Construction
from layerstep.construction.problem import Precondition, Problem, require_all
from layerstep.construction.schemes.adaptive import Adaptive
from layerstep.construction.schemes.base import MOST_ITERATIONS, Scheme
from layerstep.construction.schemes.compact import Compact
from layerstep.construction.schemes.exact import Exact
from layerstep.construction.schemes.paper import Paper
from layerstep.errors import (
    InputError,
    as_device,
    as_dtype,
    as_float,
    quoted,
    require,
    require_choice,
    require_count,
    require_flag,
    require_positive,
)
from layerstep.tasks.prompts import Array, as_float_tensor, is_single

#: A new scheme is one file and one entry.
SCHEMES: dict[str, type[Scheme]] = {kind.name: kind for kind in (Paper, Exact, Compact, Adaptive)}


def construct(
    d: int,
    N: int,
    v: float | Array,
    lam: float,
    *,
    kernel: Any = None,
    kernel_error: float | None = None,
    B_x: float | None = None,
    B_y: float | None = None,
    scheme: str | None = None,
    eps: float | None = None,
    error: float | None = None,
    eta: float | None = None,
    c: float | None = 0.5,
    L: int | None = None,
    rho: float | None = None,
    heads: int | None = None,
    degree: int = 2,
    hi: float | None = None,
    least: float | None = None,
    refresh: bool | None = None,
    dtype: torch.dtype | str = torch.float64,
    device: str | torch.device = "cpu",
) -> Construction:
    """A transformer that predicts with f*(q) = k_q·(K + lam I)^-1 y, K the Gaussian kernel of bandwidth v.

    d, N: dimension and number of examples. v: the bandwidth, or one for each coordinate; everything else is then about
    the quotients. lam: the ridge (the paper's lam_0 N). Every |x| <= B_x, which the paper's scheme needs and the others
    do not; every |y_i| <= B_y, which they need for a guarantee. Give one of `error`, the guaranteed distance to f*;
    `eps`, the theorem's tolerance (paper scheme, error C_sys eps); `L`, a number of iterations, whatever that
    guarantees.

    kernel   another function of |x - x'| / v (compact, adaptive): "matern12", "matern32", "matern52", "exponential",
             "rational-quadratic", "inverse-multiquadric", Matern(nu=..), RationalQuadratic(alpha=..). Gaussians that
             add up to it are one head each; a GaussianMixture says which.
    kernel_error  how near they have to come to it, at distances up to 2 B_x where that is given and at all where not.
             Left out: as near as `error` needs, or 1e-5.
    scheme   "compact": the smallest, without preconditioner. "exact": the row-sum preconditioned iteration without
             approximation. "paper": the theorem's network, 2L + 5 blocks. "adaptive": takes what is large of the
             prompt's own spectrum out of it, then needs few iterations. Left out: paper where eps is given, else
             compact.
    eta      a constant step: Richardson's iteration. Left out: the paper's largest step (paper), Chebyshev
             coefficients (exact, compact).
    c        the constant of the theorem, eps < c < 1 (paper scheme); None for 2 eps.
    rho      preconditioner D + rho I (exact scheme). Left out: 0, the paper's, with eta; lam without.
    heads    2 for L + 1 blocks, 1 for 2L + 1 (exact scheme); at most so many in a block (adaptive scheme; compact,
             where the kernel is a sum of many Gaussians). Left out: all heads of a step in one block.
    degree   1, 2 or 3: of the polynomials of the inputs that are taken out of the system (adaptive scheme).
    hi       above the spectrum that they leave (adaptive scheme). Left out: from B_x, by the theorem. An input
             distribution's own comes from `calibrate_interval`, with `least`, below the features' singular values.
    refresh  two blocks per step (adaptive scheme). Left out: in float32, which needs them.

    An option that the scheme does not read is refused, but for B_x.
    """
    positive = {"B_x": B_x, "B_y": B_y, "eps": eps, "error": error, "eta": eta, "c": c, "hi": hi, "least": least}
    positive |= {"kernel_error": kernel_error}
    asked = _numbers(L=L, rho=rho, heads=heads, degree=degree, refresh=refresh, **positive)
    if scheme is None:
        scheme = "compact" if eps is None else "paper"
    require_choice("scheme", scheme, SCHEMES)
    precision, place = as_dtype(dtype), as_device(device)
    ranges = {name: asked[name] for name in ("B_x", "B_y") if asked[name] is not None}
    kind = SCHEMES[scheme]
    scales = None if is_single(v) else tuple(as_float_tensor("v", v, "d").tolist())  # type: ignore[arg-type]
    plain = Problem(d=d, N=N, kernel=Gaussian(v=v if scales is None else 1.0), lam=lam, scales=scales, **ranges)  # type: ignore[arg-type]
    problem = replace(plain, kernel=_kernel(kernel, plain, asked["kernel_error"], asked["error"]))
    own = {name: asked[name] for name in kind.options}
    if "refresh" in own and own["refresh"] is None:
        own["refresh"] = precision is not torch.float64
    foreign: dict[str, tuple[Any, str]] = {}
    for other in SCHEMES.values():
        foreign |= {name: (idle, other.name) for name, idle in other.options.items() if name not in foreign}
    ignored = [
        Precondition(asked[name] in (idle, None), f"{name} = {asked[name]!r}", f'left out: for scheme="{other}"', "")
        for name, (idle, other) in foreign.items()
        if name not in kind.options
    ]
    reasons = [
        problem.precision(precision),
        Precondition(
            kind.mixtures or isinstance(problem.kernel, Gaussian),
            f"kernel = {kernel!r}",
            f'"gaussian": scheme="{scheme}" divides by the row sums of one Gaussian',
            'Leave scheme out, or use scheme="adaptive".',
        ),
        *kind.conditions(problem, error=asked["error"], L=asked["L"], **own),
        *ignored,
    ]
    require_all(f'scheme="{scheme}" cannot be built', reasons)
    if asked["error"] is not None:
        plan = kind.for_error(problem, asked["error"], eta=asked["eta"], **own)
    else:
        plan = kind.of_depth(problem, asked["L"], eta=asked["eta"], **own)
    arguments: dict[str, Any] = {"d": problem.d, "N": problem.N, "v": scales or problem.kernel.v, "lam": problem.lam}
    if isinstance(problem.kernel, Mixture):
        arguments["kernel"] = problem.kernel.mixture.to_dict()
    network = Construction(plan, arguments | {"scheme": scheme} | asked | {"kernel_error": None})
    if network.is_built:
        _review(network, precision)
    return network.to(device=place, dtype=precision)


def _kernel(kernel: Any, problem: Problem, kernel_error: float | None, error: float | None) -> Kernel:
    """The kernel that is asked for, as near to it as the guarantee needs: half of `error` is for what is missed."""
    fitted = not isinstance(kernel, GaussianMixture | Mapping)
    if fitted:
        as_profile("gaussian" if kernel is None else kernel)  # a name that is not known is refused as that
    require(fitted or kernel_error is None, "kernel_error", kernel_error, "left out: a mixture has its own error")
    needed = 1e-5
    if error is not None and problem.B_norm < math.inf:
        root = math.sqrt(problem.N / problem.lam)
        needed = min(0.01, 0.5 * error / problem.B_norm / (root * (1 + root / 2)))
    near = needed if kernel_error is None else kernel_error
    try:
        return as_kernel(kernel, problem.kernel.v, max(near, 1e-10), 2 * problem.B_x)
    except InputError as why:
        if not fitted:
            raise
        if kernel_error is not None or error is None:
            raise InputError(str(why).replace("error = ", "kernel_error = ", 1)) from why
        raise InputError(
            f"error = {error:g}: for this N and lam Gaussians within {needed:.2g} of the kernel can guarantee it. "
            f"{why} Or give L instead of error: each prediction has its bound."
        ) from why


def _numbers(*, L: Any, heads: Any, rho: Any, degree: Any, refresh: Any, **positive: Any) -> dict[str, Any]:
    """The options as Python's numbers, checked; None where nothing is asked."""
    require_positive(**{name: value for name, value in positive.items() if value is not None})
    require(rho is None or 0 <= as_float(rho) < math.inf, "rho", quoted(rho), "a finite number of at least 0")
    require_count(1, MOST_ITERATIONS, **({} if L is None else {"L": L}))
    require_count(degree=degree, **({} if heads is None else {"heads": heads}))
    require_flag(**({} if refresh is None else {"refresh": refresh}))
    options = positive | {"L": L, "rho": rho, "heads": heads, "degree": degree, "refresh": refresh}
    kinds = {"L": int, "heads": int, "degree": int, "refresh": bool}
    return {name: None if value is None else kinds.get(name, float)(value) for name, value in options.items()}


def _review(network: Construction, dtype: torch.dtype) -> None:
    """Refuse a type in which a weight is infinite. Say when a guarantee asked for is empty, or drowned by rounding."""
    largest = max(float(weight.abs().max()) for weight in network.parameters())
    allowed = f"large enough for the sink weight and all others, up to {largest:.2g}"
    remedy = "Ask for a larger error, or use float32 or float64."
    require(largest < torch.finfo(dtype).max, "dtype", dtype, allowed, remedy)
    if network.arguments["error"] is None and network.arguments["eps"] is None:
        return
    u = torch.finfo(dtype).eps / 2
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
