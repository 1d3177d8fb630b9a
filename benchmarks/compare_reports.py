"""Do two reports have the same numbers? Compares CSV files, cell by cell, or the JSON files of models.

    python benchmarks/compare_reports.py OLD NEW                      # all CSV files
    python benchmarks/compare_reports.py OLD/measured NEW/numbers     # what is measured on the models, with every digit

Numbers must be the same to the last digit. Files, columns and models may have other names, by the tables below; other
words are counted and shown, and do not fail. Exit status 1 where a number, a line or a file is missing or differs.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Old names of files, columns and models, and the new ones.
FILES = {
    "steps-laws": "steps-inputs",
    "sime-laws": "sime-inputs",
    "written-beside-trained": "constructed-vs-trained",
}
PLACES = {"last": "last_token"}
WORDS = {
    "answer": "status",
    "written-1": "constructed-1",
    "written-5": "constructed-5",
    "written-chebyshev": "constructed-chebyshev",
}


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def read(file: Path) -> list[list[str]]:
    with open(file, encoding="utf-8", newline="") as lines:
        return [[WORDS.get(cell, cell) for cell in line] for line in csv.reader(lines)]


def compare(old: Path, new: Path) -> tuple[int, list[str], list[str]]:
    """Numbers compared, differences that matter, and words that differ."""
    numbers, wrong, words = 0, [], []
    names = {FILES.get(file.stem, file.stem): file for file in sorted(old.glob("*.csv"))}
    added = sorted({file.stem for file in new.glob("*.csv")} - set(names))
    words += [f"{name}.csv is new" for name in added]
    for name, file in names.items():
        if not (new / f"{name}.csv").is_file():
            wrong.append(f"{name}.csv is missing")
            continue
        before, after = read(file), read(new / f"{name}.csv")
        if [len(line) for line in before] != [len(line) for line in after]:
            wrong.append(f"{name}.csv: {len(before)} lines, now {len(after)}, or lines of other lengths")
            continue
        for row, (line, now) in enumerate(zip(before, after, strict=True), 1):
            for column, (cell, other) in enumerate(zip(line, now, strict=True)):
                numbers += is_number(cell)
                if cell != other:
                    said = f"{name}.csv line {row}, {before[0][column]}: {cell!r}, now {other!r}"
                    (wrong if is_number(cell) or is_number(other) or not (cell and other) else words).append(said)
    return numbers, wrong, words


def flat(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON value, with its place, in the names of now."""
    if isinstance(value, dict):
        value = value | dict(zip(("first", "last"), value.pop("range", ()), strict=False))
        for name, each in value.items():
            yield from flat(each, place if name == "alignment" else f"{place}.{PLACES.get(name, name)}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from flat(each, f"{place}[{index}]")
    elif isinstance(value, (int, float)):
        yield place, value


def compare_models(old: Path, new: Path) -> tuple[int, list[str], list[str]]:
    """The same for what was measured on each model: the numbers of OLD, each to the last bit."""
    numbers, wrong = 0, []
    for file in sorted(old.glob("*.json")):
        if not (new / file.name).is_file():
            wrong.append(f"{file.name} is missing")
            continue
        before, after = (dict(flat(json.loads((place / file.name).read_text())["data"])) for place in (old, new))
        numbers += len(before)
        differ = [place for place, value in before.items() if repr(after.get(place)) != repr(value)]  # NaN is NaN
        wrong += [f"{file.name}{place}: {before[place]!r}, now {after.get(place)!r}" for place in differ]
    return numbers, wrong, []


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    old, new = map(Path, sys.argv[1:])
    kind = "csv" if any(old.glob("*.csv")) else "json"
    numbers, wrong, words = compare(old, new) if kind == "csv" else compare_models(old, new)
    print("\n".join([f"  {said}" for said in words[:40]] + wrong[:40]))
    files = len(list(old.glob(f"*.{kind}")))
    print(f"{files} files, {numbers:,} numbers compared: {len(wrong)} differences, {len(words)} other words")
    sys.exit(1 if wrong or not numbers else 0)


if __name__ == "__main__":
    main()
