"""The field's metric on planted truth: what similarity to iterative Newton says of paths that are something else.

    python benchmarks/published_claims.py                     # the table of docs/claims.md, and our verdict beside it
    python benchmarks/published_claims.py --plot FILE.png     # and its figure

d = 20, N = 40, no noise, inputs and weights standard normal: the setting of Garg et al.'s model, on which iterative
Newton is claimed by best similarity of errors (SimE) and best steps that grow linearly with the layer.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import layerstep as ls
from layerstep.measurement.identification.linear_tasks import Scales

TASK = ls.LinearRegression(d=20, N=40, sigma=0.0)
SQUARE = Scales.of(TASK).square
TOP = Scales.of(TASK).top
LAYERS = np.arange(1, 13)
#: name, its class, solver, steps per layer.
PLANTED = (
    ("Newton, 1.5 per layer", "newton", ls.Newton(), (1.5 * LAYERS).tolist()),
    ("GD in weights, 2^l steps", "gd-weights", ls.SOLVERS["gd-weights"], (2**LAYERS).tolist()),
    ("GD, one step size, 2^l steps", "gd-weights", ls.GradientDescentInWeights(eta=1 / TOP), (2**LAYERS).tolist()),
    ("GD in weights, l² steps", "gd-weights", ls.SOLVERS["gd-weights"], (LAYERS**2).tolist()),
    ("CG in weights, 1 per layer", "cg-weights", ls.SOLVERS["cg-weights"], LAYERS.tolist()),
    ("Chebyshev, 2 per layer", "chebyshev-weights", ls.SOLVERS["chebyshev-weights"], (2 * LAYERS).tolist()),
    ("ridge path, falling geometrically", "ridge", ls.RidgePath(scale=SQUARE), np.geomspace(0.1, 1e4, 12).tolist()),
)
#: What such claims compare with: Newton's iterates, and gradient descent with a step size of .01.
NEWTON = (ls.Newton(start="frobenius"), range(24))
DESCENT = (ls.GradientDescentInWeights(eta=0.01), [*range(40), *np.unique(np.geomspace(40, 4096, 60).round()).tolist()])


def rows(prompts: ls.Prompts) -> list[dict]:
    """One per planted path."""
    instrument = ls.Instrument.prepare(prompts, TASK)
    found = []
    for name, truth, solver, steps in PLANTED:
        made = ls.solve(solver, prompts, TASK, steps)
        path = ls.Trajectory(made.values, LAYERS.tolist(), name)
        compared = ls.compare(path, prompts, TASK, {"newton": NEWTON, "gd": DESCENT}, layers=(2, 10))
        newton, gd = compared.matches["newton"], compared.matches["gd"]
        line = next(row for row in compared.rows if row["solver"] == "newton")
        verdict = ls.identify(path, prompts, TASK, instrument=instrument)
        found.append(
            {
                "planted": name,
                "class": truth,
                "sime": float(newton.sime.amax(1).mean()),
                "slope": line["slope"],
                "r2": line["r2"],
                "nearer newton": int((newton.sime.amax(1) > gd.sime.amax(1)).sum()),
                "best step": newton.best_step.mean(0).tolist(),
                "verdict": verdict.solver,
                "status": verdict.status,
                "schedule": verdict.schedule,
                "margin": verdict.overall.margin,
            }
        )
    return found


def table(found: list[dict]) -> str:
    """In Markdown."""
    lines = [
        "| planted path | best SimE to Newton, mean of 12 layers | best Newton step by layer: slope, R² (layers 2-10) "
        "| layers nearer Newton than GD | our verdict | schedule |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        verdict = row["verdict"] or row["status"]
        lines.append(
            f"| {row['planted']} | {row['sime']:.3f} | {row['slope']:.2f}, {row['r2']:.3f} "
            f"| {row['nearer newton']} of 12 "
            f"| {verdict} | {row['schedule'] or 'not named'} |"
        )
    return "\n".join(lines)


def draw(found: list[dict], file: Path) -> None:
    """Best Newton step against the layer, for every planted path."""
    from layerstep import plotting

    looks = [*plotting.LOOKS, plotting.Look("0.5", "--"), plotting.Look("0.5", ":")]
    with plotting.figure(7.2, 4.2) as figure:
        axes = figure.subplots()
        for row, look in zip(found, looks, strict=True):
            label = f"{row['planted']}: SimE {row['sime']:.3f}, R² {row['r2']:.3f}"
            axes.plot(LAYERS, row["best step"], ls=look.dash, color=look.color, marker="o", ms=3, label=label)
        axes.set(xlabel="layer", ylabel="best step of iterative Newton")
        axes.set_title("similar to Newton, and linear in its steps: only the first of these paths is Newton's")
        axes.legend(fontsize=7.5)
    plotting.save(figure, file, file.suffix.lstrip("."))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=320)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = rows(ls.sample(TASK, args.prompts, seed=0))
    print(table(found))
    if args.plot:
        draw(found, args.plot)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
