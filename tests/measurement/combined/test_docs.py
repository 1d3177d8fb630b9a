"""docs/identify.md: its Python runs, and the answer it prints about a planted mechanism is the one that is given."""

import functools
from pathlib import Path

import pytest

import layerstep as ls
from layerstep.measurement.calibration.mechanisms import Mechanism
from layerstep.measurement.identification.crossfit import Instrument
from layerstep.measurement.interventions import instrument

PAGE = (Path(__file__).parents[3] / "docs" / "identify.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(instrument, "PROMPTS", {"fit": 60, "choose": 12, "score": 12, "check": 6})
    monkeypatch.setattr(Instrument, "prepare", functools.partial(Instrument.prepare, bandwidths=(1.0,), ridges=()))
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


def test_the_examples_run(examples, tmp_path, monkeypatch, capsys):
    blocks = examples("docs/identify.md")
    monkeypatch.chdir(tmp_path)
    names: dict = {"task": ls.Task(inputs="uniform", d=1, N=10, sigma=0.1)}
    exec(blocks[0], names)
    found = names["found"]
    printed = capsys.readouterr().out
    assert printed.startswith("\n".join(found.sentences))
    assert found.solver is None
    assert (tmp_path / "tiny.png").stat().st_size > 10_000
    assert len(blocks) == 1


@pytest.mark.slow
def test_the_printed_answer_is_the_one_that_is_given():
    task = ls.Task(inputs="sphere", d=3, N=7)
    reader = Mechanism(solver="richardson", mask="open", steps=(1, 1, 1, 1), v=task.v).reader(task)
    frame = reader.model.frame

    def head(state):
        return frame.read(state[:, reader.queries], "f")

    found = ls.identify(reader, task, head=head, prompts=64, fit=256, cache=False)
    for sentence in found.sentences:
        assert sentence in " ".join(PAGE.replace("\n> ", " ").split())
