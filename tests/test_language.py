"""The project speaks the language of its field: words that were replaced do not come back; lines of prose are short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# "One step a layer", "a row a law": what is counted, and for each of what.
COUNTED = "one|row|line|step|number|second|minute|ms|product|thread|entrie|directory|folder|file|meaning"
EACH = "step|layer|law|row|column|system|sequence|core|worker|call|model|run|stage|matrix|context|name|launch"

COMPARED = "longer|more|less|better|worse|other|such|larger|smaller|farther|one\\b"  # "is no longer", "is no such file"

# What was said: what is said. Identifiers count as words too: `draw_law` and `LawOfInputs` are found as "law".
REPLACED = {
    r"laws?\b": "input distribution",
    r"written (transformer|network|layer|one)s?\b": "constructed transformer",
    r"judge?ments?\b": "result on a range, status",
    r"nulls\b": "baselines",
    r"outsiders?\b": "negative controls",
    r"panels?\b": "calibration suite (of verdicts), plot",
    r"worlds?\b": "planted setting",
    r"strangers?\b": "unknown directories",
    r"artefacts?\b": "result, figure",
    r"campaigns?\b": "sweep",
    r"tak(es?|ing) turns\b|\bby turns\b": "round-robin",
    r"lanes?\b": "stream slices",
    r"(train(s|ed|ing)?|models?|runs?|stands?|ms)\b[^.]*\bside by side\b": "stacked",
    r"straightness\b|\bhow straight\b": "linear, R²",
    r"(can ?not|can't) be told\b": "inconclusive",
    r"does not hold\b(?! the)|\bdo not hold\b": "not supported",
    r"rooms?\b(?! (for|to))": "package",
    r"settle_numbers\b": "coerce_numbers",
    r"file ?path\b": "Path, pathlib's own",
    r"held\b(?! (at a time|out))": "run status, locked",
    rf"(?<!there )(is|are|was|were) (?-i:no|none) (?!{COMPARED})": "is not a",
    rf"({COUNTED})s? an? ({EACH})\b": "per, not the distributive a",
}

PATTERNS = {re.compile(rf"\b(?:{old})", re.IGNORECASE): new for old, new in REPLACED.items()}
ANY = re.compile("|".join(pattern.pattern for pattern in PATTERNS), re.IGNORECASE)  # most lines have none of them

# Where the test looks.
CLEAN = ("src/layerstep", "tests", "benchmarks", "docs", "README.md", "LOG.md", "Makefile")

# Where a word is right: the start of a path, and what may be found there.
CALIBRATION = "src/layerstep/measurement/calibration"
EXCEPTIONS = {
    "benchmarks/compare_reports.py": {"laws"},  # names of files before
    f"{CALIBRATION}/error_rates.py": {"laws"},  # what the record calls its entries
    f"{CALIBRATION}/planted.py": {"steps a layer"},
    "docs/measurement.md": {"steps a layer"},
    f"{CALIBRATION}/controls": {"held"},  # states that an intervention keeps
    "tests/measurement/calibration/test_controls.py": {"held"},
    "LOG.md": {"side by side"},
}


def pages() -> list[Path]:
    """Every file of the clean places."""
    files = [
        file for place in CLEAN for file in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*"))
    ]
    kinds = (".py", ".md", ".html", ".js", ".css")
    return sorted(
        file for file in files if (file.suffix in kinds or file.name == "Makefile") and file != Path(__file__)
    )


def words_of(text: str) -> str:
    """Text with identifiers taken apart: `draw_law` and `drawLaw` are two words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_+", " ", text)


@pytest.mark.parametrize("file", pages(), ids=lambda file: str(file.relative_to(ROOT)))
def test_words_that_were_replaced_do_not_come_back(file):
    place, found = str(file.relative_to(ROOT)), []
    allowed = {word for start, words in EXCEPTIONS.items() if place.startswith(start) for word in words}
    lines = enumerate(map(words_of, file.read_text(encoding="utf-8").splitlines()), start=1)
    for number, line in ((number, line) for number, line in lines if ANY.search(line)):
        for pattern, new in PATTERNS.items():
            hit = pattern.search(line)
            if hit and hit[0].strip().lower() not in allowed:
                found.append(f"{place}:{number}: {hit[0]!r}; say {new!r}: {line.strip()[:80]}")
    assert not found, "\n".join(found)


def test_replaced_words_are_found():
    line = "class InputLaw: one row a law, models side_by_side, FilePath, is no folder"
    assert ANY.search(words_of(line))
    assert sum(bool(pattern.search(words_of(line))) for pattern in PATTERNS) == 5


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "LOG.md"], ids=lambda page: page.name
)
def test_a_line_of_prose_does_not_pass_column_120(page):
    """Of a page: tables and code may be longer. Of Python files ruff sees to it."""
    text = re.sub(
        r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8"), flags=re.S | re.M
    )
    lines = enumerate(text.splitlines(), start=1)
    assert [number for number, line in lines if len(line) > 120 and not line.startswith(("|", "    "))] == []
