"""Numbers in files: found when whole and made from the same inputs by the same code, else made anew."""

import json
import math
import re
import shutil
from dataclasses import dataclass

import pytest

from layerstep.reproduction.figures.result import FIGURE_CODE
from layerstep.reproduction.numbers.store import SOURCE, Store, code_identity, from_json, to_json

CODE = "layerstep.reproduction.settings"


@dataclass(frozen=True, kw_only=True)
class Inner:
    values: list[float]
    words: dict[str, list[list[float]]]


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    count: int
    inner: Inner
    more: dict[str, Inner]
    maybe: Inner | None = None


INNER = Inner(values=[0.1, math.inf, -1e-300], words={"a": [[1.0], []], "b": []})
OUTER = Outer(name="n", count=10**30, inner=INNER, more={"x": INNER}, maybe=None)


@pytest.mark.parametrize("value", [OUTER, Outer(name="", count=0, inner=INNER, more={}, maybe=INNER)])
def test_typed_values_come_back_from_json_as_they_were(value):
    assert from_json(Outer, json.loads(json.dumps(to_json(value)))) == value


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.pop("count"),
        lambda data: data.update(extra=1),
        lambda data: data.update(count=1.5),
        lambda data: data.update(count=True),
        lambda data: data.update(inner=None),
        lambda data: data["inner"].update(values=[1.0, "2"]),
        lambda data: data["inner"].update(values={}),
        lambda data: data["more"].update(x=[]),
    ],
)
def test_json_of_another_shape_is_refused(damage):
    data = to_json(OUTER)
    damage(data)
    with pytest.raises(TypeError, match="is not a"):
        from_json(Outer, data)


def keep(folder, answer, n=1):
    return Store(folder).get("numbers", Inner, {"n": n}, CODE, lambda: Inner(values=[answer], words={}))


def test_numbers_are_made_once_and_anew_for_other_inputs(tmp_path):
    assert keep(tmp_path, 1.0) == keep(tmp_path, 2.0) == Inner(values=[1.0], words={})
    assert keep(tmp_path, 3.0, n=2).values == [3.0]
    assert json.loads((tmp_path / "numbers.json").read_text())["config"] == {"n": 2}


def edit(**changes):
    def damage(file):
        found = json.loads(file.read_text())
        file.write_text(json.dumps({**found, **changes}))

    return damage


def without(key):
    def damage(file):
        found = json.loads(file.read_text())
        del found[key]
        file.write_text(json.dumps(found))

    return damage


DAMAGE = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-40]),
    "zeros": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "noise": lambda file: file.write_bytes(bytes(range(256)) * 9),
    "a list": lambda file: file.write_text("[1]"),
    "null": lambda file: file.write_text("null"),
    "another's": edit(identity="other"),
    "no data": without("data"),
    "no digest": without("digest"),
    "another number": edit(data={"values": [7.0], "words": {}}),
    "data of another shape": edit(data=[]),
    "not there": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_numbers_are_made_anew(damage, tmp_path):
    keep(tmp_path, 1.0)
    DAMAGE[damage](tmp_path / "numbers.json")
    assert keep(tmp_path, 2.0).values == [2.0]
    assert keep(tmp_path, 3.0).values == [2.0]


EDITS = {
    # What is edited: whose numbers are made anew, and whose are not.
    "reproduction/figures/verdicts.py": ([], ["verdicts", "verdict", "measurements", "solvers", "noise"]),
    "reproduction/page/chapters.py": ([], ["verdicts", "measurements"]),
    "reproduction/claims/checks.py": ([], ["verdicts", "measurements"]),
    "reproduction/probing.py": ([], ["verdicts", "measurements", "noise"]),  # predictions are files
    "plotting.py": ([], ["verdicts", "measurements"]),  # verdicts can be drawn, too
    "training/gpt.py": ([], ["verdicts", "measurements"]),
    "measurement/reading/hooks.py": ([], ["verdicts", "verdict", "measurements"]),
    "measurement/interventions/search.py": ([], ["verdicts", "verdict"]),
    "measurement/combined/entry.py": ([], ["verdicts", "verdict"]),
    "measurement/identification/decision.py": (
        ["verdict", "verdicts"],
        ["measurements", "solvers", "noise"],
    ),
    "measurement/similarity.py": (["verdict", "verdicts", "measurements", "constructed"], ["solvers", "noise"]),
    # Verdicts on controls (verdicts) are on a constructed transformer, too, those on models (verdict) are not.
    "construction/network.py": (["verdicts", "constructed"], ["verdict", "measurements", "solvers", "noise"]),
    "solvers/richardson.py": (["verdicts", "measurements", "solvers"], ["noise"]),
    "solvers/kaczmarz.py": (["verdicts"], ["measurements", "solvers", "constructed"]),
    # A package stands for what is taken from it, not for all that it passes on.
    "measurement/__init__.py": ([], ["verdicts"]),
    "measurement/calibration/planted.py": ([], ["verdicts"]),
    "solvers/__init__.py": (["verdicts"], ["measurements", "solvers", "noise"]),
    "stats.py": (["verdicts", "measurements", "noise", "solvers"], []),
    "tasks/posterior.py": (["verdicts", "measurements", "solvers", "noise", "constructed"], []),
}


@pytest.fixture(scope="module")
def edit_source(tmp_path_factory):
    """edit_source(file, names, within): which modules have another identity after an edit of a file of a copy."""
    copy = tmp_path_factory.mktemp("source")
    shutil.copytree(SOURCE / "layerstep", copy / "layerstep", ignore=shutil.ignore_patterns("__pycache__"))

    def identities(names, within):
        code_identity.cache_clear()
        return {name: code_identity(f"layerstep.reproduction.{name}", within, copy) for name in names}

    def edit(edited, names, within=(), change=lambda text: text + "\nEDITED = 1\n"):
        before, file = identities(names, within), copy / "layerstep" / edited
        file.write_text(change(file.read_text()))
        after = identities(names, within)
        return {name for name in names if before[name] != after[name]}

    return edit


@pytest.mark.parametrize("edited", EDITS)
def test_an_edit_makes_anew_what_its_code_computes_and_nothing_else(edited, edit_source):
    anew, kept = EDITS[edited]
    changed = edit_source(edited, [f"numbers.{name}" for name in (*anew, *kept)])
    assert changed == {f"numbers.{name}" for name in anew}


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        (lambda text: "# a comment\n" + text.replace("    return", "    # another\n\n    return"), False),
        (lambda text: re.sub(r'"""(.|\n)*?"""', '"""Other words."""', text), False),
        (lambda text: text.replace("lam", "ridge"), True),
        (lambda text: text.replace("return ", "return -", 1), True),
    ],
    ids=["comments", "docstrings", "names", "a sign"],
)
def test_only_what_runs_matters(change, matters, edit_source):
    """Of tasks/posterior.py, which every number depends on."""
    edited = edit_source("tasks/posterior.py", ["numbers.noise"], change=change)
    assert bool(edited) == matters


def test_shipped_numbers_are_taken_and_left_alone(tmp_path):
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    keep(shipped, 1.0)
    before = (shipped / "numbers.json").read_bytes()
    both = Store(own, shipped)
    of = {"n": 1}
    assert both.get("numbers", Inner, of, CODE, lambda: INNER).values == [1.0]
    assert not own.exists()
    other = both.get("numbers", Inner, {"n": 2}, CODE, lambda: INNER)
    assert other == INNER
    assert (shipped / "numbers.json").read_bytes() == before
    assert both.find("numbers", Inner, {"n": 2}, CODE) == INNER
    assert Store(tmp_path / "third").find("numbers", Inner, of, CODE) is None


@pytest.mark.parametrize(
    ("edited", "anew"),
    [
        ("reproduction/figures/noise.py", {"figures.noise"}),
        ("reproduction/page/chapters.py", set()),
        ("plotting.py", {"figures.noise", "figures.capacity"}),
    ],
)
def test_a_figure_is_drawn_anew_when_its_module_or_the_look_changes(edited, anew, edit_source):
    assert edit_source(edited, ["figures.noise", "figures.capacity"], FIGURE_CODE) == anew


def test_a_module_that_is_not_there_is_no_identity():
    with pytest.raises(FileNotFoundError):
        code_identity("layerstep.reproduction.numbers.absent")
