"""The public names exist, the notation table names what the code has, type checkers see them."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import layerstep as ls

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", dir(ls))
def test_every_public_name_is_there(name):
    assert getattr(ls, name) is not None


def imported_for_type_checkers() -> dict[str, str]:
    """Public name: package, from the imports that only type checkers and documentation tools run."""
    [block] = [node for node in ast.parse(Path(ls.__file__).read_text()).body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert all(alias.asname == alias.name for node in imports for alias in node.names)
    return {alias.name: node.module for node in imports for alias in node.names if node.module != "layerstep"}


def test_type_checkers_see_the_names_that_are_there():
    assert imported_for_type_checkers() == {name: f"layerstep.{package}" for name, package in ls._PACKAGE_OF.items()}


@pytest.mark.slow
def test_a_type_checker_reports_a_name_that_is_not_there(tmp_path):
    pytest.importorskip("pyright")
    (tmp_path / "user.py").write_text("import layerstep as ls\nprint(ls.solve, ls.training.train)\nls.nonsense\n")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT / "src")]}))
    command = [sys.executable, "-m", "pyright", "-p", str(tmp_path), "--pythonpath", sys.executable, "--outputjson"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["generalDiagnostics"]
    assert [(each["range"]["start"]["line"], each["rule"]) for each in found if each["severity"] == "error"] == [
        (2, "reportAttributeAccessIssue")
    ]


def test_a_star_import_brings_the_public_names():
    names = {}
    exec("from layerstep import *", names)
    assert set(ls._PACKAGE_OF) <= set(names)


VERBS = sorted(name for name in ls._PACKAGE_OF if inspect.isfunction(getattr(ls, name)))


@pytest.mark.parametrize("verb", VERBS)
def test_a_public_verb_is_a_function_with_a_docstring_where_its_module_says(verb):
    function = getattr(ls, verb)
    assert inspect.isfunction(function)
    assert function.__doc__
    body = ast.parse(inspect.getsource(sys.modules[function.__module__])).body
    assert verb in [node.name for node in body if isinstance(node, ast.FunctionDef)]


@pytest.fixture(scope="module")
def documented():
    """The package as the documentation tool reads it, without running it."""
    griffe = pytest.importorskip("griffe")
    return griffe.load("layerstep", search_paths=[ROOT / "src"], resolve_aliases=True)


@pytest.mark.parametrize("verb", VERBS)
def test_documentation_finds_a_public_verb_as_a_function_with_its_docstring(verb, documented):
    found = documented[verb].final_target
    assert found.kind.value == "function"
    assert found.docstring.value == inspect.getdoc(getattr(ls, verb))


MODULES = sorted((ROOT / "src" / "layerstep").rglob("*.py"))


def test_no_module_shares_the_name_of_a_function():
    """`package.name` is then the function or the module, for readers and for documentation tools."""
    modules = {(file.parent, file.stem) for file in MODULES}
    functions = {
        (file.parent, node.name)
        for file in MODULES
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert {f"{folder.name}.{name}" for folder, name in modules & functions} == set()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="layerstep has no 'solver'"):
        ls.solver  # noqa: B018


def notation() -> list[str]:
    """The dotted names in the 'in the code' column of docs/notation.md."""
    text = (ROOT / "docs" / "notation.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    return [name for row in rows for name in re.findall(r"`(layerstep\.[\w.]+)`", row[3])]


def test_the_notation_table_is_not_empty():
    assert len(notation()) >= 20


@pytest.mark.parametrize("name", notation())
def test_every_name_of_the_notation_table_exists(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            fields = getattr(value, "__dataclass_fields__", {})
            arguments = getattr(getattr(value, "__wrapped__", value), "__annotations__", {})
            if not hasattr(value, part) and (part in fields or part in arguments):
                return
            value = getattr(value, part)
        return
    pytest.fail(f"{name} does not exist")
