"""A dose of both fuzzers in `make test`; `make fuzz` runs 10,000 calls of each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("fuzzer", "count"),
    [("cli", 100), ("api", 300), *(pytest.param(each, 10_000, marks=pytest.mark.fuzz) for each in ("cli", "api"))],
)
def test_every_call_ends_well(fuzzer, count):
    """In a process of its own: with a limit on its memory, and without the checks of types that tests have."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    command = [sys.executable, "-m", f"fuzz.{fuzzer}", str(count)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
