"""kill -9 a report at random moments, damage its files, change its inputs and change them back: called again, it ends
with the files of a report nobody disturbed.

    python tests/fuzz/kill_report.py --kills 20

Every attempt is a fork of this process, so that a moment is one of the report and not of importing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from layerstep.files import write_json
from layerstep.reproduction import report, runs
from layerstep.reproduction.numbers import constructed, measurements, noise, planted_paths, solvers
from layerstep.reproduction.predictions import NOISE_SEQUENCES, Predictions
from layerstep.reproduction.settings import SIGMA_TEST, evaluation_prompts
from layerstep.solvers import Richardson, solve
from layerstep.tasks import Task, Trajectory


def make_small() -> None:
    """A report of seconds: few prompts and steps, one model, no verdicts."""
    solver_curves, ridge_noise = solvers.solver_curves, noise.ridge_noise
    conditioning, cg_precision, walk = solvers.conditioning, solvers.cg_precision, constructed.constructed_walk
    measurements.MATCH_STEPS, measurements.CG_MATCH_STEPS = 40, 20
    solvers.solver_curves = lambda store, name, steps: solver_curves(store, name, 40, 4)
    noise.ridge_noise = lambda store: ridge_noise(store, 16, 20)
    solvers.conditioning = lambda store: conditioning(store, 4, 20)
    solvers.cg_precision = lambda store: cg_precision(store, 4, 8)
    constructed.constructed_walk = lambda store: walk(store, 4, 9, 0.1)
    constructed.constructed_schemes = lambda store: None
    constructed.constructed_models = lambda store: {}
    noise.model_noise = lambda store, names: {}
    planted_paths.compare_planted_paths = lambda store: []
    report.model_verdicts = lambda *of: ({}, {})


def plant(models: Path, stride: int) -> None:
    """A folder of models with one in it, whose layer l is Richardson after `stride` l steps."""
    run = runs.RUNS["sphere"].run
    path = solve(Richardson(), evaluation_prompts("sphere"), Task(), range(0, 12 * stride + 1, stride))
    head = torch.zeros(path.B, path.N, dtype=torch.float64)
    wide = torch.zeros(len(SIGMA_TEST), NOISE_SEQUENCES, dtype=torch.float64)
    layers = Trajectory(path.values, torch.arange(13.0).double())
    Predictions(layers=layers, head=head, noise=wide, facts={}).save(models / "sphere")
    write_json(models / "sphere" / "config.json", {"about": {"run": run.to_dict(), "step": run.steps}})
    write_json(
        models / "sphere" / "evaluation.json", {"evaluation": {"ratio": 1.0 + stride}, "seconds": 5, "stack": [""]}
    )


def fork(folder: Path, models: Path) -> int:
    """Make a report in a child; its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        runs.MODELS = models
        made = report.reproduce(folder)
        code = len(made.failed)
        if made.failed:
            print(made.failed, file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait(child: int, until: float) -> bool:
    """Whether a child comes to its end before that time; an error where it failed."""
    while time.monotonic() < until:
        number, status = os.waitpid(child, os.WNOHANG)
        if number and status:
            sys.exit(f"a report failed by itself: status {status}")
        if number:
            return True
        time.sleep(0.001)
    return False


def result(folder: Path) -> dict[str, object]:
    """Every file by name, but for what says when and how fast it was made."""
    found: dict[str, object] = {}
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        name = str(file.relative_to(folder))
        if file.suffix == ".json":
            found[name] = {key: value for key, value in json.loads(file.read_text()).items() if key not in TIMES}
        elif file.suffix == ".html":
            found[name] = re.sub(r"<dl>.*</dl>", "", file.read_text(), flags=re.DOTALL)
        elif not file.name.startswith("."):  # what a killed write leaves aside
            found[name] = file.read_bytes()
    return found


TIMES = ("provenance", "seconds")


def damage(folder: Path, draw: random.Random) -> str:
    """One file cut, emptied, filled with zeros or noise, swapped with another, or gone."""
    files = sorted(file for file in folder.rglob("*.*") if file.is_file())
    if not files:
        return "nothing"
    file, kind = draw.choice(files), draw.choice(["cut", "empty", "zeros", "noise", "swapped", "gone"])
    whole = file.read_bytes()
    if kind == "gone":
        file.unlink()
    elif kind == "swapped":
        file.write_bytes(draw.choice(files).read_bytes())
    else:
        written = {"cut": whole[: len(whole) // 2], "empty": b"", "zeros": bytes(len(whole))}
        file.write_bytes(written.get(kind, draw.randbytes(len(whole))))
    return kind


def kill(home: Path, kills: int, seed: int) -> str:
    """Kill `kills` times, finish, compare, and begin another folder now and then. What came out."""
    draw, done, finished = random.Random(seed), 0, 0
    inputs = {stride: home / f"models-{stride}" for stride in (2, 3)}
    for stride, models in inputs.items():
        plant(models, stride)
    expected, began = {}, time.monotonic()
    for stride, models in inputs.items():
        wait(fork(home / f"whole-{stride}", models), time.monotonic() + 600)
        expected[stride] = result(home / f"whole-{stride}")
    usual = (time.monotonic() - began) / len(inputs)
    assert expected[2] != expected[3]
    damaged: dict[str, int] = {}
    while done < kills:
        folder = home / f"killed-{finished}"
        for _ in range(min(draw.randint(1, 6), kills - done)):
            child = fork(folder, inputs[draw.choice([2, 3])])
            if not wait(child, time.monotonic() + usual * draw.random() ** 3):  # the second attempt finds much made
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                done += 1
            if draw.random() < 0.5:
                kind = damage(folder, draw)
                damaged[kind] = damaged.get(kind, 0) + 1
        stride = draw.choice([2, 3])
        if not wait(fork(folder, inputs[stride]), time.monotonic() + 600):
            sys.exit("a report does not come to its end")
        found = result(folder)
        differ = [name for name in expected[stride] if found.get(name) != expected[stride][name]]
        if differ:
            sys.exit(f"after {done} kills {folder} has other files: {', '.join(differ)}")
        finished += 1
    words = ", ".join(f"{count} {kind}" for kind, count in sorted(damaged.items()))
    return f"{done} kills, damage: {words or 'none'}; {finished} reports finished, 0 with other files"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    make_small()
    with tempfile.TemporaryDirectory() as home:
        print(kill(Path(home), options.kills, options.seed))


if __name__ == "__main__":
    main()
