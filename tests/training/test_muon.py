"""Muon against the polar factor by SVD and against its literal recursion, matrix by matrix."""

import math

import pytest
import torch

from layerstep.errors import InputError
from layerstep.tasks import Task
from layerstep.training import Model, Run
from layerstep.training.engine import Engine
from layerstep.training.muon import polar
from layerstep.training.schedule import learning_rate
from layerstep.training.stack import require_stackable
from oracles.training import CPU, advance, restores_bitwise

RUN = Run(
    task=Task(N=4, d=2),
    model=Model(layers=2, heads=2, width=16),
    steps=40,
    batch=4,
    lr=3e-3,
    warmup=5,
    weight_decay=0.1,
    curriculum_every=0,
    optimizer="muon",
    precision="float64",
)
MATRICES = ("attention.qkv.weight", "attention.out.weight", "up.weight", "down.weight")


@pytest.mark.parametrize("shape", [(8, 8), (32, 8), (8, 32)])
def test_singular_vectors_stay_and_values_come_near_1(shape):
    generator = torch.Generator().manual_seed(0)
    k = min(shape)
    U, _, V = torch.linalg.svd(torch.randn(5, *shape, generator=generator).double(), full_matrices=False)
    s = torch.logspace(0, -1.5, k).double()  # at least .012 after division by the norm
    found = U.mT @ polar(U * s @ V) @ V.mT
    torch.testing.assert_close(found, torch.diag_embed(found.diagonal(dim1=-2, dim2=-1)), atol=1e-12, rtol=0)
    values = found.diagonal(dim1=-2, dim2=-1)
    assert values.min() > 0.67
    assert values.max() < 1.14


def literal(start, gradients, run):
    """One matrix: m ← β m + (1 - β) g, w ← w (1 - lr wd) - lr .2 √max(r, c) polar((1 - β) g + β m)."""
    w, m = start.clone(), torch.zeros_like(start)
    for step, g in enumerate(gradients):
        lr = learning_rate(run, step)
        m = run.beta1 * m + (1 - run.beta1) * g
        rows, columns = w.shape
        step_size = lr * 0.2 * math.sqrt(max(rows, columns))
        w = w * (1 - lr * run.weight_decay) - step_size * polar((1 - run.beta1) * g + run.beta1 * m)
    return w


def test_matrices_follow_the_recursion_and_the_rest_is_adamws():
    run = RUN.override(clip=1e9)
    engine, adam = Engine([run], CPU), Engine([run.override(optimizer="adamw")], CPU)
    start = engine.weights.clone()
    gradients = []
    for _ in range(4):
        advance(engine, 1)
        gradients.append(engine.gradient.clone())
    for name in MATRICES:
        path = [engine.layout.view(g, f"blocks.1.{name}")[0] for g in gradients]
        parts = 3 if name == "attention.qkv.weight" else 1
        whole = engine.layout.view(start, f"blocks.1.{name}")[0].chunk(parts)
        pieces = zip(*(g.chunk(parts) for g in path), strict=True)
        expected = torch.cat([literal(w, gs, run) for w, gs in zip(whole, pieces, strict=True)])
        torch.testing.assert_close(engine.layout.view(engine.weights, f"blocks.1.{name}")[0], expected)
    advance(adam, 1)
    first = Engine([run], CPU)
    advance(first, 1)
    torch.testing.assert_close(
        first.layout.view(first.weights, "read_in.weight"), adam.layout.view(adam.weights, "read_in.weight")
    )
    assert not torch.equal(
        first.layout.view(first.weights, "blocks.0.up.weight"), adam.layout.view(adam.weights, "blocks.0.up.weight")
    )


def test_stacked_models_are_the_models_alone_and_resume_is_bitwise():
    runs = [RUN, RUN.override(seed=1, lr=1e-3)]
    together = Engine(runs, CPU)
    advance(together, 6)
    for s, run in enumerate(runs):
        alone = Engine([run], CPU)
        advance(alone, 6)
        torch.testing.assert_close(together.weights[s], alone.weights[0])
    restores_bitwise(RUN, 20)


def test_identities_of_runs_with_adamw_do_not_move_and_stacks_do_not_mix():
    assert "optimizer" not in Run().to_dict()
    assert Run.from_dict(RUN.to_dict()) == RUN
    assert RUN.identity != RUN.override(optimizer="adamw").identity
    with pytest.raises(InputError, match="optimizer"):
        require_stackable([RUN, RUN.override(optimizer="adamw", seed=1)])
    with pytest.raises(InputError, match="must be one of adamw, muon"):
        Run(optimizer="sgd")
