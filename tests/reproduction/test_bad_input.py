"""Damaged, missing, interrupted or unknown results: said on the page and in the terminal, and the rest is built."""

import html
import inspect
import os

import pytest
import torch

import layerstep.cli as cli
from layerstep.errors import InputError
from layerstep.files import write_json
from layerstep.reproduction import report, runs
from layerstep.reproduction.numbers import collection, constructed, solvers
from layerstep.reproduction.predictions import FILE, Predictions
from layerstep.reproduction.runs import RUNS

from .conftest import write_config

LEFT = {
    "sphere": b"{",
    "gone": b"null",
    "list": b"[1]",
    "zeros": bytes(100),
    "noise": bytes(range(256)),
    "huge": b'{"seconds": ' + 400 * b"9" + b"}",
    "curves-sphere-200": b'{"identity": "other", "seconds": "long"}',
}


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.fixture(scope="module")
def built(tmp_path_factory, plant):
    """The page and what the terminal says, from one whole model among seven that are not."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("models")
    patch.setattr(runs, "MODELS", folder)
    whole = plant("sphere") / FILE
    for name in ("uniform", "gaussian", "arccos1", "heads-2", "width-64"):
        write_config(folder / name, RUNS[name].run)
        (folder / name / FILE).write_bytes(whole.read_bytes())
    (folder / "sphere" / "evaluation.json").write_text('{"seconds": 5')
    cut(folder / "uniform" / FILE)
    cut(folder / "gaussian" / "config.json")
    (folder / "arccos1" / FILE).unlink()
    write_config(folder / "heads-2", RUNS["heads-4"].run)
    (folder / "width-64" / FILE).write_bytes(b"")
    write_json(folder / "heads-1" / "checkpoints" / "step-000004096.json", {})
    (folder / "spehre").mkdir()
    (folder / os.fsdecode(b"not-utf-8-\xff")).mkdir()
    patch.setattr(report, "model_verdicts", lambda *args: ({}, {}))
    for name in ("constructed_walk", "constructed_schemes"):
        patch.setattr(constructed, name, lambda store: None)
    patch.setattr(constructed, "constructed_models", lambda store: {})
    real = solvers.solver_curves
    patch.setattr(solvers, "solver_curves", lambda store, name, steps: real(store, name, steps, 4))
    patch.setattr(collection.solvers, "conditioning", lambda store: {})
    patch.setattr(collection.solvers, "cg_precision", lambda store: None)
    patch.setattr(collection.planted_paths, "compare_planted_paths", lambda store: [])
    patch.setattr(collection.noise, "ridge_noise", lambda store: {})
    patch.setattr(collection.noise, "model_noise", lambda store, names: {})
    said: list[str] = []
    patch.setattr("builtins.print", lambda *words, **_: said.append(" ".join(map(str, words))))
    out = tmp_path_factory.mktemp("report")
    (out / "numbers").mkdir()  # left by earlier calls, and of no use to this one:
    for name, left in LEFT.items():
        (out / "numbers" / f"{name}.json").write_bytes(left)
        (out / f"steps-{name}.json").write_bytes(left)
    (out / "heat-sphere.csv").mkdir()
    status = cli.main(["reproduce", "--out", str(out)])
    patch.undo()
    return status, html.unescape((out / "index.html").read_text()), "\n".join(said)


REASONS = {
    "a cut predictions file": "uniform/predictions.safetensors is not a whole safetensors file",
    "an empty predictions file": "width-64/predictions.safetensors is not a whole safetensors file",
    "a missing predictions file": "arccos1/predictions.safetensors is not there",
    "a truncated config": "gaussian/config.json is not readable JSON",
    "a truncated evaluation": "sphere/evaluation.json is not readable JSON",
    "an interrupted run": "interrupted at step 4,096: layerstep train paper --out results/models/heads-1",
    "another run's files": "heads-2/config.json says heads = 4 (listed: 2)",
    "a directory of no run": "spehre is not a run of the list and is left out",
    "a name that is not UTF-8": r"not-utf-8-\xff is not a run of the list",
    "a directory in the place of a file": "heat-sphere.csv: Is a directory",
}


@pytest.mark.parametrize("case", REASONS)
def test_what_is_wrong_is_said_on_the_page_and_in_the_terminal(built, case):
    _, page, terminal = built
    assert REASONS[case] in page
    assert REASONS[case] in terminal


def test_the_rest_is_built(built):
    status, page, terminal = built
    assert status == 0
    assert all(f'id="{name}"' in page for name in ("trained-sphere", "steps-sphere"))
    assert 'id="trained-uniform"' not in page
    assert f"1 of {len(RUNS)} training runs are here" in terminal
    assert "layerstep train paper --out results/models/heads-1 --set heads=1 --resume   #" in terminal


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    def never(*args):
        raise AssertionError

    monkeypatch.setattr(report, "probe_missing", never)
    (tmp_path / "file").write_text("")
    assert cli.main(["reproduce", "--out", str(tmp_path / "file" / "report")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("layerstep reproduce: cannot write ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"out": torch.nn.Linear(2, 2)}, "out = Linear"),
        ({"out": None}, "out = None: must be the path"),
        ({"out": "a\0b"}, "out = "),
        ({"out": 300 * "x"}, "at most 255 bytes"),
        ({"progress": 3}, "progress = 3: must be a function of a sentence"),
    ],
)
def test_odd_arguments_end_in_words(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reproduce = inspect.unwrap(report.reproduce)  # as users call it, without the checks of shapes and types
    with pytest.raises(InputError, match=words):
        reproduce(**arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU models are probed unasked")
@pytest.mark.parametrize("probe", [False, True])
def test_weights_without_predictions_are_probed_on_a_cpu_only_when_asked(models, plant, monkeypatch, probe):
    file = plant("sphere") / FILE
    whole = Predictions.load(file.parent)
    file.unlink()
    (models / "sphere" / "model.safetensors").write_bytes(b"")
    probed = []

    class Model:
        @staticmethod
        def from_pretrained(folder, device):
            return probed.append(folder.name)

    class Probes:
        def save(self, path):
            path.write_bytes(b"")

    monkeypatch.setattr(report, "GPT", Model)
    monkeypatch.setattr(report, "predict", lambda model, setting: (whole, Probes()))
    failed = report.probe_missing(lambda words: None, probe)
    assert probed == (["sphere"] if probe else [])
    assert file.exists() == probe
    assert ("reproduce --probe" in failed.get("sphere", "")) != probe
