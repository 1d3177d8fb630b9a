"""The Python of docs/interventions.md runs as it is printed, with a small model in place of the shipped one."""

import layerstep as ls
from layerstep.measurement.interventions import instrument


def test_the_examples_run(examples, monkeypatch, capsys):
    model = ls.GPT(ls.Model(layers=5, heads=2, width=16), d=5, N=40).initialise(0).eval()
    monkeypatch.setattr(ls.GPT, "from_pretrained", lambda path: model)
    monkeypatch.setattr(instrument, "PROMPTS", {"fit": 30, "choose": 9, "score": 9, "check": 6})
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    names = {}
    for block in examples("docs/interventions.md"):
        exec(block, names)
    assert "Interventions: no layers follow one of the solvers tried." in capsys.readouterr().out
    assert names["result"].operator["block 3"] is not None
