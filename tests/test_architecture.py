"""The arrows between the rooms point one way, and files stay small enough to read in one sitting."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "layerstep"
GROUND = {"errors", "files", "threads", "stats", "memory", "progress"}
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "threads": set(),
    "stats": set(),
    "memory": {"errors"},
    "progress": set(),
    "tasks": GROUND,
    "solvers": GROUND | {"tasks"},
    "construction": GROUND | {"tasks"},
    "training": GROUND | {"tasks"},
    "measurement": GROUND | {"tasks", "solvers", "construction", "training"},
    "plotting": set(),
    "reproduction": GROUND | {"plotting"} | {"tasks", "solvers", "construction", "training", "measurement"},
    "cli": GROUND | {"tasks", "solvers", "construction", "training", "measurement", "plotting", "reproduction"},
}
FILES = sorted(SRC.rglob("*.py"))


def imported_rooms(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names.add(node.module)
    return {name.split(".")[1] for name in names if name.startswith("layerstep.")}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SRC)))
def test_rooms_import_only_what_is_below_them(file):
    room = file.relative_to(SRC).parts[0].removesuffix(".py")
    if room in ("__init__", "__main__"):
        return
    assert imported_rooms(file) <= MAY_IMPORT[room] | {room}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SRC)))
def test_a_file_is_short_enough_to_read(file):
    assert len(file.read_text().splitlines()) <= 380
