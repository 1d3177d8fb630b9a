"""Calls of the public names with what people have at hand: `cd tests; python -m fuzz.api 10000 --seed 1`.

A call passes when it returns, or raises a LayerstepError; a TypeError only where Python itself raises it, for a
signature that is not met. Finite arguments give no NaN. Every argument has values that are taken, odd ones among them,
and each now and then one of JUNK: None, strings, arrays of every kind, huge numbers, and things of other kinds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import random
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layerstep as ls
from fuzz.entries import Entry, entries
from fuzz.harness import Outcome, time_limit
from fuzz.values import JUNK

SIGNATURE = re.compile(r"\(\) (missing|got|takes) ")  # what Python says where a signature is not met


def call(entry: Entry, given: dict[str, Any], clean: bool, seconds: float = 20.0) -> Outcome:
    try:
        with time_limit(seconds), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            result = entry.call(**given)
    except ls.LayerstepError as error:
        return Outcome(False, None if len(str(error)) < 1200 else f"a message of {len(str(error))} characters", error)
    except Exception as error:
        unmet = isinstance(error, TypeError) and SIGNATURE.search(str(error))
        if unmet or isinstance(error, entry.may_raise):
            return Outcome(False)
        return Outcome(False, f"{type(error).__name__}: {error}", error)
    return Outcome(True, f"NaN in {place}" if clean and (place := nan_in(result)) else None)


def nan_in(value: Any, place: str = "the result") -> str:
    """Where in a result a NaN is, if anywhere."""
    if isinstance(value, torch.Tensor):
        return place if value.is_floating_point() and bool(value.isnan().any()) else ""
    if isinstance(value, (float, np.ndarray)):
        return place if np.isnan(value).any() else ""
    if hasattr(value, "to_dict") and not isinstance(value, ls.Certificate):
        value = value.to_dict()  # what has no value there is None
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, (list, tuple)):
        pairs = list(enumerate(value))
    elif dataclasses.is_dataclass(value):
        pairs = [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value)]
    else:
        pairs = []
    return next((found for key, each in pairs if (found := nan_in(each, f"{place}.{key}"))), "")


def calls(seed: int, home: Path) -> Iterator[tuple[str, Outcome]]:
    """Endless calls, each as the line that shows it, and how it ended."""
    rng = random.Random(seed)
    with contextlib.chdir(home):
        every = entries(home)
        names = list(every)
        while True:
            name = rng.choices(names, [1 / every[each].rare for each in names])[0]
            entry = every[name]
            more = [argument for argument in entry.arguments if argument not in entry.given]
            chosen = [*entry.given, *rng.sample(more, rng.randrange(len(more) + 1))]
            given = {each: rng.choice(entry.arguments[each] or JUNK) for each in chosen}
            clean = rng.random() < 0.6 or not chosen
            if not clean:
                given[rng.choice(chosen)] = rng.choice([each for each in JUNK if not isinstance(each, entry.but)])
                if rng.random() < 0.05 and not entry.but:
                    given.pop(rng.choice(chosen))
            yield (
                f"{name}({', '.join(f'{key}={_shown(each)}' for key, each in given.items())})",
                call(entry, given, clean),
            )
            shutil.rmtree(home / "new", ignore_errors=True)
            (home / "new").unlink(missing_ok=True)


def _shown(value: Any) -> str:
    try:
        return " ".join(repr(value).split())[:200]
    except ValueError:  # of more digits than Python writes
        return f"10**{int(math.log10(value))}"


if __name__ == "__main__":
    from fuzz.harness import main

    main(calls)
