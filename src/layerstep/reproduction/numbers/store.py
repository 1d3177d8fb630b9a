"""Results in a folder: typed values as JSON, each with what it was made from and the code that made it.

Those of the trained models here are shipped in results/numbers. They hold as long as nothing they depend on changes.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from layerstep.errors import FileError
from layerstep.files import digest, provenance, read_json, write_json

T = TypeVar("T")
Json = dict[str, Any]

SOURCE = Path(__file__).parents[3]
#: Packages whose code decides no number. What a trained model predicts is read from files: its digest is in `of`.
NO_NUMBERS = ("engines", "errors", "files", "folders", "memory", "plotting", "progress", "reprs", "threads", "training")


@dataclass(frozen=True)
class Store:
    """Numbers by name in `folder`, one JSON file each. What is not there may be in `shipped`, which is only read."""

    folder: Path
    shipped: Path | None = None

    def find(self, name: str, kind: Any, of: Json, code: str) -> Any:
        """The numbers `name` if they are whole, made from `of` and by the code of module `code`; else None."""
        for folder in filter(None, (self.folder, self.shipped)):
            found = read_result(folder / f"{name}.json", _identity(of, code))
            if found is not None:
                with contextlib.suppress(TypeError):
                    return from_json(kind, found["data"])
        return None

    def get(self, name: str, kind: Any, of: Json, code: str, compute: Callable[[], T]) -> T:
        """The numbers `name`, computed and kept if they are not there. `code`: the module that computes them."""
        if (found := self.find(name, kind, of, code)) is not None:
            return found
        start = time.perf_counter()
        data = to_json(compute())
        write_result(self.folder / f"{name}.json", _identity(of, code), data, start, config=of)
        return from_json(kind, data)


def _identity(of: Json, code: str) -> str:
    return digest({**of, "code": code_identity(code)})


def read_result(file: Path, identity: str) -> Json | None:
    """What `write_result` wrote under this identity; None where it is absent, damaged, or of another identity."""
    with contextlib.suppress(FileError):
        found = read_json(file)
        if (
            isinstance(found, dict)
            and found.get("identity") == identity
            and found.get("digest") == digest(found.get("data"))
        ):
            return found
    return None


def write_result(file: Path, identity: str, data: Any, start: float, **more: Any) -> Json:
    """`data` with its identity, its digest, where it came from and how long it took since `start`."""
    facts = {"provenance": provenance(), "seconds": time.perf_counter() - start}
    result = {"identity": identity, **more, **facts, "digest": digest(data), "data": data}
    write_json(file, result)
    return result


def to_json(value: Any) -> Any:
    """Frozen values, and lists and dictionaries of them, as JSON can hold them."""
    if dataclasses.is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return list(value) if value and isinstance(value[0], float) else [to_json(each) for each in value]
    return value


def from_json(kind: Any, value: Any) -> Any:
    """The value of type `kind` that `to_json` turned into `value`; a TypeError where it has another shape."""
    if kind is Any:
        return value
    of, inner = get_origin(kind) or kind, get_args(kind)
    if of is UnionType:
        (kind,) = (each for each in inner if each is not NoneType)
        return None if value is None else from_json(kind, value)
    if of is list and isinstance(value, list):
        return (
            value
            if inner == (float,) and {*map(type, value)} <= {float, int}
            else [from_json(inner[0], each) for each in value]
        )
    if of is dict and isinstance(value, dict):
        return {key: from_json(inner[1], each) for key, each in value.items()}
    if dataclasses.is_dataclass(of) and isinstance(value, dict) and {*value} == {*_fields(of)}:
        return of(**{name: from_json(hint, value[name]) for name, hint in _fields(of).items()})
    if type(value) is of or (of is float and type(value) is int):
        return value
    raise TypeError(f"{value!r:.80} is not a {kind}")


@functools.cache
def _fields(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@functools.cache
def code_identity(module: str, within: tuple[str, ...] = (), source: Path = SOURCE) -> str:
    """Identity of the code of a module and of every module of layerstep that it imports, directly or not.

    Code is what runs: comments, docstrings and layout may change. A package stands for all of its modules;
    a name that a package only passes on, for the module it comes from. within: only modules under these names are
    followed.
    """
    seen: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        parts = name.split(".")
        inside = any(f"{name}.".startswith(f"{prefix}.") for prefix in within)
        if name in seen or len(parts) < 2 or not (inside if within else parts[1] not in NO_NUMBERS):
            continue
        if (place := _place(name, source)).is_dir():
            seen[name] = b""
            files = [file.relative_to(source).with_suffix("") for file in place.rglob("*.py")]
            waiting += [".".join(file.parts) for file in files]
        else:
            code = place.read_bytes()
            seen[name] = _what_runs(code)
            waiting += _imported(code, source)
    whole = hashlib.sha256()
    for name in sorted(seen):
        whole.update(name.encode() + b"\0" + seen[name] + b"\0")
    return whole.hexdigest()[:12]


def _place(module: str, source: Path) -> Path:
    place = source.joinpath(*module.split("."))
    return place if place.is_dir() else place.with_suffix(".py")


@functools.cache
def _imported(code: bytes, source: Path) -> frozenset[str]:
    """The modules of layerstep that a module imports, or imports names from."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("layerstep."):
            found |= {_origin(node.module, alias.name, source) for alias in node.names}
    return frozenset(name for name in found if name.startswith("layerstep."))


def _origin(module: str, name: str, source: Path) -> str:
    """The module that `from module import name` gets its name from: past packages that only pass it on."""
    whole = f"{module}.{name}"
    if _place(whole, source).exists():
        return whole
    passing = source.joinpath(*module.split("."), "__init__.py")
    if not passing.is_file():
        return module
    for node in ast.parse(passing.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and node.module and any(name == each.name for each in node.names):
            return _origin(node.module, name, source)
    return f"{module}.__init__"


@functools.cache
def _what_runs(code: bytes) -> bytes:
    """The syntax tree of a module as bytes that are the same in every version of Python."""
    return repr(_tree(ast.parse(code))).encode()


def _tree(node: Any) -> Any:
    if isinstance(node, list):
        return [_tree(each) for each in node if not _says_only(each)]
    if not isinstance(node, ast.AST):
        return node
    # What is absent differs between versions of Python.
    parts = [(name, _tree(value)) for name, value in ast.iter_fields(node) if name not in ("type_comment", "kind")]
    return type(node).__name__, [(name, value) for name, value in parts if value is not None and value != []]


def _says_only(node: Any) -> bool:
    """Whether this statement is a docstring, or another constant that nobody uses."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
