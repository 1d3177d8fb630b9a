"""Can implicit steps of one size be told from explicit ones? `python benchmarks/implicit_steps.py --inputs sphere`

Iterated Tikhonov, w += (K + (lam + a) I)⁻¹ (y - (K + lam I) w), stands in the library as a class of its own, and models
that run it or `richardson-fixed` are identified. A margin below the limit says that the two predict the same.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.measurement.calibration.planted import calibration_suite
from layerstep.measurement.identification.crossfit import Instrument
from layerstep.measurement.identification.decision import Rule, result_on
from layerstep.measurement.identification.families import FAMILIES, Family, whole_steps
from layerstep.solvers import Solver
from layerstep.solvers.system import System
from layerstep.tasks import Task, sample

NAMES = ["iterated tikhonov", "richardson fixed, linear", "richardson fixed, geometric", "ridge, geometric"]
SIZES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True, kw_only=True)
class IteratedTikhonov(Solver):
    """1 - (a / (s + a))^t of the way along each eigenvector."""

    label: ClassVar[str] = "iterated Tikhonov"
    a: float

    def predictions(self, system: System, steps: Tensor) -> Float[Tensor, "B T"]:
        s, g = system.ridged.values, system.ridged.weights
        rate = torch.log1p(s / self.a).unsqueeze(-2)
        return (g / s).unsqueeze(-2).mul(-torch.expm1(-steps.to(s).unsqueeze(-1) * rate)).sum(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", default="sphere")
    parser.add_argument("--seed", type=int, default=31)
    given = parser.parse_args()
    torch.set_num_threads(1)
    task = Task(inputs=given.inputs)
    prompts, steps = sample(task, 256, given.seed), whole_steps(20, 2e4, 60, dense=20)
    implicit = [
        Family(name=f"tikhonov-{a:g}", kind="iterated-tikhonov", solver=IteratedTikhonov(a=a), steps=steps[1:])
        for a in SIZES
    ]
    instrument = Instrument.prepare(prompts, task, families=[*FAMILIES, *implicit])
    print(
        "| planted | noise | nearest | V | margin | rival | nearest without iterated Tikhonov | V |\n"
        + "|---" * 8
        + "|"
    )
    for planted in calibration_suite(prompts, task, instrument.library.contexts, given.seed, NAMES):
        if planted.noise == "bent":
            continue
        layers = torch.arange(1, len(planted.values) + 1, dtype=torch.float64)
        residuals = instrument.cross_fit(planted.values, layers)
        both, own = (
            result_on(residuals, Rule(), without=without, seed=given.seed) for without in ((), ("iterated-tikhonov",))
        )
        found = f"{both.nearest} | {both.V:.4f} | {both.margin:.4f} | {both.rival} | {own.nearest} | {own.V:.4f}"
        print(f"| {planted.name} | {planted.noise} | {found} |", flush=True)


if __name__ == "__main__":
    main()
