"""A computation in pieces: each is a function of JSON, done by whichever process an engine gives it to.

A piece is kept in a file of its own as soon as it is done, so that the same call does only what is missing.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from layerstep.engines.choice import choose_engine, require_engine
from layerstep.engines.driving import Work, drive
from layerstep.engines.pool import Engine
from layerstep.errors import FileError, InputError, LayerstepError, in_words
from layerstep.files import digest, locked, read_json, write_json

NOT_SHARED = 60.0  # seconds that a network disk may take to show a file


def compute_pieces(
    function: Callable[[dict[str, Any]], Any],
    arguments: Mapping[str, dict[str, Any]],
    folder: Path,
    *,
    code: str,
    on: Any = None,
    jobs: int = 1,
    options: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """The value of `function`, which can be imported, of every argument, by name. Raises when all others are done.

    folder: where values are kept, on a disk that all machines share. code: what else they depend on.
    on: an engine, as in `sweep`; None for `jobs` processes here.
    """
    given = dict(options or {})
    require_engine(on, given)
    name = f"{function.__module__}:{function.__qualname__}"
    identities = {key: digest([code, name, argument]) for key, argument in arguments.items()}
    values = {key: found[0] for key in arguments if (found := _kept(folder, key, identities[key])) is not None}
    if values:
        say(f"{len(values)} of {len(arguments)} found in {folder}")
    failed: dict[str, str] = {}
    start = time.monotonic()

    def on_end(work: Work, result: dict[str, Any] | None) -> None:
        found = _kept(folder, work.key, identities[work.key], NOT_SHARED if result == {"kept": True} else 0.0)
        if found is not None:
            values[work.key] = found[0]
            say(f"{work.key}: done after {time.monotonic() - start:.0f} s")
            return
        words = work.words if result is None else result.get("refused", f"{folder} is not on a disk that all share")
        failed[work.key] = words
        say(f"{work.key}: {words}")

    works = [
        Work(key, json.dumps({"function": name, "argument": argument, "file": str(_file(folder, key).absolute())}
                             | {"identity": identities[key]}))
        for key, argument in arguments.items()
        if key not in values
    ]  # fmt: skip
    if works:
        taken = f"{folder} is in use by another call, which goes on. Wait for it, or choose another directory."
        with locked(folder / ".lock", taken), _engine(on, folder, min(jobs, len(works)), given) as engine:
            begun = itertools.count()  # whoever died had begun
            told = {"on_end": on_end, "progress": lambda work: (next(begun), 0.0)}
            drive(engine, do_piece, works, folder / "jobs.json", **told)
    if failed:
        first, words = next(iter(failed.items()))
        raise LayerstepError(
            f"{len(failed)} of {len(arguments)} failed, {first}: {words}. The same call does the rest."
        )
    return {key: values[key] for key in arguments}


@contextlib.contextmanager
def _engine(on: Any, folder: Path, jobs: int, options: dict[str, Any]) -> Iterator[Engine]:
    if on is None:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            engine = Engine(pool)
            try:
                yield engine
            finally:
                engine.close()
        return
    chosen = {"gpus": options.pop("gpus", 0), "threads": options.pop("threads", None)}
    engine = choose_engine(on, folder, **chosen, options=options)
    try:
        yield engine
    finally:
        engine.close()


def do_piece(text: str) -> dict[str, Any]:
    """Compute a piece and keep it."""
    import torch

    told = json.loads(text)
    torch.set_num_threads(1)
    module, _, name = told["function"].partition(":")
    try:
        value = getattr(importlib.import_module(module), name)(told["argument"])
        write_json(told["file"], {"identity": told["identity"], "argument": told["argument"], "value": value})
    except InputError as error:
        return {"refused": str(error)}
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return {"error": f"{type(error).__name__}: {in_words(error)}"}
    return {"kept": True}


def _file(folder: Path, key: str) -> Path:
    return folder / f"{key}.json"


def _kept(folder: Path, key: str, identity: str, seconds: float = 0.0) -> tuple[Any] | None:
    """The value that is kept; where it must come by a network disk it is waited for."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(FileError, TypeError, KeyError):
            found = read_json(_file(folder, key))
            if found["identity"] == identity:
                return (found["value"],)
        if time.monotonic() >= until:
            return None
        time.sleep(0.5)
