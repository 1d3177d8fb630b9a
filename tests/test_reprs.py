"""A repr is a line or two, whatever the size of the result."""

import dataclasses

import pytest
import torch

import layerstep as ls
from layerstep.reprs import LONGEST, brief


@pytest.fixture(scope="module")
def results():
    """One of every kind that a public call gives."""
    task = ls.Task(inputs="uniform", d=1, N=4, sigma=0.1)
    prompts = ls.sample(task, 64, seed=0)
    path = ls.solve(ls.Richardson(), prompts, task, steps=60)
    network = ls.construct(d=1, N=4, v=1.0, lam=0.01, B_y=3.0, L=5)
    gpt = ls.GPT(ls.Model(layers=2, heads=2, width=8), d=1, N=4).initialise(seed=0)
    probes = ls.probe(gpt, task, prompts=64)
    verdict = ls.identify(probes.path(prompts), prompts, task, families=ls.FAMILIES[:3])
    found = ls.identify(gpt, task, prompts=64, fit=64, parts=("readings", "interventions"), families=ls.FAMILIES[:3])
    reader = ls.GPTReader(gpt)
    x, y = prompts.x[0, :4], prompts.y[0, :4]
    return {
        "Task": task,
        "Prompts": prompts,
        "Trajectory": path,
        "Construction": network,
        "Certificate": network.certificate,
        "Prediction": network.predict(x, y, torch.rand(300, 1)),
        "GPT": gpt,
        "Probes": probes,
        "GPTReader": reader,
        "Recording": reader.run(prompts[:2]),
        "Hooked": ls.Hooked(model=gpt, inputs=lambda p: p, modules=[f"blocks.{k % 2}" for k in range(30)]),
        "Evaluation": ls.evaluate(gpt, task, B=8, seed=1),
        "Match": ls.match(probes.path(prompts), path, prompts),
        "Verdict": verdict,
        "RangeResult": verdict.overall,
        "Fit": verdict.overall.fits[0],
        "LayerTable": verdict.table,
        "Identification": found,
        "Readings": found.readings,
        "Readouts": found.readings.readouts,
        "CausalResult": found.interventions,
        "LayerResult": found.interventions.layers[-1],
        "Operator": next(iter(found.operator.values())),
        "Run": ls.PRESETS["paper"].override(N=12, lr=1.23e-4, precision="bfloat16", warmup=7),
        "Rule": ls.Rule(),
        "Family": ls.FAMILIES[0],
        "TransformerKRR": ls.TransformerKRR().fit(x, y),
    }


def test_a_repr_is_short_and_says_what_it_is(results):
    for name, result in results.items():
        said = repr(result)
        assert said.startswith(f"{name}("), name
        print(said)
        assert 3 < len(said) <= LONGEST, (name, said)
        assert "object at 0x" not in said, said


def test_a_repr_says_what_matters(results):
    assert "2 layers of width 8" in repr(results["GPT"])
    assert "1,865 parameters" in repr(results["GPT"])
    assert "300 queries" in repr(results["Prediction"])
    assert "3 layers, 61 steps" in repr(results["Match"])
    assert "3 layers, 64 prompts" in repr(results["Verdict"])
    assert "lr=0.000123" in repr(results["Run"])
    assert "steps" not in repr(results["Run"])  # a default goes without saying


def test_a_short_repr_shows_shapes_and_counts():
    @dataclasses.dataclass
    class Many:
        numbers: torch.Tensor
        names: tuple
        words: str = "usual"

        __repr__ = brief

    said = repr(Many(torch.zeros(500, 2), tuple("abcdef")))
    assert said == "Many(numbers=float32[500, 2], names=('a', 'b', 'c', ... 6 in all))"
    assert len(repr(Many(torch.zeros(1), ("x" * 3000,), "y" * 3000))) <= LONGEST
