"""The command line as a new user meets it: help at once, JSON, and one line for a mistake."""

import ast
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from layerstep.cli import VERBS, main
from layerstep.cli.bench import BENCHMARKS
from layerstep.cli.solve import MOST_DRAWN, _every

SMALL = ["--prompts", "4", "--N", "6", "--steps", "5"]
NOT_TRAINED = ["train", "--out", "x", "--prompts", "-1"]  # refused, whatever else is given


def test_help_names_every_verb_without_importing_torch():
    code = "import sys; from layerstep.cli import main; main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert all(verb in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(verb, capsys):
    assert main([verb, "--help"]) == 0
    help_text = capsys.readouterr().out
    assert "--json" in help_text
    assert VERBS[verb] not in help_text  # its docstring is there, not the line of the list


def test_long_words_of_a_list_go_on_in_the_next_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "kernels"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) == 80


def test_help_of_train_shows_what_each_preset_does(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "[default: paper 500000, fast 82000, tiny" in shown
    assert "--model.layers INT" in shown


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


def test_a_misspelt_verb_is_answered_with_the_right_one(capsys):
    assert main(["indentify", "tiny"]) == 2
    assert "Did you mean identify?" in capsys.readouterr().err


def test_errors_can_be_those_against_the_exact_solution(capsys, tmp_path):
    file = tmp_path / "errors.png"
    words = ["solve", "--target", "exact", "--solvers", "ridge,heavy-ball", "--plot", str(file), *SMALL]
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == [0, 1, 2, 3, 4, 5]
    assert max(result["krr"]) == 0
    assert file.stat().st_size > 10_000
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "distance to the exact solution" in shown
    assert "heavy-ball: rises before it falls" in shown


def test_a_figure_has_every_step_of_few_and_some_of_many():
    assert _every(5) == [0, 1, 2, 3, 4, 5]
    assert len(_every(10**9)) == MOST_DRAWN


@pytest.mark.parametrize("what", ["solvers", "kernels", "inputs", "families", "presets", "models"])
def test_what_options_take_can_be_listed(what, capsys):
    assert main(["list", what]) == 0
    shown = capsys.readouterr().out
    some = {"solvers": "heavy-ball", "kernels": "matern32", "inputs": "sphere", "families": "nadaraya-watson"}
    assert {**some, "presets": "82,000", "models": "38,977 parameters"}[what] in shown
    assert main(["list", what, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_numbers_of_a_table_are_whole_in_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["solve", *SMALL]) == 0
    assert "…" not in capsys.readouterr().out
    assert main(["construct", "--N", "3", "--lam", "1"]) == 0
    table = capsys.readouterr().out.split("predictions, and")[1]
    assert "…" not in table
    assert "arithmetic" in table


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
        (["fly"], "verb = 'fly': there is none of that name. Must be one of solve"),
        (["help"], "verb = 'help': there is none of that name. Did you mean --help?"),
        (["solve", "--solvers", "sor"], "--solvers = 'sor': must be one of richardson"),
        (["solve", "--solvers", "richardsn"], "softmax-average. Did you mean richardson?"),
        (["solve", "--v", "0"], "v = 0.0: must be a finite number above 0"),
        (["solve", "--N", "0"], "N = 0: must be an integer of at least 1"),
        (["solve", "--steps", "0"], "steps = 0"),
        (["solve", "--inputs", "torus"], "inputs = 'torus': must be one of sphere, uniform, gaussian"),
        (["solve", "--prompts", "0"], "prompts = 0"),
        (["solve", "--plot", "errors.gif"], "--plot suffix = '.gif': must be one of .png, .svg, .pdf"),
        (["solve", "--plot", "/proc/no/errors.png", *SMALL], "cannot write /proc/no/errors.png"),
        (["solve", "--steps", "abc"], "--steps = 'abc': must be an integer. See layerstep solve --help"),
        (["solve", "--d", "2.5"], "--d = '2.5': must be an integer. See layerstep solve --help."),
        (["solve", "--v", "wide"], "--v = 'wide': must be a number."),
        (["solve", "--steps", str(2**60)], f"steps = {2**60}: must be an integer from 1 to {2**53}"),
        (["solve", "--n", "3"], "Unknown option: --n. Did you mean --N? See layerstep solve --help."),
        (["solve", "--stepz", "3"], "Unknown option: --stepz. Did you mean --steps? See layerstep solve --h"),
        (["solve", "--N", "5000000", "--d", "1", "--prompts", "1"], "of memory or more"),
        (["probe", "nowhere", "--test-prompts", "0"], "test_prompts = 0"),
        (["identify", "ridge", "--prompts", "0"], "prompts = 0"),
        (["identify", "ridge", "--probe-prompts", "0"], "probe_prompts = 0"),
        (["identify", "ridge", "--plot", "/proc/no/a.png"], "cannot write /proc/no/a.png"),
        (["identify", "ridge", "--prompts", "63"], "prompts = 63: must be an integer of at least 64"),
        (
            ["identify"],
            "MODEL is missing: directory of a trained model, file of `layerstep construct --out`, name of a shipped",
        ),
        (["train"], "--out is missing: the directory for weights, log and checkpoints. See layerstep train --help."),
        (["train", "--out"], "--out has no value: the directory for weights"),
        (["train", "tiny", "--out", "x", "--layers", "5"], "Unknown option: --layers. Did you mean --model.layers?"),
        (["train", "huge", "--out", "x"], "PRESET = 'huge': must be one of paper, fast, tiny, linear, linear-tiny."),
        (["train", "tiny", "more", "--out", "x"], "'more' is one value too many."),
        (["train", "--out", "x", "--lr", "1", "--set", "lr=1"], "--set = lr: must be what no other option gives"),
        (["solve", "--sequences", "5"], "--sequences is now --prompts. See layerstep solve --help."),
        (["probe", "x", "--sequences=5"], "--sequences is now --test-prompts."),
        (["construct", "--sample", "5"], "--sample is now --prompts."),
        (["construct", "--save", "x"], "--save is now --out."),
        (["identify", "ridge", "--figure", "x.png"], "--figure is now --plot."),
        (["sweep", "sphere", "--home", "x"], "--home is now --out."),
        (["sweep"], "names = none: must be a preset, or runs"),
        (["publish", "nowhere", "spere"], "name = 'spere': must be one of sphere"),
        (["calibrate", "--jobs", "0"], "jobs = 0: must be an integer of at least 1"),
        (["calibrate", "--task", "linear", "--prior", "sparse:2"], "--prior: the suite has no planted models of such"),
        (["calibrate", "--N", "10"], "--N: the suite has no planted models of such tasks."),
        (["calibrate", "--interventions", "--keep"], "--keep: the networks that interventions are measured on have"),
        (["calibrate", "--seeds", "3"], "--seeds: is about interventions. Say --interventions, or leave it out."),
        (["calibrate", "--interventions", "--controls", "src"], "src has no trained controls"),
        (["solve", "--plot", ""], "--plot = '': must be a path, not empty."),
        (["train", "--out", "a" * 300], "(302 characters): must be a path whose names have at most 255 bytes."),
        (["identify", "a" * 300], "must be a path whose names have at most 255 bytes."),
        (["solve", "--prompts", "9" * 30], "of memory or more"),
        (["solve", "--N", "9" * 10_000], "(10,002 characters): must be an integer"),
        (["solve", "--json", "--json"], "--json is given twice."),
        (["construct", "--scheme", "spline"], "--scheme = 'spline': must be one of compact, exact, paper, adaptive."),
        (
            ["solve", "--kernel", "laplace"],
            "In Python, ls.KERNELS takes a function of your own; on the command line --import MODULE",
        ),
        (["solve", "--solvers", "cg", "--solvers", "ridge"], "--solvers is given twice. Give it once, with all its"),
        (["solve", "--N", "3", "--d", "2", "--N=4"], "--N is given twice."),
        ([*NOT_TRAINED, "--set", "seed=7", "--set", "steps=128"], "--set is given twice."),
        ([*NOT_TRAINED, "--checkpoint-seconds", "1", "--checkpoint_seconds", "2"], "--checkpoint-seconds is"),
        ([*NOT_TRAINED, "--resume", "--resume"], "--resume is given twice."),
        (["bench", "--which", "nothing"], "--which = 'nothing': must be one of all"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, words, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
    assert len(error) < 700


def test_a_directory_of_models_names_them(tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    assert main(["identify", str(tmp_path)]) == 2
    assert "holds models and is not one itself. Choose one of one, two." in capsys.readouterr().err


def command(arguments, **options):
    code = "import sys; from layerstep.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["solve", "--help"], ["solve", *SMALL], ["solve", "--json", *SMALL]])
def test_output_on_a_full_disk_is_one_line(arguments, monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.endswith("cannot write the output: No space left on device. Send it to another place.\n")
    assert len(error.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_process_with_its_output_on_a_full_disk_says_nothing_more_when_it_ends():
    with open("/dev/full", "w") as full:
        done = command(["solve", "--help"], stdout=full)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_terminal_without_unicode_is_served(monkeypatch):
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert main(["construct", "--L", "3"]) == 0
        assert b"B_y ?(N / lam)" in terminal.buffer.getvalue()  # type: ignore[attr-defined]
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    wrong = command(["solve", "--steps", "1e3"], env=ascii_only)
    assert wrong.returncode == 2
    assert wrong.stderr == "layerstep solve: --steps = '1e3': must be an integer. See layerstep solve --help.\n"


def test_stdout_may_be_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["solve", *SMALL]) == 0


def test_nothing_is_drawn_on_stderr_that_is_not_a_terminal(capsys):
    assert main(["solve", *SMALL]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("place", "presses", "words"),
    [
        ("claim", 2, "Nothing was written to {}: the same command starts anew."),
        ("_Loop.run", 2, "There is no checkpoint in {} yet: the same command starts anew."),
        ("_Loop._later", 1, "The last checkpoint is in {}: the same command goes on."),
    ],
)
def test_a_stop_says_how_to_go_on(place, presses, words, tmp_path, capsys, monkeypatch):
    """Ctrl-C before, at and after the start of training; the advice is then followed."""

    def press(*_):
        for _ in range(presses):
            signal.raise_signal(signal.SIGINT)

    out = tmp_path / "o"
    small = ["--set", "steps=65", "warmup=1", "layers=1", "batch=2", "--prompts", "0", "--device", "cpu"]
    arguments = ["train", "tiny", "--out", str(out), *small]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(f"layerstep.training.loop.{place}", press)
        assert main(arguments) == 130
    signal.signal(signal.SIGINT, before)
    *_, said = capsys.readouterr().err.splitlines()  # after the progress, which is shown where steps take long
    assert said == f"layerstep train: stopped. {words.format(out)}"
    assert any(out.glob("checkpoints/step-*.json")) == ("goes on" in words)
    assert main(arguments) == 0


def test_a_warning_is_one_line(capsys):
    assert main(["construct", "--error", "1e10", "--prompts", "0"]) == 0
    error = capsys.readouterr().err
    assert error.startswith("layerstep construct: note: the bound")
    assert len(error.splitlines()) == 1


PROMPT = "0.1,0.2,1\n0.3,-0.2,0.5\n0.2,0.2,\n"


@pytest.mark.parametrize("text", [PROMPT, "\ufeff" + PROMPT, "x1,x2,y\n" + PROMPT, PROMPT + "  \n , , \n"])
def test_a_prompt_as_spreadsheets_write_it(text, tmp_path, capsys):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    assert main(["construct", "--csv", str(tmp_path / "a.csv"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"][0]) == 1


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (PROMPT, ["--d", "7"], "--d = 7: must be 2, as"),
        (PROMPT, ["--N", "1"], "--N = 1: must be at least 2"),
        (PROMPT, ["--B-y", "0.1"], "--B-y = 0.1: must be at least 1"),
        (PROMPT.replace("0.1", "1e200"), [], "line 1 = ['1e200', '0.2', '1']: must be numbers; only the label"),
        (PROMPT.replace("0.5", "nan"), [], "line 2 = 'nan': must be a number, or empty for a query. Numbers up to"),
        (PROMPT.replace("0.2,1", '"0.2,1'), [], "line 3 = '0.2,1"),
        ("1" * 200_000 + PROMPT, [], "is not a CSV file in UTF-8 (field larger than field limit"),
        ("\x00\udcff", [], "is not a CSV file in UTF-8"),
    ],
)
def test_a_mistake_in_a_prompt_names_its_place(text, options, words, tmp_path, capsys):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8", errors="surrogateescape")
    assert main(["construct", "--csv", str(tmp_path / "a.csv"), *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("about", [{"run": 5}, {"run": {"task": 5}}])
def test_a_model_card_that_describes_no_task_is_one_line(about, tmp_path, capsys):
    from layerstep.training import GPT, Model

    GPT(Model(layers=1, heads=1, width=4), d=1, N=3).save_pretrained(tmp_path, about=about)
    for verb in ("probe", "identify"):
        assert main([verb, str(tmp_path)]) == 2
        assert "config.json describes no task" in capsys.readouterr().err


def test_a_verdict_says_on_how_many_prompts_its_probes_were_fitted(tmp_path, capsys):
    from layerstep.training import GPT, Model

    GPT(Model(layers=1, heads=1, width=4), d=1, N=3).initialise(0).save_pretrained(tmp_path)
    assert main(["probe", str(tmp_path), "--prompts", "1024"]) == 0
    assert main(["identify", str(tmp_path), "--prompts", "64"]) == 0
    assert f"probes: {tmp_path / 'probes.safetensors'}, fitted on 1,024 prompts" in capsys.readouterr().out


def test_help_fills_its_lines_wherever_docstrings_break_theirs(capsys):
    assert main(["sweep", "--help"]) == 0
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    assert any("list, which layerstep reproduce names, as they" in line for line in lines)
