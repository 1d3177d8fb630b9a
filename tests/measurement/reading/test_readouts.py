"""Readings side by side: on planted mechanisms, what is read depends on the reader, and the truth is known."""

import pytest
import torch

import layerstep as ls
from layerstep.measurement.calibration.mechanisms import Mechanism
from layerstep.measurement.reading.probes import probe
from layerstep.measurement.reading.readouts import read_three_ways

TASK = ls.Task(inputs="sphere", d=3, N=8)
PROMPTS = ls.sample(TASK, 16, seed=11)


@pytest.mark.parametrize("mask", ["open", "causal"])
def test_the_probe_reads_the_decoy_and_the_lens_the_state(mask):
    """The functional form adds its prediction up at the query; beside it stands exact KRR, which no layer uses."""
    solver = "richardson" if mask == "open" else "causal-richardson"
    mechanism = Mechanism(solver=solver, mask=mask, steps=(1, 1, 1, 1), v=TASK.v)
    reader = mechanism.reader(TASK)
    frame = reader.model.frame
    found = read_three_ways(
        reader, TASK, PROMPTS, fit=256, head=lambda state: frame.read(state[:, reader.queries], "f")
    )
    kind = ls.Richardson() if mask == "open" else ls.CausalRichardson()
    truth = ls.solve(kind, PROMPTS, TASK, 4).values
    exact = ls.exact(PROMPTS, TASK)
    for layer in (1, 2, 3):
        torch.testing.assert_close(found.lens.values[layer], truth[layer], rtol=1e-6, atol=1e-8)
        to_state = (found.labels.values[layer] - truth[layer]).square().mean()
        to_decoy = (found.labels.values[layer] - exact).square().mean()
        assert to_decoy < to_state
    torch.testing.assert_close(found.output.values[-1], found.final, rtol=0, atol=5e-3)
    assert all(gap[2] > 1e-4 for gap in found.disagreement().values())
    assert "labels and lens differ by" in found.lines()[1] or "labels and output" in found.lines()[1]


@pytest.mark.parametrize("mask", ["open", "causal"])
def test_of_a_gpt_the_last_lens_is_its_output_and_the_label_map_the_probe(mask):
    model = ls.GPT(ls.Model(layers=2, heads=2, width=8, mask=mask), d=3, N=8).initialise(2).double().eval()
    found = read_three_ways(model, TASK, PROMPTS, fit=128, batch=64)
    torch.testing.assert_close(found.lens.values[-1], found.final)
    torch.testing.assert_close(found.final, model(PROMPTS)[:, 1:].detach())
    assert found.labels.values.shape == (3, 16, 8)
    theirs = probe(model, TASK, prompts=128, seed=0).path(PROMPTS)
    assert theirs.values.shape == found.labels.values.shape
    better = [(path.values - found.final).square().mean((1, 2)) for path in (found.output, found.labels)]
    assert bool((better[0] <= better[1] + 1e-9).all())


def test_mistakes_are_sentences():
    with pytest.raises(ls.InputError, match="fit = 0"):
        read_three_ways(Mechanism(solver="causal-boost").reader(TASK), TASK, PROMPTS, fit=0)
