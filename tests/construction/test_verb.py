"""layerstep construct: what it prints, what it writes, and what it says to a mistake."""

import json

import pytest

from layerstep.cli import main
from layerstep.construction import Construction


def answer(capsys, *arguments):
    status = main(["construct", *map(str, arguments)])
    return status, capsys.readouterr()


def test_the_papers_setting_is_the_default(capsys):
    status, printed = answer(capsys, "--prompts", 1)
    assert status == 0
    for words in ("712", "0.009927", "weight of the sink", "arithmetic"):
        assert words in printed.out


def test_json_carries_certificate_and_predictions(capsys):
    status, printed = answer(capsys, "--json", "--prompts", 2, "--N", 8, "--lam", 0.1)
    report = json.loads(printed.out)
    assert status == 0
    assert report["certificate"]["scheme"] == "compact"
    assert len(report["runs"]) == 2
    for [row] in report["runs"]:
        assert row["error"] <= row["bound"] == pytest.approx(row["iteration"] + row["readout"] + row["arithmetic"])


def test_a_network_too_wide_to_build_is_certified(capsys):
    status, printed = answer(capsys, "--scheme", "paper", "--c", "None")
    assert status == 0
    assert "726,959" in printed.out
    assert "certified, not built" in printed.out


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "prompt.csv"
    path.write_text("a,b,label\n0.1,0.2,1\n-0.5,.3,-1\n\n.2,.2,\n1,0,\n")
    return path


SCHEMES = [("compact",), ("exact", "--eta", 0.5), ("paper", "--L", 3), ("adaptive", "--degree", 1)]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s[0])
def test_a_users_prompt_is_answered_and_the_network_saved(capsys, prompt, tmp_path, scheme):
    length = [] if "--L" in scheme else ["--error", 0.05]
    arguments = ["--csv", prompt, "--lam", 1, "--scheme", *scheme, *length, "--out", tmp_path / "net", "--json"]
    status, printed = answer(capsys, *arguments)
    assert status == 0
    [rows] = json.loads(printed.out)["runs"]
    value = Construction.load(tmp_path / "net").predict([[0.1, 0.2], [-0.5, 0.3]], [1, -1], [[0.2, 0.2], [1, 0]]).value
    assert value.tolist() == pytest.approx([row["value"] for row in rows], abs=1e-12)


def test_predictions_of_small_labels_are_not_shown_as_zero(capsys, tmp_path):
    path = tmp_path / "prompt.csv"
    path.write_text("0.1,1e-9\n0.2,\n")
    status, printed = answer(capsys, "--csv", path, "--lam", 1)
    assert status == 0
    assert "4.97506" in printed.out.split("predictions, and")[1]  # 1e-9 exp(-.005) / 2


def test_the_first_prompt_is_drawn_block_by_block(capsys, tmp_path):
    status, printed = answer(capsys, "--N", 6, "--lam", 1, "--prompts", 1, "--plot", tmp_path / "a.svg")
    assert status == 0
    assert printed.out.rstrip().endswith("a.svg")
    assert "which examples it reads" in (tmp_path / "a.svg").read_text()
    for arguments, words in ((["a.txt"], "--plot suffix"), (["a.png", "--prompts", 0], "there is nothing to draw")):
        status, printed = answer(capsys, "--plot", tmp_path / arguments[0], *arguments[1:])
        assert (status, words in printed.err) == (2, True)


def test_a_model_for_torch_alone_is_exported(capsys, tmp_path):
    status, _ = answer(capsys, "--N", 4, "--lam", 1, "--export", tmp_path / "model", "--prompts", 0)
    assert status == 0
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == ["model.py", "weights.safetensors"]


MISTAKES = {
    "": "at least one line of numbers",
    "1\n2\n": "inputs and a label",
    "1,2\n1,2,3\n": "line 2 = 3 values: must be 2 values",
    "1,2\nx,3\n": "line 2",
    "1,2\n1,high\n": "a number, or empty for a query",
    "1,2\n": "at least one line whose label is empty",
    "1,\n": "at least one labelled line",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_file_that_is_not_a_prompt_is_refused_in_words(capsys, tmp_path, text):
    path = tmp_path / "prompt.csv"
    path.write_text(text)
    status, printed = answer(capsys, "--csv", path)
    assert status == 2
    assert MISTAKES[text] in printed.err
    assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--csv", "/nowhere/prompt.csv"], "cannot read /nowhere/prompt.csv: No such file"),
        (["--lam", -1], "lam = -1.0: must be a finite number above 0"),
        (["--scheme", "paper", "--out", "/tmp/x"], "certified, not built"),
        (["--error", 0.1, "--L", 5], "one of the two"),
    ],
)
def test_mistakes_are_one_line_and_status_2(capsys, arguments, words):
    status, printed = answer(capsys, *arguments)
    assert status == 2
    assert words in printed.err
    assert printed.out == ""
