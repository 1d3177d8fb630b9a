"""One progress for all: nothing where nobody looks, lines where they are wanted, a bar in a terminal."""

import sys

import pytest

from layerstep import progress as module
from layerstep.progress import showing, unasked


def pretend_terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_nothing_is_written_where_stderr_is_not_a_terminal(capsys):
    with showing(words="work") as show:
        show(0.5)
        show(1.0, "done")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("total", "words"), [(1.0, "     100%  work  0:00 left\n"), (70, "       70/70  work  0:00 left\n")]
)
def test_lines_where_they_are_wanted(total, words, capsys):
    with showing(total, lines=True) as show:
        show(total / 2, "early")
        show(total, "work")
    assert capsys.readouterr().err == words


def test_no_time_is_left_before_anything_is_done(capsys, monkeypatch):
    monkeypatch.setattr("layerstep.progress.EVERY", 0.0)
    with showing(lines=True) as show:
        show(0.0, "work")
        show(0.5, "work")
    assert capsys.readouterr().err == "       0%  work\n      50%  work  0:00 left\n"


def test_nothing_is_drawn_that_is_not_wanted(capsys, monkeypatch):
    pretend_terminal(monkeypatch)
    with showing(70, lines=True, wanted=False) as show:
        show(70, "work")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("total", [1.0, 70, None])
def test_a_terminal_has_a_bar(total, capsys, monkeypatch):
    pretend_terminal(monkeypatch)
    with showing(total, "first") as show:
        show(None if total is None else total / 2, "second")
    drawn = capsys.readouterr().err
    assert "second" in drawn
    assert ("35/70" in drawn) == (total == 70)


def test_without_rich_a_terminal_has_lines(capsys, monkeypatch):
    pretend_terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(module, "EVERY", 0.0)
    with showing(10_000, start=5000) as show:
        show(7500, "loss 1")
    assert capsys.readouterr().err.startswith("    7,500/10,000  loss 1  0:")


def test_a_call_that_takes_long_tells_a_terminal_without_being_asked(monkeypatch, capsys):
    clock = iter([0.0, 1.0, 4.0, 4.1, 6.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    with unasked("work") as show:
        show(0.5)
    assert capsys.readouterr().err == ""  # nobody looks
    pretend_terminal(monkeypatch)
    with unasked("work") as show:
        for done, words in ((0.1, ""), (0.4, ""), (0.41, "too soon"), (0.6, "more")):
            show(done, words)
    assert capsys.readouterr().err.split("\r")[:3] == ["", " 40%  work  0:06 left", " 60%  more  0:04 left"]


def test_a_short_call_says_nothing(monkeypatch, capsys):
    pretend_terminal(monkeypatch)
    with unasked("work") as show:
        show(0.5)
    assert capsys.readouterr().err == ""
