"""The command line as a new user meets it: help at once, JSON, and one line for a mistake."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from layerstep.cli import VERBS, main
from layerstep.cli.bench import BENCHMARKS

SMALL = ["--sequences", "4", "--N", "6", "--steps", "5"]


def test_help_names_every_verb_without_importing_torch():
    code = "import sys; from layerstep.cli import main; main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert all(verb in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_can_print_json(name):
    source = (Path(__file__).parents[2] / "benchmarks" / f"{name}.py").read_text()
    main_of = next(node for node in ast.parse(source).body if getattr(node, "name", "") == "main")
    assert [argument.arg for argument in main_of.args.args] == ["json"]


def test_solve_prints_a_table(capsys):
    assert main(["solve", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "nesterov" in out
    assert "exact KRR" in out


def test_solve_prints_all_errors_as_json(capsys):
    assert main(["solve", "--solvers", "richardson, ridge", "--json", *SMALL]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == [0, 1, 2, 3, 4, 5]
    assert len(result["mse"]["ridge"]) == 6
    assert len(result["mse"]["ridge"][0]) == len(result["krr"]) == 6
    assert result["task"]["N"] == 6


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_solve_draws_a_figure(suffix, tmp_path):
    file = tmp_path / f"errors.{suffix}"
    assert main(["solve", "--plot", str(file), *SMALL]) == 0
    assert file.stat().st_size > 1000
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fly"], "verb = 'fly': must be one of solve"),
        (["solve", "--solvers", "sor"], "--solvers = 'sor': must be one of richardson"),
        (["solve", "--v", "0"], "v = 0.0: must be a finite number above 0"),
        (["solve", "--N", "0"], "N = 0: must be an integer of at least 1"),
        (["solve", "--steps", "0"], "steps = 0"),
        (["solve", "--inputs", "torus"], "inputs = 'torus': must be one of sphere, uniform, gaussian"),
        (["solve", "--sequences", "0"], "B = 0"),
        (["solve", "--plot", "errors.gif"], "--plot suffix = '.gif': must be one of .png, .svg, .pdf"),
        (["solve", "--plot", "/proc/no/errors.png", *SMALL], "cannot write /proc/no/errors.png"),
        (["solve", "--steps", "abc"], "Error parsing --steps: invalid literal for int() with base 10: 'abc'"),
        (["solve", "--stepz", "3"], "--stepz"),
        (["train"], "--out"),
        (["bench", "--which", "nothing"], "--which = 'nothing': must be one of all"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, words, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
