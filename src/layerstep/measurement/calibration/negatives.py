"""Negative controls: planted models that no class of the library made. The right answer is not to claim.

Each takes the prompts and a random generator and gives twelve layers, most of them improving smoothly with depth.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.construction import construct
from layerstep.measurement.calibration.setting import PlantedSetting
from layerstep.measurement.reading.probes import Probes, probe
from layerstep.solvers import SOLVERS, HeavyBall, RecursiveKRR
from layerstep.solvers.system import System
from layerstep.training import GPT, Model, Run, train

Values = Float[Tensor, "L B C"]
LAYERS = np.arange(1, 13)


def _richardson_steps(random: np.random.Generator, low: float = 6, high: float = 14) -> list[int]:
    return [round(step) for step in random.uniform(low, high) * LAYERS]


def ramp(low: float, high: float, random: np.random.Generator) -> list[float]:
    """Twelve values rising geometrically, the ends drawn within a fifth."""
    a, b = low * random.uniform(0.8, 1.2), high * random.uniform(0.8, 1.2)
    return np.geomspace(a, b, 12).tolist()


def _heavy_ball(setting: PlantedSetting, random: np.random.Generator) -> Values:
    return setting.solve(HeavyBall(), _richardson_steps(random, 3, 7))


def _noisy_krr(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """KRR plus noise that decreases with depth."""
    noise = torch.from_numpy(random.standard_normal((12, *setting.krr.shape)))
    return setting.krr + torch.tensor(ramp(0.6, 0.1, random))[:, None, None] * noise


def _mixture(first: str, second: str, share: float):
    def make(setting: PlantedSetting, random: np.random.Generator) -> Values:
        scales = {"richardson": _richardson_steps(random), "gd": _richardson_steps(random, 30, 60)}
        scales |= {"ridge": ramp(0.05, 60, random), "nadaraya-watson": ramp(0.5, 8, random), "cg": list(range(1, 13))}
        part = share + random.uniform(-0.1, 0.1)
        a, b = (setting.solve(SOLVERS[name], scales[name]) for name in (first, second))
        return part * a + (1 - part) * b

    return make


def _rougher_gram(setting: PlantedSetting, random: np.random.Generator) -> Float[Tensor, "B M M"]:
    """An exponential, a Matern 3/2 or a rational quadratic kernel."""
    r = torch.cdist(setting.prompts.x, setting.prompts.x) / random.uniform(0.6, 1.2)
    kernels = [torch.exp(-r), (1 + 3**0.5 * r) * torch.exp(-(3**0.5) * r), 1 / (1 + r.square())]
    return kernels[random.integers(3)]


def _other_kernel(setting: PlantedSetting, random: np.random.Generator) -> Values:
    gram = _rougher_gram(setting, random)
    return setting.solve_with(gram, SOLVERS["richardson"], _richardson_steps(random))


def _two_bandwidths(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Richardson with the mean of a narrow and a wide Gaussian kernel."""
    x = setting.prompts.x
    narrow, wide = (replace(setting.task, v=ratio * setting.task.v).gram(x, x) for ratio in (0.5, 1.7))
    return setting.solve_with((narrow + wide) / 2, SOLVERS["richardson"], _richardson_steps(random))


def _squashed(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """tanh of Richardson: not linear in the labels."""
    sharpness = random.uniform(1.2, 2)
    return torch.tanh(sharpness * setting.solve(SOLVERS["richardson"], _richardson_steps(random))) / sharpness


def _switch(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Richardson for six layers, then exact ridge."""
    first = setting.solve(SOLVERS["richardson"], _richardson_steps(random)[:6])
    return torch.cat([first, setting.solve(SOLVERS["ridge"], ramp(2, 80, random)[6:])])


def _cut_off(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """KRR without the components of eigenvalues below a threshold that falls with depth."""
    edges = torch.tensor(ramp(3, 0.01, random))

    def predict(system: System) -> Float[Tensor, "L B"]:
        values = system.plain.values
        keep = (values > edges[:, None, None]).to(values)
        return (keep * system.plain.weights / (values + system.lam)).sum(-1)

    return setting.each(predict)


def _recent(setting: PlantedSetting, random: np.random.Generator) -> Values:
    step = random.uniform(2, 3.2)
    return setting.solve(RecursiveKRR(newest_first=True), [round(step * layer) for layer in LAYERS])


def _oldest(setting: PlantedSetting, random: np.random.Generator) -> Values:
    step = random.uniform(2, 3.2)
    return setting.solve(RecursiveKRR(), [round(step * layer) for layer in LAYERS])


def _online(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Kernel LMS: one causal pass, w_i = eta (y_i - sum_{j<i} K_ij w_j), eta growing with depth."""
    eta = torch.tensor(ramp(0.02, 0.8, random))

    def predict(system: System) -> Float[Tensor, "L B"]:
        w = system.y.new_zeros(12, *system.y.shape)
        for i in range(system.n):
            seen = (system.K[:, i, :i] * w[:, :, :i]).sum(-1)
            w[:, :, i] = eta[:, None] * (system.y[:, i] - seen)
        return (system.k * w).sum(-1)

    return setting.each(predict)


def _sinked(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """sum K^beta y / (s + sum K^beta): a kernel average with a sink, sharpening with depth while the sink empties."""
    sharp, sink = ramp(0.3, 8, random), ramp(20, 0.5, random)

    def predict(system: System) -> Float[Tensor, "L B"]:
        weights = torch.stack([system.k**beta for beta in sharp])
        return (weights * system.y).sum(-1) / (weights.sum(-1) + torch.tensor(sink)[:, None])

    return setting.each(predict)


def _linear_model(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Ridge regression on the inputs themselves, the ridge falling with depth: no kernel."""
    x, y = setting.prompts.x, setting.prompts.y
    columns = []
    for n in setting.contexts:
        gram, right = x[:, :n].mT @ x[:, :n], x[:, :n].mT @ y[:, :n, None]
        weights = [
            torch.linalg.solve(gram + lam * torch.eye(x.shape[-1]).to(x), right) for lam in ramp(50, 0.1, random)
        ]
        columns.append(torch.stack([(x[:, n] * w.squeeze(-1)).sum(-1) for w in weights]))
    return torch.stack(columns, dim=-1)


def _shuffled(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Richardson on other sequences than the ones asked about."""
    order = torch.from_numpy(np.roll(random.permutation(setting.prompts.B), 1))
    return setting.solve(SOLVERS["richardson"], _richardson_steps(random))[:, order]


def _blind(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """A random function of the query: the labels are not read."""
    W = torch.from_numpy(random.standard_normal((12, setting.prompts.d)))
    query = torch.stack([setting.prompts.x[:, n] for n in setting.contexts], dim=1)
    return torch.einsum("ld,bcd->lbc", W, query).sin()


def _shrunken_richardson(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Richardson times a factor that rises from one third to one: the right direction, the wrong length."""
    scale = torch.linspace(random.uniform(0.3, 0.5), 1, 12)
    return scale[:, None, None] * setting.solve(SOLVERS["richardson"], _richardson_steps(random))


def _relaxed_boost(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """One kernel average of the residuals per layer, times a growing factor: r -= a S r, f += a S_q r."""
    relax, beta, sink = ramp(1, 4, random), random.uniform(1.5, 2.5), random.uniform(0.3, 0.8)

    def predict(system: System) -> Float[Tensor, "L B"]:
        K, k = system.K**beta, system.k**beta
        S, S_q = K / (sink + K.sum(-1, keepdim=True)), k / (sink + k.sum(-1, keepdim=True))
        r, f, out = system.y, torch.zeros_like(system.y[:, 0]), []
        for a in relax:
            f = f + a * (S_q * r).sum(-1)
            r = r - a * torch.einsum("bij,bj->bi", S, r)
            out.append(f)
        return torch.stack(out)

    return setting.each(predict)


@cache
def _probed(task: Any, layers: int, steps: int, seed: int) -> Probes:
    """Linear probes of a small transformer after so many steps of training."""
    model = Model(layers=layers, heads=4, width=64)
    gpt = GPT(model, d=task.d, N=task.N).initialise(seed)
    if steps:
        rate = {"lr": 2e-3, "lr_final": 1e-4, "warmup": 50, "curriculum_every": 0}
        run = Run(task=task, model=model, steps=steps, batch=32, seed=seed, **rate)
        with TemporaryDirectory() as folder:
            gpt = train(run, folder, device="cpu", snapshots=(), checkpoint_seconds=1e9)
    return probe(gpt, task, prompts=2048, seed=seed)


def network_control(layers: int, fewest: int, most: int):
    def make(setting: PlantedSetting, random: np.random.Generator) -> Values:
        steps, seed = int(random.integers(fewest, most + 1)), int(random.integers(2**31))
        path = _probed(setting.task, layers, steps, seed).path(setting.prompts)
        return path.values[1:][:, :, [n - 1 for n in setting.contexts]].double()

    return make


NO_CLASS = (None,) * 12
#: name, class of every layer, maker.
NEGATIVE_CONTROLS = (
    ("heavy ball", NO_CLASS, _heavy_ball),
    ("krr + noise", NO_CLASS, _noisy_krr),
    ("richardson .7 + nadaraya-watson .3", NO_CLASS, _mixture("richardson", "nadaraya-watson", 0.7)),
    ("richardson .5 + ridge .5", NO_CLASS, _mixture("richardson", "ridge", 0.5)),
    ("cg .6 + gd .4", NO_CLASS, _mixture("cg", "gd", 0.6)),
    ("richardson, another kernel", NO_CLASS, _other_kernel),
    ("richardson, two bandwidths", NO_CLASS, _two_bandwidths),
    ("tanh of richardson", NO_CLASS, _squashed),
    ("richardson, then ridge", ("richardson",) * 6 + ("ridge",) * 6, _switch),
    ("spectral cut-off", NO_CLASS, _cut_off),
    ("krr on the last points", NO_CLASS, _recent),
    ("krr on the first points", NO_CLASS, _oldest),
    ("online kernel lms", NO_CLASS, _online),
    ("kernel average with a sink", NO_CLASS, _sinked),
    ("linear ridge regression", NO_CLASS, _linear_model),
    ("richardson on other sequences", NO_CLASS, _shuffled),
    ("a model that ignores the labels", NO_CLASS, _blind),
    ("shrunken richardson", NO_CLASS, _shrunken_richardson),
    ("over-relaxed boosting", NO_CLASS, _relaxed_boost),
    ("untrained transformer, probed", NO_CLASS, network_control(12, 0, 0)),
    # What it computes is not known: a claim about it counts as false until somebody shows that it is right.
    ("lightly trained transformer, probed", NO_CLASS, network_control(4, 200, 500)),
)


def _drift(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Richardson whose bandwidth drifts from .85 to 1.15 over the layers."""
    steps = _richardson_steps(random)
    widths = np.linspace(0.85, 1.15, 12) * setting.task.v
    layers = [
        setting.solve(SOLVERS["richardson"], [t], replace(setting.task, v=float(v)))
        for t, v in zip(steps, widths, strict=True)
    ]
    return torch.cat(layers)


def _mostly(share: float, other: str):
    def make(setting: PlantedSetting, random: np.random.Generator) -> Values:
        path = setting.solve(SOLVERS["richardson"], _richardson_steps(random))
        rest = setting.krr if other == "krr" else setting.solve(SOLVERS[other], ramp(0.5, 8, random))
        return share * path + (1 - share) * rest

    return make


#: Neither inside nor outside: shown, not counted.
BORDERLINE = (
    ("richardson, drifting bandwidth", ("richardson",) * 12, _drift),
    ("richardson .9 + krr .1", ("richardson",) * 12, _mostly(0.9, "krr")),
    ("richardson .7 + krr .3", ("richardson",) * 12, _mostly(0.7, "krr")),
    ("richardson .95 + nadaraya-watson .05", ("richardson",) * 12, _mostly(0.95, "nadaraya-watson")),
)


def _iterated_tikhonov(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """w += (K + (lam + a) I)⁻¹ (y - (K + lam I) w), one to three times per layer: implicit steps."""
    a, times = float(np.exp(random.uniform(np.log(0.3), np.log(10)))), int(random.integers(1, 4)) * LAYERS

    def predict(system: System) -> Float[Tensor, "L B"]:
        s, g = system.ridged.values, system.ridged.weights
        return torch.stack([(g / s * (1 - (a / (s + a)) ** int(t))).sum(-1) for t in times])

    return setting.each(predict)


def _other_ridge(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """The exact ridge path of another kernel."""
    return setting.solve_with(_rougher_gram(setting, random), SOLVERS["ridge"], ramp(0.3, 60, random))


def _random_features(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """Gradient descent on the weights of 32 to 128 random Fourier features of the task's kernel."""
    x, count = setting.prompts.x, int(random.integers(32, 129))
    frequencies = torch.from_numpy(random.standard_normal((x.shape[-1], count))) / setting.task.v
    features = (x @ frequencies + torch.from_numpy(random.uniform(0, 2 * np.pi, count))).cos() * (2 / count) ** 0.5
    solver = SOLVERS["richardson-plain"]
    return setting.solve_with(features @ features.mT, solver, _richardson_steps(random))


def _adaptive(setting: PlantedSetting, random: np.random.Generator) -> Values:
    """A constructed transformer that takes the prompt's large eigenvalues out, then Chebyshev steps, 2 to 6 per layer.

    Its interval ends 1 to 1.5 times above what the paper's three input distributions need.
    """
    task, stride = setting.task, int(random.integers(2, 7))
    hi = min(task.lam + task.N, 1.25 * random.uniform(1, 1.5))
    network = construct(task.d, task.N, task.v, task.lam, scheme="adaptive", hi=hi, L=stride * len(LAYERS))
    stages = (stride * LAYERS).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which says what the certificate says, where few steps have been taken
        return network.path(setting.prompts, stages=stages, contexts=setting.contexts).values


#: Negative controls that came after the shipped record: they are tested by name, and no threshold has seen them.
LATER = (
    ("iterated tikhonov", NO_CLASS, _iterated_tikhonov),
    ("ridge, another kernel", NO_CLASS, _other_ridge),
    ("gradient descent on random features", NO_CLASS, _random_features),
    ("transformer, adaptive scheme", NO_CLASS, _adaptive),
)
