"""The arrows between the packages point one way, and files stay small enough to read in one sitting."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "layerstep"
GROUND = {"errors", "files", "threads", "stats", "memory", "progress", "reprs"}
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "threads": set(),
    "stats": set(),
    "memory": {"errors"},
    "progress": set(),
    "reprs": set(),
    "engines": {"errors", "files"},
    "folders": {"errors", "files"},
    "tasks": GROUND | {"plotting"},
    "solvers": GROUND | {"tasks"},
    "construction": GROUND | {"plotting", "tasks"},
    "training": GROUND | {"tasks", "engines", "folders"},
    "plotting": set(),
    "measurement": GROUND | {"engines", "folders", "plotting", "tasks", "solvers", "construction", "training"},
    "reproduction": GROUND
    | {"engines", "folders", "plotting", "tasks", "solvers", "construction", "training", "measurement"},
    "cli": GROUND
    | {"engines", "folders", "tasks", "solvers", "construction", "training", "measurement", "plotting", "reproduction"},
}
FILES = sorted(SRC.rglob("*.py"))


def imported_packages(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names.add(node.module)
    return {name.split(".")[1] for name in names if name.startswith("layerstep.")}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SRC)))
def test_packages_import_only_what_is_below_them(file):
    package = file.relative_to(SRC).parts[0].removesuffix(".py")
    if package in ("__init__", "__main__"):
        return
    assert imported_packages(file) <= MAY_IMPORT[package] | {package}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SRC)))
def test_a_file_is_short_enough_to_read(file):
    assert len(file.read_text().splitlines()) <= 380


#: Of the package that reproduces the paper: who may import whom. What computes numbers draws nothing.
REPRODUCTION = {
    "numbers": set(),
    "figures": {"numbers"},
    "claims": {"numbers"},
    "page": {"numbers", "figures", "claims"},
}
DRAWING = {"matplotlib", "jinja2", "layerstep.plotting"}


def imported_names(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    }


@pytest.mark.parametrize("file", sorted((SRC / "reproduction").rglob("*.py")), ids=lambda file: file.stem)
def test_numbers_know_no_figure_claims_no_figure_and_none_the_page(file):
    part = file.relative_to(SRC / "reproduction").parts[0]
    if part == "report.py":
        return
    below = REPRODUCTION.get(part, set())
    names = imported_names(file)
    inner = {name.split(".")[2] for name in names if name.startswith("layerstep.reproduction.")}
    assert inner & set(REPRODUCTION) <= below | {part} or file.name == "__init__.py"
    assert "report" not in inner or file.name == "__init__.py"
    if part not in ("figures", "page"):
        assert not any(name == each or name.startswith(f"{each}.") for name in names for each in DRAWING)


def test_a_claim_can_be_checked_without_a_package_that_draws():
    absent = ("matplotlib", "jinja2", "layerstep.plotting", "layerstep.reproduction.figures")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import layerstep.reproduction.claims.findings"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numbers_of_the_report_are_typed_and_its_modules_know_few_of_each_other():
    """String subscripts belong to the boundary of files (515 once, 4.5 imports per module); see benchmarks/walks.py."""
    trees = [ast.parse(file.read_text()) for file in (SRC / "reproduction").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    keys = [node.slice for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)]
    inner = [node for node in nodes if isinstance(node, ast.ImportFrom) and "layerstep.reproduction" in node.module]
    assert sum(isinstance(key.value, str) for key in keys) < 45
    assert len(inner) < 3.2 * len(trees)
