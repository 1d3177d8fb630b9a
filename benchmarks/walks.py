"""How far a reader walks: files, functions, hops and returns of the main calls, and a few counts of the source.

    python benchmarks/walks.py [--json | --order]        # PYTHONPATH=OTHER/src for another tree

A function counts when it is first entered; a hop is a change of file between two functions entered one after the
other; a return is a hop into a file that was open before. Lambdas, comprehensions and class bodies do not count, and
imports are made before. Work that is spread over threads is run in order on one. "Outside": hops that remain when the
files of `solvers` are left out, of which a library of solvers has as many as it has solvers. --order prints the walks.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import importlib
import itertools
import json as json_module
import pkgutil
import sys
import tempfile
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


class InOrder(concurrent.futures.Executor):
    """An executor that does each piece of work when it is given."""

    def __init__(self, *ignored: Any, **options: Any) -> None:
        pass

    def submit(self, fn: Callable, /, *args: Any, **kwargs: Any) -> concurrent.futures.Future:
        future: concurrent.futures.Future = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


concurrent.futures.ThreadPoolExecutor = InOrder  # type: ignore[misc]  # before layerstep takes its name
import torch  # noqa: E402

import layerstep as ls  # noqa: E402

HOME = Path(ls.__file__).parent
TASK = ls.Task(d=2, N=6)


def solve() -> None:
    prompts = ls.sample(TASK, 4, seed=0)
    start()
    ls.solve(ls.Richardson(), prompts, TASK, 5)


def probe() -> None:
    model = ls.GPT(ls.Model(layers=2, heads=2, width=16), d=TASK.d, N=TASK.N)
    start()
    ls.probe(model, TASK, prompts=64)


def construct() -> None:
    prompts = ls.sample(TASK, 1, seed=0)
    start()
    network = ls.construct(TASK.d, TASK.N, TASK.v, 0.1, B_x=1.0, B_y=3.0, scheme="compact", error=0.1)
    network.predict(prompts.x[0, :-1], prompts.y[0, :-1].clamp(-3, 3), prompts.x[0, -1:])


def train() -> None:
    model = ls.Model(layers=1, heads=1, width=8)
    run = ls.Run(task=TASK, model=model, steps=3, batch=8, warmup=1, curriculum_every=0)
    with tempfile.TemporaryDirectory() as folder:
        start()
        ls.train(run, Path(folder) / "run", device="cpu")


def identify() -> None:
    prompts = ls.sample(TASK, 64, seed=0)
    path = ls.solve(ls.Richardson(), prompts, TASK, [2, 4, 8, 16, 32])
    path = type(path)(path.values, range(1, 6), "richardson")
    start()
    str(ls.identify(path, prompts, TASK))


WALKS = (solve, probe, construct, train, identify)
seen: dict[CodeType, None] = {}


def start() -> None:
    """Forget what was entered so far: it was preparation."""
    seen.clear()


def entered(frame: FrameType, event: str, argument: object) -> None:
    code = frame.f_code
    named = code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<")
    if event == "call" and named and code.co_filename.startswith(str(HOME)):
        seen.setdefault(code)


def walk(call: Callable[[], None]) -> dict[str, int]:
    """The counts of one call."""
    start()
    sys.setprofile(entered)
    try:
        call()
    finally:
        sys.setprofile(None)
    files = [code.co_filename for code in seen]
    outside = [file for file in files if Path(file).relative_to(HOME).parts[0] != "solvers"]
    hops = [index for index in range(1, len(files)) if files[index] != files[index - 1]]
    returns = sum(files[index] in files[:index] for index in hops)
    found = {"files": len(set(files)), "functions": len(files), "hops": len(hops), "returns": returns}
    return found | {"outside": sum(a != b for a, b in itertools.pairwise(outside))}


def order() -> str:
    """The functions of the last walk by file, in the order they were entered."""
    groups = itertools.groupby(seen, key=lambda code: str(Path(code.co_filename).relative_to(HOME)))
    return "\n".join(f"    {file}: {', '.join(code.co_name for code in codes)}" for file, codes in groups)


def source() -> dict[str, Any]:
    """String subscripts and inner imports of the package that reproduces the paper, and lines by package."""
    package = "reproduction" if (HOME / "reproduction").is_dir() else "paper"
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in sorted((HOME / package).rglob("*.py"))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    subscripts = sum(
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
        for node in nodes
    )
    inner = sum(
        isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"layerstep.{package}") for node in nodes
    )
    lines: dict[str, int] = {}
    for file in sorted(HOME.rglob("*.py")):
        part = file.relative_to(HOME).parts[0].removesuffix(".py")
        lines[part] = lines.get(part, 0) + len(file.read_text(encoding="utf-8").splitlines())
    return {
        f"string subscripts in {package}": subscripts,
        f"inner imports per module of {package}": round(inner / len(trees), 2),
        "lines": lines,
        "lines in all": sum(lines.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    parser.add_argument("--order", action="store_true", help="the functions of every walk, by file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for module in pkgutil.walk_packages([str(HOME)], "layerstep."):
        if not module.name.endswith("__main__") and ".fused." not in module.name:
            importlib.import_module(module.name)
    if given.order:
        for call in WALKS:
            print(f"{call.__name__}: {walk(call)}\n{order()}\n")
        return
    counts = {call.__name__: walk(call) for call in WALKS}
    if given.json:
        print(json_module.dumps({"walks": counts, "source": source()}))
        return
    print(f"{HOME}\n\n| walk | files | functions | hops | returns | outside |\n|---|---|---|---|---|---|")
    for name, found in counts.items():
        print(f"| {name} | {' | '.join(map(str, found.values()))} |")
    print()
    for name, value in source().items():
        print(f"{name}: {value if not isinstance(value, dict) else ', '.join(f'{k} {v}' for k, v in value.items())}")


if __name__ == "__main__":
    main()
