"""Trains the controls and packs them: five to a tar file, and a report.

PYTHONPATH=src python3 benchmarks/gpu/train_controls.py --out $OUT --seconds 520     all
PYTHONPATH=src python3 benchmarks/gpu/train_controls.py --out $OUT --smoke           20 s of training, nothing packed
PYTHONPATH=src python3 benchmarks/gpu/train_controls.py --out $OUT --seconds 240 --seed 1 --only gd boost    a part
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import torch
from stacked import pack

from layerstep.files import provenance, write_json
from layerstep.measurement.calibration.controls.check import Response, responses
from layerstep.measurement.calibration.controls.mechanism import Dual, Functional
from layerstep.measurement.calibration.controls.suite import controls
from layerstep.measurement.calibration.controls.trainer import Trainer, train
from layerstep.training import GPT

PER_TAR = 5
AFTERWARDS = 35.0  # seconds for the checks and for packing


def check(trained: Trainer, index: int, folder: Path) -> list[Response]:
    """How the stored control answers noise in its state; for one trained on labels directions are fitted."""
    each = trained.members[index]
    gpt = GPT.from_pretrained(folder / each.name, device=trained.device)
    if each.mechanism is not None:
        return responses(gpt, each, each.mechanism, trained.network.frames[index])
    first = 1 if each.mask == "open" else 2
    rival = Functional(solver="richardson") if each.mask == "open" else Dual(solver="causal-richardson", first=first)
    return responses(gpt, each, rival, None)


def main() -> None:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=520.0, help="for everything")
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="train these controls only")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="a try on any device")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    size = {"layers": 4, "width": 32, "heads": 2, "N": 8, "d": 2, "batch": 8} if args.tiny else {}
    members = controls(args.only, seed=args.seed, **size)
    seconds = 20.0 if args.smoke else args.seconds - AFTERWARDS
    trained = train(members, device, seconds - (time.monotonic() - began), args.steps)
    print(
        f"trained, {time.monotonic() - began:.0f} s; loss of states, output, both after interventions | by layer",
        flush=True,
    )
    folder, report = args.out / "controls", {}
    torch.set_float32_matmul_precision("highest")
    for each in trained:
        each.save(folder, time.monotonic() - began)
        print("\n".join(each.report()), flush=True)
    print("response of the output to noise in the state, by layer: R² with the solver's own (slope)")
    for each in trained:
        for index, control in enumerate(each.members):
            found = check(each, index, folder)
            report[control.name] = [vars(response) for response in found]
            print(f"{control.name:<31}" + " ".join(f"{r.r2:6.3f} ({r.slope:4.2f})" for r in found), flush=True)
    if args.smoke:
        shutil.rmtree(folder)
        return
    names = [each.name for each in members]
    starts = range(0, len(names), PER_TAR)
    groups = {f"controls-{at // PER_TAR + 1}": [folder / n for n in names[at : at + PER_TAR]] for at in starts}
    write_json(args.out / "report.json", {"responses": report, "provenance": provenance(str(device))})
    pack(groups, folder, args.out)
    shutil.rmtree(folder)
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
