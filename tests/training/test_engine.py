"""The engine against oracles: torch's AdamW, autograd on truncated prompts, and each model trained alone."""

import pytest
import torch

from layerstep.errors import InputError, as_device
from layerstep.tasks import Task
from layerstep.training import GPT, Model, Run, active_points
from layerstep.training.engine import Engine
from layerstep.training.gpt import interleave
from layerstep.training.sampling import CHUNK, draw, draw_chunk
from layerstep.training.stack import Layout, require_stackable
from oracles.training import CPU, advance, reference, restores_bitwise, same_training

RUN = Run(
    task=Task(N=4, d=2),
    model=Model(layers=2, heads=2, width=16),
    steps=200,
    batch=4,
    lr=3e-3,
    lr_final=1e-4,
    warmup=5,
    weight_decay=0.1,
    clip=0.5,
    curriculum_start=2,
    curriculum_add=1,
    curriculum_every=20,
    precision="float64",
)
STACK = [RUN, RUN.override(seed=1, lr=1e-3), RUN.override(inputs="uniform", beta2=0.9, clip=0.01)]


def truncated_loss(run: Run):
    """The loss on prompts cut to the active points."""

    def loss(gpt: GPT, x, y, step: int):
        n = active_points(run, step)
        return (gpt(interleave(x[:, :n], y[:, :n])) - y[:, :n]).square().mean()

    return loss


@pytest.mark.parametrize("index", range(len(STACK)))
def test_steps_are_those_of_torchs_adamw_on_truncated_prompts(index):
    """Masked curriculum = truncated prompts, flat AdamW = torch.optim.AdamW, clip = clip_grad_norm_."""
    run = STACK[index]
    same_training(Engine(STACK, CPU), index, 70, reference(run, 70, truncated_loss(run)))


@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16"])
def test_stacked_models_are_bitwise_the_models_alone(precision):
    runs = [run.override(precision=precision) for run in STACK]
    together = Engine(runs, CPU)
    advance(together, 10)
    for s, run in enumerate(runs):
        alone = Engine([run], CPU)
        advance(alone, 10)
        assert torch.equal(together.weights[s], alone.weights[0])
        assert torch.equal(together.square[s], alone.square[0])


def test_a_restored_engine_goes_on_bitwise_from_the_middle_of_a_chunk():
    restores_bitwise(RUN, CHUNK)


def test_bfloat16_products_follow_the_float32_losses():
    losses = [advance(Engine([RUN.override(precision=p)], CPU), 60)[:, 0, 0] for p in ("float32", "bfloat16")]
    # Products carry 8 bits: single losses move by a few per mille, not by their size.
    torch.testing.assert_close(losses[0], losses[1], rtol=0.03, atol=0.0)
    assert not torch.equal(losses[0], losses[1])


def test_prompts_depend_on_seed_and_chunk_alone():
    first = draw_chunk(RUN, 3, torch.float64, CPU)
    draw_chunk(RUN, 0, torch.float64, CPU)
    assert all(torch.equal(a, b) for a, b in zip(first, draw_chunk(RUN, 3, torch.float64, CPU), strict=True))
    for other in (draw_chunk(RUN, 4, torch.float64, CPU), draw_chunk(RUN.override(seed=9), 3, torch.float64, CPU)):
        assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("task", [Task(), Task(inputs="uniform", v=2.0), Task(kernel="arccos1")], ids=str)
def test_drawn_labels_are_white_after_the_factor_of_their_covariance(task):
    z = torch.randn(300, task.N + 1, task.d + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x, y = draw(task, z)
    torch.testing.assert_close(x, task.draw_inputs(z[..., :-1]))
    A = task.gram(x, x) + task.lam * torch.eye(task.N + 1, dtype=torch.float64)
    white = torch.linalg.solve_triangular(torch.linalg.cholesky(A), y.unsqueeze(-1), upper=False)
    torch.testing.assert_close(white.squeeze(-1), z[..., -1])


def test_single_precision_draws_the_same_prompts():
    double, single = (draw_chunk(RUN, 0, dtype, CPU)[1] for dtype in (torch.float64, torch.float32))
    # Cholesky of K + sigma² I, condition number at most (N+1)/sigma² = 2000, in 24 bits.
    torch.testing.assert_close(single.double(), double, rtol=0, atol=2e-4)


@pytest.mark.parametrize("kernel", ["gaussian", "arccos1"])
@pytest.mark.parametrize("inputs", ["sphere", "uniform", "gaussian"])
def test_the_smallest_noise_a_run_allows_leaves_every_covariance_positive_definite(kernel, inputs):
    run = Run(task=Task(d=1, v=1.0, kernel=kernel, inputs=inputs, sigma=0.0045))
    x, _ = draw_chunk(run, 0, torch.float32, CPU)
    A = run.task.gram(x[:8], x[:8]) + run.task.lam * torch.eye(41)
    assert not torch.linalg.cholesky_ex(A).info.any()


def test_views_of_all_layers_are_the_parameters():
    gpt = GPT(RUN.model, 2, 4).initialise(0)
    layout = Layout(gpt)
    buffer = torch.zeros(2, layout.P)
    layout.load(buffer, 1, gpt)
    stacked = layout.layers(buffer, "attention.qkv.weight")
    for layer, block in enumerate(gpt.blocks):
        assert torch.equal(stacked[1, layer], block.attention.qkv.weight)
    assert not stacked[0].any()


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([RUN, RUN.override(layers=3)], "stacked runs 0 and 1 differ in model"),
        ([RUN, RUN.override(N=5, seed=1)], r"differ in N \(4 and 5\)"),
        ([RUN, RUN.override(seed=2), RUN.override(batch=2)], r"runs 0 and 2 differ in batch \(4 and 2\)"),
        ([RUN, RUN], "are the same run"),
        ([], "runs = none"),
    ],
)
def test_runs_that_cannot_be_stacked_are_refused_in_words(runs, words):
    with pytest.raises(InputError, match=words):
        require_stackable(runs)


@pytest.mark.parametrize("device", ["cuda:7", "tpu", "cpu:x"])
def test_a_device_that_is_not_there_is_named_with_those_that_are(device):
    with pytest.raises(InputError, match=r"device = .*: must be"):
        as_device(device)
