"""Planted models of linear regression: the solvers of its library on schedules drawn afresh, and negative controls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.calibration.negatives import LAYERS, NO_CLASS, network_control, ramp
from layerstep.measurement.calibration.schedules import Schedule, geometric, linear, power, saturating, steps_of
from layerstep.measurement.calibration.setting import PlantedSetting
from layerstep.measurement.identification.domains import NO_RIDGE
from layerstep.measurement.identification.linear_tasks import ISOTROPIC, Scales
from layerstep.solvers import (
    SOLVERS,
    ConjugateGradient,
    DiscreteMMSE,
    GradientDescentInWeights,
    GradientDescentPlusPlus,
    OnlineGD,
    Preconditioned,
    RecursiveKRR,
    RidgePath,
    Solver,
    inverse_covariance,
)
from layerstep.solvers.system import System
from layerstep.tasks import LinearRegression, sample

Values = Float[Tensor, "L B C"]
Maker = Callable[[PlantedSetting, np.random.Generator], Values]


#: The calibration's tasks: dimensions, lengths and noises of the literature; isotropic, ill-conditioned, not centred.
SETTINGS = (
    LinearRegression(d=20, N=40, sigma=0.5),
    LinearRegression(d=5, N=40, sigma=0.05),
    LinearRegression(d=20, N=40, sigma=0.0),
    LinearRegression(d=8, N=16, sigma=0.5, mean=[1.0] + 7 * [0.0]),
    LinearRegression(d=20, N=40, sigma=0.5, covariance=[0.01 ** (k / 19) for k in range(20)]),
    LinearRegression(d=20, N=16, sigma=0.05),
)
#: How the steps grow, by the last word of a planted model's name.
FORMS = {"linear": "linear", "quadratic": "quadratic", "doubling": "geometric", "geometric": "geometric"}
#: Which variant of gradient descent, by the first words of its name; the first that fits.
VARIANTS = {
    "gd++": "inputs change, too (GD++)",
    "gd, one step size per prompt": "a step size for every prompt",
    "gd, one step size": "one step size for all prompts",
    "gd, ": "a step size for every prompt and length",
}


def form_of(name: str) -> str | None:
    """How the steps of a planted model grow, where its name says so; those of class newton in Newton's iterations."""
    if name == "gd in w, geometric":  # Newton's filter at 2^t steps
        return "linear"
    return FORMS.get(name.rsplit(", ", 1)[-1])


def variant_of(name: str) -> str | None:
    """Which variant of gradient descent a planted model is."""
    return next((variant for start, variant in VARIANTS.items() if name.startswith(start)), None)


def _up_to(limit: int, stride: int = 1) -> Schedule:
    return lambda random: np.arange(stride, limit + 1, stride)


def inside(task: Any) -> list[tuple[str, str, Maker]]:
    """name, class, maker: solvers at steps between those of the library, with another ridge two times in three."""
    scales = Scales.of(task)
    d, points = min(task.d, 10), task.N / 40
    gd, one = SOLVERS["gd-weights"], GradientDescentInWeights(eta=0.8 / scales.top)
    plus = GradientDescentPlusPlus(gamma=0.17)
    plus_one = GradientDescentPlusPlus(gamma=0.2 / scales.top, eta=0.7 / scales.top, absolute=True)
    product = scales.product

    def sharpness(random: np.random.Generator) -> np.ndarray:
        return geometric(0.3, 6)(random) / product

    table: list[tuple[str, str, Solver, Schedule]] = [
        ("gd, linear", "gd-weights", gd, linear(1, 4)),
        ("gd, quadratic", "gd-weights", gd, power(2, 150)),
        ("gd, doubling", "gd-weights", gd, geometric(1, 2000)),
        ("gd, one step size per prompt, linear", "gd-weights", SOLVERS["gd-weights-fixed"], linear(3, 8)),
        ("gd, one step size per prompt, geometric", "gd-weights", SOLVERS["gd-weights-fixed"], geometric(2, 3000)),
        ("gd, one step size, quadratic", "gd-weights", one, power(2, 400)),
        ("gd++", "gd-weights", plus, linear(1, 1.5)),
        ("gd++, one step size", "gd-weights", plus_one, linear(1, 3)),
        ("newton, linear", "newton", SOLVERS["newton"], linear(0.8, 1.4)),
        ("newton, Frobenius start", "newton", SOLVERS["newton-frobenius"], linear(0.8, 1.5)),
        ("newton, saturating", "newton", SOLVERS["newton"], saturating(14)),
        ("gd in w, geometric", "newton", SOLVERS["gd"], geometric(3, 1e5)),
        ("cg in weights", "cg-weights", SOLVERS["cg-weights"], _up_to(d)),
        ("cg in weights, two a layer", "cg-weights", SOLVERS["cg-weights"], _up_to(max(d, 4), 2)),
        ("cg in w", "cg", ConjugateGradient(reorthogonalize=True), _up_to(10)),
        ("nesterov, linear", "nesterov-weights", SOLVERS["nesterov-weights"], linear(3, 7)),
        ("nesterov, quadratic", "nesterov-weights", SOLVERS["nesterov-weights"], power(2, 150)),
        ("heavy ball", "heavy-ball-weights", SOLVERS["heavy-ball-weights"], linear(2, 5)),
        ("chebyshev", "chebyshev-weights", SOLVERS["chebyshev-weights"], linear(1.5, 4)),
        ("kaczmarz", "kaczmarz", SOLVERS["kaczmarz"], linear(1, 2.5)),
        ("online gd", "online-gd", OnlineGD(scale=1 / scales.square), geometric(0.01, 0.8)),
        ("causal gd, linear", "causal-gd", SOLVERS["causal-gd"], linear(1, 3)),
        ("causal gd, quadratic", "causal-gd", SOLVERS["causal-gd"], power(2, 150)),
        ("ridge, geometric", "ridge", RidgePath(scale=scales.square), geometric(0.05, 300)),
        ("ridge, quadratic", "ridge", RidgePath(scale=scales.square), power(2, 60)),
        ("shrink", "shrink", SOLVERS["shrink"], linear(5, 7.5)),
        ("first points", "recursive", SOLVERS["recursive"], linear(2 * points, 3.2 * points)),
        ("nearest points", "knn", SOLVERS["knn"], linear(2 * points, 3.2 * points)),
        ("softmax average", "softmax-average", SOLVERS["softmax-average"], sharpness),
    ]
    if scales.condition > ISOTROPIC:
        whitened = Preconditioned(P=inverse_covariance(sample(task, 64, seed=0).x))
        table += [("pgd, linear", "pgd", whitened, linear(1, 4)), ("pgd, quadratic", "pgd", whitened, power(2, 150))]
    return [(name, kind, _maker(solver, schedule)) for name, kind, solver, schedule in table]


def _maker(solver: Solver, schedule: Schedule) -> Maker:
    def make(setting: PlantedSetting, random: np.random.Generator) -> Values:
        return setting.solve(solver, steps_of(schedule, solver, random), other_ridge(setting.task, random))

    return make


def other_ridge(task: Any, random: np.random.Generator) -> Any:
    """The task with another ridge two times in three: within 2.5 of its own, or small where it has next to none."""
    if random.uniform() < 1 / 3:
        return task
    unit = Scales.of(task).square
    if task.lam > NO_RIDGE * unit:
        lam = task.lam * float(np.exp(random.uniform(np.log(0.4), np.log(2.5))))
    else:
        lam = unit * float(np.exp(random.uniform(np.log(3e-4), np.log(5e-3))))
    return replace(task, sigma=lam**0.5)


def _gd_steps(random: np.random.Generator) -> list[float]:
    return steps_of(power(2, 150), SOLVERS["gd-weights"], random)


def _gd(setting: PlantedSetting, random: np.random.Generator) -> Values:
    return setting.solve(SOLVERS["gd-weights"], _gd_steps(random))


def _ridge(setting: PlantedSetting, random: np.random.Generator) -> Values:
    return setting.solve(RidgePath(scale=Scales.of(setting.task).square), ramp(0.05, 300, random))


def _average(setting: PlantedSetting, random: np.random.Generator) -> Values:
    product = Scales.of(setting.task).product
    return setting.solve(SOLVERS["softmax-average"], [t / product for t in ramp(0.3, 6, random)])


def _cg(setting: PlantedSetting, random: np.random.Generator) -> Values:
    return setting.solve(SOLVERS["cg-weights"], range(1, 13))


def _mixture(first: Maker, second: Maker, share: float) -> Maker:
    def make(setting: PlantedSetting, random: np.random.Generator) -> Values:
        part = share + random.uniform(-0.1, 0.1)
        return part * first(setting, random) + (1 - part) * second(setting, random)

    return make


def _noisy_exact(setting: PlantedSetting, random: np.random.Generator) -> Values:
    noise = torch.from_numpy(random.standard_normal((12, *setting.krr.shape)))
    return setting.krr + setting.unit * torch.tensor(ramp(0.6, 0.1, random))[:, None, None] * noise


def _wrong_metric(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Gradient descent with step sizes of its own for every coordinate, up to a factor of ten apart."""
    P = torch.diag(torch.from_numpy(np.exp(random.uniform(np.log(0.3), np.log(3), setting.prompts.d))))
    return setting.solve(Preconditioned(P=P), _gd_steps(random))


def _other_kernel(setting: PlantedSetting, random: np.random.Generator) -> Values:
    x = setting.prompts.x
    away = torch.cdist(x, x)
    gram = torch.exp(-(away / (random.uniform(0.6, 1.2) * float(away.mean()))).square())
    return setting.solve_with(gram, SOLVERS["gd-weights"], [int(t) for t in _gd_steps(random)])


def _squashed(setting: PlantedSetting, random: np.random.Generator) -> Values:
    size = random.uniform(0.8, 1.5) * setting.unit
    return size * torch.tanh(_gd(setting, random) / size)


def _switch(setting: PlantedSetting, random: np.random.Generator) -> Values:
    return torch.cat([_gd(setting, random)[:6], _ridge(setting, random)[6:]])


def _cut_off(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Principal components: those with large eigenvalues alone, more with depth."""
    edges = torch.tensor(ramp(0.7, 0.01, random))

    def predict(system: System) -> Float[Tensor, "L B"]:
        values = system.plain.values
        keep = (values > edges[:, None, None] * values[:, -1:]) & (values > system.rounding)
        return (keep * system.plain.weights / (values + system.lam)).nan_to_num().sum(-1)

    return setting.each(predict)


def _recent(setting: PlantedSetting, random: np.random.Generator) -> Values:
    step = random.uniform(2, 3.2) * setting.task.N / 40
    return setting.solve(RecursiveKRR(newest_first=True), sorted({max(1, round(step * k)) for k in LAYERS}))


def _in_weights(update: Callable[[Tensor, Tensor, int, float], Tensor]) -> Maker:
    """θ' = update(θ, gradient, step, rate) on every prefix, one to four steps per layer."""

    def make(setting: PlantedSetting, random: np.random.Generator) -> Values:
        stride, rate = int(random.integers(1, 5)), random.uniform(0.5, 1)

        def predict(system: System) -> Float[Tensor, "L B"]:
            X, q = system.batch.x[:, : system.n], system.batch.x[:, system.n]
            top = system.plain.values[:, -1:]
            theta, out = torch.zeros_like(q), []
            for step in range(12 * stride):
                gradient = torch.einsum("bnd,bn->bd", X, system.y - torch.einsum("bnd,bd->bn", X, theta)) / top
                theta = update(theta, gradient, step, rate)
                if step % stride == stride - 1:
                    out.append((q * theta).sum(-1))
            return torch.stack(out)

        return setting.each(predict)

    return make


def _shrunk(theta: Tensor, gradient: Tensor, step: int, rate: float) -> Tensor:
    """One step of ISTA: lasso."""
    moved = theta + gradient
    return moved.sign() * (moved.abs() - 0.15 * rate).clamp_min(0)


def _signs(theta: Tensor, gradient: Tensor, step: int, rate: float) -> Tensor:
    return theta + 0.3 * rate * 0.9**step * gradient.sign()


def _pool(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """The posterior mean over 32 weights that are not the prompts'."""
    pool = torch.from_numpy(random.standard_normal((32, setting.prompts.d)))
    return setting.solve(DiscreteMMSE(pool=pool), [t / setting.unit**2 for t in ramp(0.02, 4, random)])


def _by_labels(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Gradient descent whose step sizes grow with the labels' mean square."""
    steps = _gd_steps(random)
    power = setting.prompts.y.square().mean(1) / setting.unit**2
    values = setting.solve(SOLVERS["gd-weights"], [0, *steps, 10 * steps[-1]])
    share = (power / 2).clamp(0.05, 0.95)[None, :, None]
    return (1 - share) * values[:-2] + share * values[2:]


def _shuffled(setting: PlantedSetting, random: np.random.Generator) -> Values:
    order = torch.from_numpy(np.roll(random.permutation(setting.prompts.B), 1))
    return _gd(setting, random)[:, order]


def _blind(setting: PlantedSetting, random: np.random.Generator) -> Values:
    W = torch.from_numpy(random.standard_normal((12, setting.prompts.d)))
    query = torch.stack([setting.prompts.x[:, n] for n in setting.contexts], dim=1)
    return torch.einsum("ld,bcd->lbc", W, query)


def _shrunken(setting: PlantedSetting, random: np.random.Generator) -> Values:
    return torch.linspace(random.uniform(0.3, 0.5), 1, 12)[:, None, None] * _gd(setting, random)


def _momentum_in_w(setting: PlantedSetting, random: np.random.Generator) -> Values:
    return setting.solve(SOLVERS["nesterov"], steps_of(power(2, 150), SOLVERS["nesterov"], random))


OUTSIDE: tuple[tuple[str, tuple[str | None, ...], Maker], ...] = (
    ("exact + noise", NO_CLASS, _noisy_exact),
    ("gd .7 + softmax average .3", NO_CLASS, _mixture(_gd, _average, 0.7)),
    ("gd .5 + ridge .5", NO_CLASS, _mixture(_gd, _ridge, 0.5)),
    ("cg .6 + gd .4", NO_CLASS, _mixture(_cg, _gd, 0.6)),
    ("gd in another metric", NO_CLASS, _wrong_metric),
    ("gd with a Gaussian kernel", NO_CLASS, _other_kernel),
    ("tanh of gd", NO_CLASS, _squashed),
    ("gd, then ridge", ("gd-weights",) * 6 + ("ridge",) * 6, _switch),
    ("principal components", NO_CLASS, _cut_off),
    ("last points", NO_CLASS, _recent),
    ("lasso by ista", NO_CLASS, _in_weights(_shrunk)),
    ("sign descent", NO_CLASS, _in_weights(_signs)),
    ("posterior mean over a pool", NO_CLASS, _pool),
    ("gd, steps by the labels' size", NO_CLASS, _by_labels),
    ("gd on other sequences", NO_CLASS, _shuffled),
    ("a model that ignores the labels", NO_CLASS, _blind),
    ("shrunken gd", NO_CLASS, _shrunken),
    ("nesterov in w", NO_CLASS, _momentum_in_w),
)
#: Probes of networks, which take a minute to train: planted where they are named.
NETWORKS: tuple[tuple[str, tuple[str | None, ...], Maker], ...] = (
    ("untrained transformer, probed", NO_CLASS, network_control(12, 0, 0)),
    # What it computes is not known: a claim about it counts as false until somebody shows that it is right.
    ("lightly trained transformer, probed", NO_CLASS, network_control(4, 200, 500)),
)
