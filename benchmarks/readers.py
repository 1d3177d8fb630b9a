"""Which reading of a layer reads the state of a solver? `python benchmarks/readers.py --controls results/controls`.

On planted mechanisms and on the trained controls the prediction s_l that layer l of the solver makes is known. Printed,
for each reading, is the median over layers of

    state   mean (reading - s_l)² / mean (s_l - KRR)²      0: it reads the solver's prediction
    KRR     mean (reading - KRR)² / mean (s_l - KRR)²      below 1: it reads a better prediction than the solver's

at the longest context.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from layerstep.measurement.calibration.controls.lessons import problem
from layerstep.measurement.calibration.controls.mechanism import F
from layerstep.measurement.calibration.controls.suite import controls
from layerstep.measurement.calibration.mechanisms import positives
from layerstep.measurement.interventions.candidates import Candidate
from layerstep.measurement.reading.readouts import Readouts, fit_readers
from layerstep.solvers import exact
from layerstep.tasks import Prompts, Task, sample
from layerstep.training import GPT

READINGS = ("labels", "output", "lens")


def row(name: str, readouts: Readouts, truth: Tensor, krr: Tensor) -> str:
    """A line of the table; truth [L, B] is the solver's prediction after each of the last L layers."""
    away = (truth - krr).square().mean(1)
    cells = []
    for reading in READINGS:
        path = readouts.named().get(reading)
        if path is None:
            cells += ["", ""]
            continue
        read = path.values[-len(truth) :, :, -1]
        live = away > 1e-3 * krr.square().mean()
        ratios = [((read - other).square().mean(1) / away)[live].median() for other in (truth, krr)]
        cells += [f"{float(ratio):.3g}" for ratio in ratios]
    return f"| {name} | {' | '.join(cells)} |"


def planted(seed: int, count: int, fit: int, prompts: int) -> list[str]:
    task = Task(inputs="sphere", N=12)
    few, lines = sample(task, prompts, seed), []
    krr = exact(few, task)[:, -1]
    for mechanism in positives(task, count, seed):
        reader = mechanism.reader(task)
        frame = reader.model.frame

        def head(state: Tensor, frame=frame, reader=reader) -> Tensor:
            return frame.read(state[:, reader.queries], "f")

        contexts = [task.N] if mechanism.mask == "open" else None
        readouts = fit_readers(reader, task, fit=fit, seed=seed, head=head, contexts=contexts).read(few)
        solver = Candidate(solver=mechanism.solver, form="dual", mask=mechanism.mask, v=mechanism.v)
        iteration = solver.iteration(few, task)
        taken = torch.tensor(mechanism.steps).cumsum(0)
        iterates = iteration.states("dual", int(taken[-1]))
        truth = (iterates * iteration.k).sum(-1)[taken]
        lines.append(row(f"planted: {mechanism.solver}, {mechanism.form}", readouts, truth, krr))
    return lines


def trained(directory: Path, fit: int, prompts: int, seed: int) -> list[str]:
    lines = []
    for control in controls():
        if control.mechanism is None or not (directory / control.name).is_dir():
            continue
        task, mechanism = control.run.task, control.mechanism
        few = sample(task, prompts, seed)
        gpt = GPT.from_pretrained(directory / control.name)
        contexts = [task.N] if control.mask == "open" else None
        readouts = fit_readers(gpt, task, fit=fit, seed=seed, contexts=contexts).read(few)
        truth = iterates_of(control, mechanism, few)
        krr = exact(few, task)[:, -1]
        lines.append(row(f"{control.kind}: {control.name}", readouts, truth[mechanism.earliest - 1 :], krr))
    return lines


def iterates_of(control, mechanism, prompts: Prompts) -> Tensor:
    """The prediction at the last point after every layer, [L, B]."""
    n = torch.full((prompts.B,), prompts.N)
    setup = problem(control, mechanism, prompts.x.double(), prompts.y.double(), n)
    return mechanism.states(setup, control.run.model.layers)[:, :, -1, F]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--controls", type=Path)
    parser.add_argument("--planted", type=int, default=14)
    parser.add_argument("--fit", type=int, default=2048)
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | probe on y: state | KRR | map to output: state | KRR | own head: state | KRR |")
    print("|---|---|---|---|---|---|---|")
    for line in planted(given.seed, given.planted, given.fit, given.prompts):
        print(line, flush=True)
    if given.controls:
        for line in trained(given.controls, given.fit, given.prompts, given.seed):
            print(line, flush=True)


if __name__ == "__main__":
    main()
