"""What depends on the kind of task: families, contexts, nuisances, residual features, and whose error rates hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require, require_positive
from layerstep.measurement.identification.families import FAMILIES, Family, bandwidth_of
from layerstep.measurement.identification.features import residual_features
from layerstep.measurement.identification.features_linear import linear_features
from layerstep.measurement.identification.linear_tasks import Scales, is_linear, linear_families
from layerstep.tasks import Prompts
from layerstep.tasks.prompts import as_float_tensor

#: Where predictions are compared, for N = 40: short contexts must not dominate, as they do in SimE over all n.
CONTEXTS = (3, 6, 10, 15, 20, 25, 30, 35, 40)
#: Bandwidths and ridges tried, as multiples of the task's: all v at its lam, and the other lam at its v.
BANDWIDTHS = (0.7, 0.75, *(1.025**k for k in range(-9, 10)), 1.3, 1.36, 1.43, 1.5)
RIDGES = (0.25, 0.4, 0.63, 1.6, 2.5, 4.0, 6.5)
#: Of linear tasks: contexts around d, where the spectrum is widest, in units of d; and up to N, in units of N.
IN_D = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
IN_N = (0.5, 0.75, 1.0)
#: Ridges of linear tasks: multiples of the task's; where it has next to none, shares of mean |x|².
LINEAR_RIDGES = (0.4, 0.63, 1.6, 2.5)
LINEAR_SHARES = (0.0003, 0.0006, 0.0012, 0.0025, 0.005, 0.0125)
NO_RIDGE = 1e-3  # of mean |x|²

Setting = tuple[float, float]  # a bandwidth and a ridge


@dataclass(frozen=True, kw_only=True)
class Domain:
    """One kind of tasks. name: of its calibration record. even: no context length may carry more of the distance to
    KRR than the median one does, on average over the library. between: ridges between those of `settings` are looked
    at, too (`refinement`). shrinkage: ridge of the fit on the residual features, of the mean square of a feature: keeps
    collinear features from fitting noise."""

    name: str
    families: Callable[[Any], tuple[Family, ...]]
    contexts: Callable[[Any, int], list[int]]
    settings: Callable[[Any, Sequence[float] | None, Sequence[float] | None], list[Setting]]
    features: Callable[[Prompts, Any, Sequence[int]], Float[Tensor, "F B C"]]
    even: bool
    between: bool
    shrinkage: float


def default_contexts(N: int) -> list[int]:
    """The nine context lengths for N = 40, in proportion for other N."""
    return sorted({max(1, round(n * N / CONTEXTS[-1])) for n in CONTEXTS})


def _linear_contexts(task: Any, N: int) -> list[int]:
    around = [round(share * task.d) for share in IN_D]
    return sorted({n for n in (*around, *(round(share * N) for share in IN_N)) if 1 <= n <= N})


def _multiples(argument: str, given: Sequence[float]) -> list[float]:
    """`given` as a list of finite numbers above 0."""
    numbers = as_float_tensor(argument, given, 1).tolist()
    for number in numbers:
        require_positive(**{argument: number})
    return numbers


def _kernel_settings(task: Any, bandwidths: Sequence[float] | None, ridges: Sequence[float] | None) -> list[Setting]:
    widths = list(BANDWIDTHS) if bandwidths is None else _multiples("bandwidths", bandwidths)
    require(len(widths) > 0, "bandwidths", "[]", "at least one multiple of the task's")
    own = bandwidth_of(task)
    if not hasattr(task, "v"):
        widths = [1.0]
    ratios = RIDGES if ridges is None else _multiples("ridges", ridges)
    others = {ratio * task.lam: None for ratio in ratios}
    return [(v * own, task.lam) for v in widths] + [(own, lam) for lam in others if task.lam > 0]


def _linear_settings(task: Any, bandwidths: Sequence[float] | None, ridges: Sequence[float] | None) -> list[Setting]:
    """There is no bandwidth: another scale of x is another step size, or another ridge."""
    unit = Scales.of(task).square
    if ridges is not None:
        found = [ratio * task.lam for ratio in _multiples("ridges", ridges)]
    elif task.lam > NO_RIDGE * unit:
        found = [ratio * task.lam for ratio in LINEAR_RIDGES]
    else:
        found = [share * unit for share in LINEAR_SHARES]
    own = bandwidth_of(task)
    return [(own, task.lam), *((own, lam) for lam in sorted(set(found)) if lam not in (0, task.lam))]


KERNEL = Domain(
    name="kernel",
    families=lambda task: FAMILIES,
    contexts=lambda task, N: default_contexts(N),
    settings=_kernel_settings,
    features=residual_features,
    even=False,
    between=False,
    shrinkage=3e-3,
)
LINEAR = Domain(
    name="linear",
    families=linear_families,
    contexts=_linear_contexts,
    settings=_linear_settings,
    features=linear_features,
    even=True,
    between=True,
    shrinkage=0.1,  # a third less of noise than with .003, and 8 % less of a pattern
)


def domain_of(task: Any) -> Domain:
    """The kind of this task."""
    return LINEAR if is_linear(task) else KERNEL


def contexts_of(task: Any) -> list[int]:
    """The context lengths at which models of this task are compared."""
    return domain_of(task).contexts(task, task.N)


def at_length(task: Any, N: int) -> Any:
    """The task with prompts of N examples; one of the user's that is not a dataclass as it is."""
    return replace(task, N=N) if task.N != N and dataclasses.is_dataclass(task) else task  # type: ignore[type-var]
