"""README and the documentation's first page tell the same story, with the numbers of the shipped records."""

import re
from pathlib import Path

from layerstep.measurement import CLASSES
from layerstep.measurement.calibration.record import read_record, trained_positives
from layerstep.reproduction.runs import RUNS

ROOT = Path(__file__).parents[1]


def rows(page: str) -> list[str]:
    """The table of questions, its links as from the documentation."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("](docs/", "](")
    return re.findall(r"^\| [A-Z].*\? \|.*\|$", text, re.MULTILINE)


def test_the_four_rows_are_the_same():
    assert len(rows("README.md")) == 4
    assert rows("docs/index.md") == rows("README.md")


def test_their_numbers_are_those_of_the_records():
    _, follow, inside, wrong = rows("README.md")
    assert f"None of {len(RUNS)}, with {len(CLASSES)} classes" in follow
    recognised, of = trained_positives() or (0, 0)
    assert f"of {of} networks trained to run one, {recognised} are recognised" in inside
    false = read_record()["test"]["overall"]["false"]
    assert f"{false['claims']} of {false['of']} on our planted models" in wrong
    controls = re.findall(r"^\| [^|]+ \| (\d+) of (12)\b[^|]*\| \d+ of 18", _page("docs/measurement.md"), re.MULTILINE)
    claims, tried = (sum(map(int, column)) for column in zip(*controls, strict=True))
    assert f"{claims} of {tried} on controls built to look alike" in wrong


def test_the_report_asks_the_same_questions():
    asked = _page("src/layerstep/reproduction/claims/findings.py")
    for row in rows("README.md")[:3]:
        assert f'question="{row.split(" | ")[0].removeprefix("| ")}"' in asked


def _page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
