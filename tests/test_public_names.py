"""The public names exist, the notation table names what the code has, and star imports agree with the lazy table."""

import importlib
import re
from pathlib import Path

import pytest

import layerstep as ls

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", dir(ls))
def test_every_public_name_is_there(name):
    assert getattr(ls, name) is not None


@pytest.mark.parametrize("room", [room for room, names in ls._ROOMS.items() if names])
def test_a_room_exports_what_the_package_offers(room):
    module = importlib.import_module(f"layerstep.{room}")
    offered = set(ls._ROOMS[room].split())
    assert offered <= set(getattr(module, "__all__", offered))


def test_a_star_import_brings_the_public_names():
    names = {}
    exec("from layerstep import *", names)
    assert {name for room in ls._ROOMS.values() for name in room.split()} <= set(names)


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
