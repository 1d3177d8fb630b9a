"""What arguments of the library are given by the fuzzer: values that are taken, odd ones among them, and JUNK."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layerstep as ls

NAN = math.nan
torch.manual_seed(0)  # what a line of the fuzzer shows is what it did
TASK = ls.Task(N=4, d=2)
PROMPTS = ls.sample(TASK, 3, seed=0)
SOLVED = ls.solve(ls.Richardson(), PROMPTS, TASK, 3)
GPT = ls.GPT(ls.Model(layers=1, heads=1, width=4), d=2, N=4).initialise(0).eval()
NETWORK = ls.construct(2, 4, 1.0, 0.5, B_x=1.0, B_y=3.0, scheme="compact", L=2)
PROBES = ls.probe(GPT, TASK, prompts=16)
MANY = ls.sample(TASK, 64, seed=1)
MANY_SOLVED = ls.solve(ls.Richardson(), MANY, TASK, 3)
RUN = ls.PRESETS["tiny"].override(
    layers=1, heads=1, width=4, d=2, N=4, steps=1, warmup=0, batch=2, curriculum_start=1, inputs="sphere"
)
LINEAR = ls.LinearRegression(d=2, N=4, sigma=0.1)
LINEAR_PROMPTS = ls.sample(LINEAR, 3, seed=0)
LINEAR_SOLVED = ls.solve(ls.GradientDescentInWeights(), LINEAR_PROMPTS, LINEAR, 3)
MIXTURE = ls.GaussianMixture(weights=(0.25, 0.75), widths=(0.5, 2.0))
ADAPTIVE = ls.construct(2, 4, 1.0, 0.5, scheme="adaptive", hi=4.0, L=4)
CUBIC = ls.construct(2, 4, 1.0, 0.5, scheme="adaptive", hi=4.0, L=4, degree=3)
ONE_HEAD = ls.construct(2, 4, 1.0, 0.5, scheme="adaptive", hi=4.0, L=4, heads=1)
OF_MIXTURE = ls.construct(2, 4, [1.0, 2.0], 0.5, kernel="matern32", L=4, B_y=2.0)
JUNK: list[Any] = [
    None, True, False, 0, -1, 1, 3.7, -0.0, 10**30, 10**400, -(2**63), NAN, math.inf, 1e-320, 1e308, 1j,
    "", "abc", "0.5", "a" * 300, "\0", b"bytes", [], {}, (), set(), [1, 2], [[1.0], [2.0, 3.0]], {"a": 1}, {1: 2},
    [None],
    object(), int, dict, len, lambda *_: None, lambda *_: 1 / 1, range(3), iter([1]), slice(None), Ellipsis,
    NotImplemented,
    np.float32(0.5), np.int64(3), np.bool_(True), np.array(1.0), np.array([]), np.zeros((0, 2)), np.ones((3, 2)),
    np.ones((2, 3, 2)), np.array([1.0, NAN]), np.array([np.inf, 1.0]), np.array(["a", "b"]), np.array([None, 1],
    dtype=object),
    np.ma.masked_array([1.0, 2.0], mask=[True, False]), np.ma.masked, np.array([1 + 2j]), np.ones(3, dtype=np.float16),
    np.datetime64("2020-01-01"), np.array([True, False]), np.zeros(3, dtype=[("a", int)]), np.ones((3, 4))[::-1],
    torch.tensor(1.0), torch.tensor([]), torch.ones(3, 2), torch.ones(3, 5, 2, requires_grad=True), torch.ones(3,
    4).int(),
    torch.ones(2, dtype=torch.complex64), torch.tensor([NAN]), torch.ones(3, 4, dtype=torch.bfloat16),
    torch.empty(3, 4, device="meta"), torch.eye(3).to_sparse(), torch.float32, torch.int8, torch.device("meta"),
    torch.nn.Linear(2, 2), torch.nn.Identity(), Path("nowhere"), Path("/proc/none"), Path("."),
    TASK, PROMPTS, SOLVED, GPT, NETWORK, PROBES, RUN, ls.Model(), ls.Richardson(), ls.Richardson, ls.Task,
    ls.InputError("x"), LINEAR, MIXTURE, ls.Matern(),
]  # fmt: skip

Values = list[Any]
REALS: Values = [1.0, 0.5, 2, np.float32(0.25), np.int64(3), 1e-6, 1e6, 1e-140, 1e140]
COUNTS: Values = [1, 2, 3, 5, np.int64(4), 17]
SEEDS: Values = [0, 1, 7, 2**63, 2**64 - 1, np.uint64(5)]
DTYPES: Values = [torch.float64, torch.float32, "float32", np.float64]
DEVICES: Values = ["cpu", torch.device("cpu")]
KERNELS: Values = [
    "gaussian",
    "arccos1",
    "matern12",
    "linear",
    "polynomial:3",
    "rational-quadratic:2.0",
    ls.KERNELS["matern52"],
]
RADIAL: Values = [None, "gaussian", "matern32", "exponential", "rational-quadratic", ls.Matern(nu=2.5), MIXTURE,
                  ls.RationalQuadratic(alpha=2), {"weights": [1.0], "widths": [0.5]}]  # fmt: skip
LENGTHS: Values = [1.0, 0.5, 1e-6, 1e6, 1e-140, 1e140, [1.0, 3.0], np.array([1e-3, 1e3])]
TASKS: Values = [
    TASK,
    ls.Task(N=3, d=1, inputs="uniform"),
    ls.Task(N=5, d=3, kernel="arccos1", inputs="gaussian"),
    LINEAR,
    ls.LinearRegression(d=3, N=2, prior="sparse:1"),
    ls.LinearRegression(d=2, N=3, pool=5, sigma=1),
]
POINTS: Values = [np.ones((3, 5, 2)), torch.randn(3, 5, 2), np.zeros((3, 5, 2)), (1e6 * np.ones((3, 5, 2))).tolist(),
                  1e-300 * np.ones((3, 5, 2)), np.arange(30).reshape(3, 5, 2), 1e100 * torch.randn(3, 5,
                      2).double()]  # fmt: skip
LABELS: Values = [
    np.ones((3, 5)),
    torch.randn(3, 5),
    np.zeros((3, 5)),
    1e150 * np.ones((3, 5)),
    np.arange(15).reshape(3, 5),
]
SAMPLES: Values = [PROMPTS, ls.Prompts(POINTS[1], LABELS[1]), ls.Prompts(POINTS[2], LABELS[2]), PROMPTS.to("float32"),
                   ls.Prompts(POINTS[6], LABELS[3]), PROMPTS[:1]]  # fmt: skip
SOLVER_VALUES: Values = [
    *(s for name, s in ls.SOLVERS.items() if name != "causal-richardson"),
    ls.Richardson(eta=1e-9),
    ls.Richardson(eta=1.0),
]
STEPS: Values = [0, 1, 3, [0, 1, 5], torch.tensor([1, 2]), np.array([0, 100]), [10**4], 10, range(3)]
ROWS: Values = [
    np.ones((3, 2)) / 2,
    torch.randn(3, 2) / 9,
    np.zeros((4, 2)),
    [[0.1, 0.2]],
    np.arange(6).reshape(3, 2) / 9,
]
ROW_LABELS: Values = [np.ones(3), torch.randn(3), np.zeros(4), [1.0], [0.5, -0.5, 2]]
PATHS: Values = [SOLVED, ls.solve(ls.NadarayaWatson(), PROMPTS, TASK, [0.5, 1.5]), PROBES.path(PROMPTS)]
