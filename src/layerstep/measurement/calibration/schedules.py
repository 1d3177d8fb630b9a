"""Schedules of steps over twelve layers, drawn from a random generator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layerstep.solvers import Solver

L = 12
Schedule = Callable[[np.random.Generator], np.ndarray]


def linear(low: float, high: float) -> Schedule:
    return lambda random: random.uniform(low, high) * np.arange(1, L + 1)


def power(exponent: float, last: float) -> Schedule:
    return lambda random: last * random.uniform(0.7, 1.4) * (np.arange(1, L + 1) / L) ** exponent


def geometric(first: float, last: float) -> Schedule:
    def schedule(random: np.random.Generator) -> np.ndarray:
        a, b = first * random.uniform(0.7, 1.4), last * random.uniform(0.7, 1.4)
        return a * (b / a) ** (np.arange(L) / (L - 1))

    return schedule


def saturating(last: float) -> Schedule:
    return lambda random: last * random.uniform(0.7, 1.4) * (1 - 0.97 * np.exp(-np.arange(L) / 4))


def random_steps(last: float) -> Schedule:
    return lambda random: last * np.sort(random.uniform(0.01, 1, L) ** 2)


def steps_of(schedule: Schedule, solver: Solver, random: np.random.Generator) -> list[float]:
    """The schedule as increasing steps: whole numbers, each above the one before, for an iteration."""
    steps = schedule(random)
    if not solver.continuous:
        steps = np.maximum.accumulate(np.maximum(np.round(steps), 1) - np.arange(len(steps))) + np.arange(len(steps))
    return steps.tolist()
