"""Trajectories whose solver is known: five steps of each class of the library, with a little noise."""

from dataclasses import replace

import numpy as np
import torch

import layerstep as ls

TASK = ls.Task(inputs="gaussian")
STEPS = {
    "richardson": (3, 8, 20, 50, 120),
    "richardson-fixed": (4, 10, 25, 60, 150),
    "gd": (10, 40, 150, 600, 3000),
    "nesterov": (5, 12, 25, 50, 100),
    "cg": (1, 2, 4, 6, 8),
    "chebyshev": (4, 9, 15, 22, 30),
    "ridge": (0.2, 0.8, 3, 10, 40),
    "shrink": (15, 30, 45, 60, 80),
    "nadaraya-watson": (0.5, 1, 2, 4, 8),
    "knn": (2, 5, 9, 14, 20),
    "boost": (1, 3, 6, 12, 25),
    "causal-richardson": (1, 3, 6, 12, 25),
    "causal-boost": (1, 3, 6, 12, 25),
}


def planted(prompts, solver, std=0.03, steps=None, **task):
    path = ls.solve(ls.SOLVERS[solver], prompts, replace(TASK, **task), steps or STEPS[solver])
    noise = torch.from_numpy(np.random.default_rng(3).normal(0, std, path.values.shape)) if std else 0
    return ls.Trajectory(path.values + noise, range(1, path.S + 1), f"planted {solver}")
