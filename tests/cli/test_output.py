"""The one place that prints: strict JSON on one line, or lines and whole tables."""

import json
import math

from layerstep.cli.output import Output, finite, table


def test_json_is_strict_and_on_one_line(capsys):
    Output({"bound": math.inf, "steps": (1, 2), "rows": [{"value": math.nan}], "name": "a\nb"}, ["not shown"]).show(
        True
    )
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed) == {"bound": None, "steps": [1, 2], "rows": [{"value": None}], "name": "a\nb"}


def test_numbers_that_json_has_stay_as_they_are():
    value = {"a": [1, 0.5, True, None, "inf"], "b": {"c": -0.0}}
    assert finite(value) == value


def test_lines_and_tables_come_in_order(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    Output({}, ["before", table(["name", "a long column"], [["x", "0.123456789012345"]]), "after"]).show(False)
    printed = capsys.readouterr().out
    assert printed.startswith("before\n")
    assert printed.endswith("after\n")
    assert "0.123456789012345" in printed
