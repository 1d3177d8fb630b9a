"""The Python of docs/measurement.md runs as it is printed, with a small model and library in place of the large."""

from pathlib import Path

import torch
from torch import nn

import layerstep as ls
from layerstep.measurement import Instrument
from layerstep.measurement.identification.label_interventions import LabelInterventions

PAGE = (Path(__file__).parents[2] / "docs" / "measurement.md").read_text(encoding="utf-8")


class Theirs(nn.Module):
    """A model of somebody else's with blocks h.0, h.1, h.2."""

    def __init__(self) -> None:
        super().__init__()
        self.read_in = nn.Linear(6, 8)
        self.h = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, tokens):
        x = self.read_in(tokens)
        for block in self.h:
            x = x + torch.relu(block(x)).cumsum(1)
        return x


def test_the_examples_run(examples, tmp_path, monkeypatch, capsys):
    blocks = examples("docs/measurement.md")
    assert len(blocks) == 5
    monkeypatch.chdir(tmp_path)
    asked, instruments = [], {}
    identify, probe = ls.identify, ls.probe

    def small_identify(path, prompts, task, *, families=ls.FAMILIES, **options):
        key = id(prompts), len(families)
        if key not in instruments:
            instruments[key] = Instrument.prepare(prompts, task, families=families, bandwidths=(1.0,), ridges=())
        return identify(path, prompts, task, instrument=instruments[key], **options)

    def small_probe(model, task, *, prompts=None):
        asked.append(prompts)
        return probe(model, task, prompts=64)

    def small_model(folder):
        assert (Path(__file__).parents[2] / folder / "config.json").is_file()
        return ls.GPT(ls.Model(layers=2, heads=2, width=16)).initialise(0)

    monkeypatch.setattr(ls, "identify", small_identify, raising=False)
    monkeypatch.setattr(ls, "probe", small_probe, raising=False)
    monkeypatch.setattr(ls.GPT, "from_pretrained", small_model)
    names: dict = {}
    exec(blocks[0], names)
    assert names["verdict"].solver == "richardson"
    assert (tmp_path / "verdict.png").stat().st_size > 10_000
    exec(blocks[1], names)
    assert asked == [38_400]
    assert names["verdict"].description(LabelInterventions) is not None
    names["model"] = Theirs().eval()
    exec(blocks[2], names)
    assert names["verdict"].overall.layers == (1, 2, 3)
    exec(blocks[3], names)
    assert "rates unknown for class half" in str(names["verdict"])
    capsys.readouterr()
    exec(blocks[4], names)
    printed = capsys.readouterr().out.strip()
    assert f"# {printed}" in PAGE
