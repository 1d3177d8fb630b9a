"""Shapes and types in signatures are checked while the tests run; the examples of the pages are run as printed."""

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import jaxtyping
import pytest

import shape_checks

jaxtyping.jaxtyped = shape_checks.first_calls  # what the hook puts on every function
jaxtyping.install_import_hook("layerstep", "shape_checks.check")


def pytest_runtest_setup() -> None:
    shape_checks.begin_test()


# Tests take nothing from the user's cache, and leave nothing there; what several of them need is computed once.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["LAYERSTEP_CACHE"] = tempfile.mkdtemp(prefix="layerstep-tests-")
    atexit.register(shutil.rmtree, os.environ["LAYERSTEP_CACHE"], ignore_errors=True)

ROOT = Path(__file__).parents[1]


@pytest.fixture
def as_for_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks of shapes and types that tests have."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


@pytest.fixture
def examples() -> Callable[[str], list[CodeType]]:
    """The Python blocks of a page of this repository, compiled: `exec` each; ```py blocks are left out."""

    def read(page: str) -> list[CodeType]:
        text = (ROOT / page).read_text(encoding="utf-8")
        found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        # Blank lines in front: a traceback then names the line of the page.
        blocks = [(text.count("\n", 0, each.start(1)), each[1]) for each in found]
        return [compile("\n" * before + block, page, "exec") for before, block in blocks]

    return read
