"""What the rule does on negative controls that no threshold has seen: `python benchmarks/negative_controls.py`.

Claims of a class count as false, over all layers and in windows of four, on three input distributions and fresh seeds.
"""

from __future__ import annotations

import argparse
from collections import Counter

import torch

from layerstep.measurement.calibration.error_rates import INPUTS, suite_rows
from layerstep.measurement.calibration.negatives import LATER
from layerstep.measurement.calibration.record import read_record
from layerstep.measurement.identification.decision import Rule


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[31, 32])
    parser.add_argument("--prompts", type=int, default=256)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rule, names = Rule(**read_record()["rule"]), [name for name, *_ in LATER]
    rows = [
        row
        for seed in arguments.seeds
        for inputs in INPUTS
        for row in suite_rows(inputs, seed, sequences=arguments.prompts, names=names)
    ]
    print("| negative control | all layers | windows of four |\n|---|---|---|")
    for name in names:
        cells = []
        for scope in ("overall", "window"):
            claims = [row.claim(rule) for row in rows if (row.name, row.scope) == (name, scope)]
            named = Counter(claim for claim in claims if claim is not None)
            said = ", ".join(f"{kind} {count}" for kind, count in named.most_common())
            cells.append(f"{named.total()} of {len(claims)}" + (f" ({said})" if said else ""))
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
