"""Where users wait: seconds of the clock and of the CPU. `layerstep bench --which waiting`.

    python benchmarks/waiting.py            # what a user calls, each in a process of its own
    python benchmarks/waiting.py --tests    # and the whole test suite on two workers

CPU seconds are those of all cores together; on a machine that does other things they say more than the clock's.
"""

from __future__ import annotations

import argparse
import json as json_module
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYERSTEP = [sys.executable, "-m", "layerstep"]
MODEL = ROOT / "results" / "models" / "sphere"
IDENTIFY = [*LAYERSTEP, "identify", str(MODEL), "--behaviour-only"]
TINY = [sys.executable, "-c", "import layerstep as ls; ls.identify('tiny')"]
#: What is called, and how many seconds of the clock it may take on two quiet cores; None: no limit was set.
CALLS: dict[str, tuple[list[str], float | None]] = {
    "import layerstep": ([sys.executable, "-c", "import layerstep"], 0.2),
    "layerstep --help": ([*LAYERSTEP, "--help"], None),
    "layerstep identify MODEL --behaviour-only, first": (IDENTIFY, 15),
    "the same, library kept": (IDENTIFY, 5),
    'ls.identify("tiny"), first': (TINY, None),
    "the same, library kept ": (TINY, None),
    "layerstep train tiny": ([*LAYERSTEP, "train", "tiny", "--out", "{place}/tiny"], 60),
    "layerstep reproduce, from shipped numbers": ([*LAYERSTEP, "reproduce", "--out", "{place}/report"], 90),
    "the same, nothing to do": ([*LAYERSTEP, "reproduce", "--out", "{place}/report"], None),
}
TESTS = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]


def timed(command: list[str], place: Path) -> dict[str, float]:
    """Seconds of the clock and of the CPU, its children's included."""
    environment = os.environ | {"LAYERSTEP_CACHE": str(place / "cache")}
    given = [part.format(place=place) for part in command]
    before, start = os.times(), time.perf_counter()
    subprocess.run(given, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"clock": time.perf_counter() - start, "cpu": cpu}


def learned(folder: Path) -> list[float]:
    """The error with the longest context in the log of a run, first and last."""
    rows = [json_module.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row["last"][0] for row in (rows[0], rows[-1])]  # of the one model there is


def main(json: bool = False, *, tests: bool = False) -> None:
    calls = CALLS | ({"the tests, two workers": (TESTS, 150.0)} if tests else {})
    found: dict[str, dict[str, float | None]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, (command, limit) in calls.items():
            found[name] = timed(command, place) | {"limit": limit}
        error = learned(place / "tiny")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    about = {"cores": os.cpu_count(), "machine": platform.processor() or platform.machine(), "load": load}
    if json:
        print(json_module.dumps({"waiting": {"calls": found, "tiny: squared error, first and last": error} | about}))
        return
    print(f"waiting ({about['cores']} cores, {about['machine']}, load {load})")
    print(f"  {'':<50} {'clock':>8} {'CPU':>8} {'limit':>8}")
    for name, row in found.items():
        limit = "" if row["limit"] is None else f"{row['limit']:.1f}"
        print(f"  {name:<50} {row['clock']:8.2f} {row['cpu']:8.2f} {limit:>8}")
    print(f"  tiny: squared error with the longest context {error[0]:.3f}, after training {error[1]:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tests", action="store_true")
    main(**vars(parser.parse_args()))
