"""The hand-written kernels against autograd on the reference model; on CUDA, or in Triton's interpreter.

Without a GPU: TRITON_INTERPRET=1 python -m pytest --noconftest -m gpu tests/training/test_fused.py
"""

import importlib.util
import os

import pytest
import torch

from layerstep.tasks import Task
from layerstep.training import GPT, PRESETS, Model, Run
from layerstep.training.adamw import table, update
from layerstep.training.autograd import AutogradNetwork
from layerstep.training.engine import Engine
from layerstep.training.fused import unsupported
from layerstep.training.sampling import CHUNK
from layerstep.training.stack import Layout

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda" if CUDA else "cpu")
SMALL = Run(task=Task(N=8, d=3), model=Model(layers=2, heads=2, width=32), batch=3, steps=100)
CASES = [SMALL.override(attention=kind) for kind in ("softmax", "linear", "linear-mean")]
CASES += [SMALL.override(N=4, d=1, heads=4, width=16), SMALL.override(N=19, heads=1, batch=2, layers=1)]
CASES += [SMALL.override(N=18, heads=1, width=256, batch=1, layers=1)]  # the largest head, two blocks of rows
CASES += [PRESETS["paper"].override(layers=3, attention=kind) for kind in ("softmax", "linear-mean")] if CUDA else []
CASES += [SMALL.override(mask="open", attention=kind) for kind in ("softmax", "linear", "linear-mean")]
CASES += [SMALL.override(mask="open", N=35, heads=1, batch=4, layers=1)]  # three blocks of keys
CASES += [PRESETS["fast"].override(layers=3, mask="open", batch=128)] if CUDA else []
kernels = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or not (CUDA or INTERPRETED),
    reason="needs Triton, and CUDA or TRITON_INTERPRET=1",
)
cuda = pytest.mark.skipif(not CUDA, reason="needs CUDA")
# bfloat16 products carry 8 bits; the interpreter runs the same kernels in float32.
CLOSE = 0.02 if CUDA else 1e-5


def gradients(run: Run, S: int = 2, stream_slices: int = 2):
    """Losses and gradients of S perturbed models: autograd in float32, and the kernels into a poisoned buffer."""
    from layerstep.training.fused.network import FusedNetwork

    gpt = GPT(run.model, run.task.d, run.task.N)
    layout = Layout(gpt)
    weights = torch.zeros(S, layout.P)
    used = sum(p.numel() for p in gpt.parameters())
    generator = torch.Generator().manual_seed(1)
    for s in range(S):
        layout.load(weights, s, gpt.initialise(s))
    weights[:, :used] += 0.03 * torch.randn(S, used, generator=generator)
    weights = weights.to(DEVICE)
    shape = (S, run.batch, run.task.N + 1)
    x = torch.randn(*shape, run.task.d, generator=generator).to(DEVICE)
    y = torch.randn(*shape, generator=generator).to(DEVICE)
    points = torch.tensor([3.0, run.task.N + 1.0], device=DEVICE)[:S]
    n = None
    if run.model.mask == "open":  # no example, one block of keys none of which a late query sees, all examples
        n = torch.randint(0, run.task.N + 1, (S, run.batch), generator=generator, dtype=torch.int32)
        n[:, 0], n[:, -1] = 0, run.task.N
        n = n.to(DEVICE)
    plain, fused = torch.zeros_like(weights), torch.full_like(weights, float("nan"))
    first = AutogradNetwork(gpt.to(DEVICE), layout, weights, plain, "float32")(x, y, points, n)
    second = FusedNetwork(run, layout, weights, fused, stream_slices)(x, y, points, n)
    return layout, (first, plain), (second, fused)


@pytest.mark.gpu
@kernels
@pytest.mark.parametrize("run", CASES, ids=lambda run: f"{run.model}, {run.task}")
def test_every_gradient_is_that_of_autograd(run):
    layout, (loss, plain), (fused_loss, fused) = gradients(run)
    torch.testing.assert_close(fused_loss, loss, rtol=CLOSE, atol=0)
    far = {}
    for name in layout.slots:
        a, b = layout.view(plain, name), layout.view(fused, name)
        # ‖difference‖ / ‖gradient‖ of all models' parameter; NaN, an entry nobody wrote, is never close.
        error = float((a - b).norm() / a.norm())
        if not error < CLOSE:
            far[name] = error
    assert not far


@pytest.mark.gpu
@kernels
@pytest.mark.parametrize(("S", "stream_slices", "made"), [(1, 2, 2), (2, 1, 1), (2, 2, 2), (2, 4, 4), (2, 7, 4)])
def test_stream_slices_change_no_bit_of_the_gradient(S, stream_slices, made):
    from layerstep.training.fused.stream_slice import split

    run = SMALL.override(N=3, batch=16)  # 8 prompts of 8 tokens: two whole chunks of rows
    assert len(split(S, run.batch, 2 * (run.task.N + 1), stream_slices)) == made
    _, _, (loss, one) = gradients(run, S, stream_slices=1)
    _, _, (fused_loss, many) = gradients(run, S, stream_slices)
    assert torch.equal(loss, fused_loss)
    assert torch.equal(one.nan_to_num(7), many.nan_to_num(7))


@pytest.mark.gpu
@kernels
def test_the_update_is_the_plain_one():
    from layerstep.training.fused import adamw

    generator = torch.Generator().manual_seed(2)
    w, g, m, v = (torch.rand(2, 40_000, generator=generator).to(DEVICE) for _ in range(4))
    numbers = table([SMALL, SMALL.override(lr=0.1, clip=0.01)], range(3, 4))[0].float().to(DEVICE)
    plain, fused, low = [t.clone() for t in (w, g, m, v)], [t.clone() for t in (w, g, m, v)], torch.zeros_like(w)
    update(*plain, numbers)
    adamw.update(*fused, low, numbers)
    for name, a, b in zip("wgmv", plain, fused, strict=True):
        if name != "g":
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert torch.equal(low, fused[0])


STACK = [
    PRESETS["paper"].override(layers=2, steps=1000, lr=1e-3, seed=s, inputs=inputs)
    for s, inputs in enumerate(("sphere", "uniform", "gaussian"))
]


@pytest.mark.gpu
@cuda
def test_stacked_models_are_bitwise_the_models_alone_on_the_gpu():
    together = Engine(STACK, DEVICE)
    together.advance(CHUNK)
    for s, run in enumerate(STACK):
        alone = Engine([run], DEVICE)
        alone.advance(CHUNK)
        assert torch.equal(together.weights[s], alone.weights[0])


@pytest.mark.gpu
@cuda
@pytest.mark.parametrize("fused", [True, False])
def test_the_captured_step_is_the_eager_step_and_resumes_bitwise(fused):
    captured, eager = Engine(STACK, DEVICE, fused), Engine(STACK, DEVICE, fused)
    captured.advance(9)
    eager._load(0)
    for _ in range(9):
        eager._one_step()
    assert torch.equal(captured.weights, eager.weights)
    resumed = Engine(STACK, DEVICE, fused)
    resumed.restore(captured.state, 9)
    for engine in (captured, resumed):
        engine.advance(CHUNK)
        engine.advance(CHUNK)
    assert torch.equal(captured.weights, resumed.weights)
    assert torch.equal(captured.losses, resumed.losses)


@pytest.mark.gpu
@cuda
def test_bfloat16_losses_follow_float32_over_two_thousand_steps():
    runs = [STACK[0].override(precision=p, steps=2048) for p in ("bfloat16", "float32")]
    curves = []
    for run in runs:
        engine = Engine([run], DEVICE)
        curves.append(torch.cat([engine.advance(CHUNK)[:, 0, 0] for _ in range(32)]).unflatten(0, (8, -1)).mean(1))
    # Means over 256 steps on the same prompts. While a model learns fast, rounding shifts the moment of learning:
    # single windows differ by some per cent (5.5 were seen), the whole curve by less.
    torch.testing.assert_close(curves[0], curves[1], rtol=0.1, atol=0)
    torch.testing.assert_close(curves[0].mean(), curves[1].mean(), rtol=0.03, atol=0)


@pytest.mark.parametrize(
    ("run", "device", "words"),
    [
        (SMALL, "cpu", "need CUDA"),
        (SMALL, "cuda", "bfloat16|Triton is not installed"),
    ],
)
def test_what_the_kernels_cannot_do_is_said_in_words(run, device, words):
    import re

    assert re.search(words, unsupported(run, torch.device(device)))
