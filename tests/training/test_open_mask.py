"""The open mask: what each token sees, predictions for every context length, and training against oracles."""

import math

import pytest
import torch

from layerstep.errors import InputError
from layerstep.measurement import probe
from layerstep.measurement.reading.hooks import GPTReader
from layerstep.tasks import Prompts, Task, sample
from layerstep.training import GPT, Model, Run, active_points, evaluate
from layerstep.training.config import ATTENTION
from layerstep.training.engine import Engine
from layerstep.training.gpt import Attention, enlist, parameters, seen
from layerstep.training.huggingface import save_huggingface
from layerstep.training.sampling import draw_chunk
from layerstep.training.schedule import context_lengths
from oracles.training import CPU, reference, restores_bitwise, same_training

TASK = Task(N=6, d=3)
RUN = Run(
    task=Task(N=4, d=2),
    model=Model(layers=2, heads=2, width=16, mask="open"),
    steps=200,
    batch=6,
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


def small(attention: str = "softmax") -> GPT:
    """A model whose every weight counts: as initialised, attention is nearly uniform."""
    gpt = GPT(Model(layers=2, heads=2, width=16, attention=attention, mask="open"), d=3, N=6).initialise(0).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return gpt


def test_tokens_are_a_dummy_examples_and_queries():
    prompts = sample(TASK, 2, seed=0)
    tokens = enlist(prompts.x, prompts.y, torch.tensor([2, 6]))
    assert tokens.shape == (2, 8, 6)
    assert tokens[:, 0].tolist() == [[0, 0, 0, 0, 1, 0]] * 2
    assert torch.equal(tokens[:, 1:, :3], prompts.x)
    assert torch.equal(tokens[1, 1:7, 3], prompts.y[1, :6])
    assert torch.equal(tokens[0, 1:, 3:].T, torch.stack([prompts.y[0] * (torch.arange(7) < 2), torch.zeros(7),
                                                        (torch.arange(7) >= 2).double()]).double())  # fmt: skip


@pytest.mark.parametrize("attention", ATTENTION)
def test_attention_is_its_formula_over_the_dummy_the_examples_and_the_token_itself(attention):
    layer = Attention(Model(heads=2, width=8, attention=attention, mask="open")).double()
    x, n = torch.randn(1, 6, 8, dtype=torch.float64), 3
    mask = seen(enlist(torch.ones(1, 5, 2), torch.ones(1, 5), n))
    q, k, v = layer.qkv(x)[0].split(8, dim=-1)
    rows = []
    for t in range(6):
        keys = [*range(n + 1), *([t] if t > n else [])]
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            score = torch.stack([q[t, head] @ k[u, head] / math.sqrt(4) for u in keys])
            weight = {"softmax": score.softmax(0), "linear": score, "linear-mean": score / len(keys)}[attention]
            heads.append(sum(weight[i] * v[u, head] for i, u in enumerate(keys)))
        rows.append(torch.cat(heads))
    torch.testing.assert_close(layer(x, mask)[0], layer.out(torch.stack(rows)))


@pytest.mark.parametrize("attention", ATTENTION)
def test_a_prediction_is_a_function_of_the_set_of_examples(attention):
    gpt, prompts = small(attention), sample(TASK, 4, seed=1)
    order = torch.tensor([3, 1, 0, 5, 2, 4, 6])
    before, after = gpt(prompts), gpt(Prompts(prompts.x[:, order], prompts.y[:, order]))
    torch.testing.assert_close(after[:, -1], before[:, -1])
    assert (after[:, 2] - before[:, 2]).abs().min() > 1e-3  # these are other sets


@pytest.mark.parametrize("attention", ATTENTION)
def test_predictions_for_all_n_are_those_of_truncated_prompts_and_of_queries_side_by_side(attention):
    gpt, prompts = small(attention), sample(TASK, 4, seed=1)
    every = gpt(prompts)
    assert every.shape == (4, 7)
    for n in range(1, TASK.N + 1):
        alone = gpt(gpt.tokens(Prompts(prompts.x[:, : n + 1], prompts.y[:, : n + 1])))[:, -1]
        torch.testing.assert_close(alone, every[:, n])
        *_, last = gpt.stream(prompts, n)  # queries n+1, n+2, ... in one pass
        torch.testing.assert_close(gpt.head(last)[:, n], every[:, n])


def test_a_prediction_depends_on_all_examples_and_its_own_input_alone():
    gpt, prompts = small(), sample(TASK, 1, seed=0)
    x, y = prompts.x.requires_grad_(), prompts.y.requires_grad_()
    n = 4
    gx, gy = torch.autograd.grad(gpt(enlist(x, y, n))[0, 5], (x, y))
    assert (gx[0, [0, 1, 2, 3, 5]].abs().sum(-1) > 0).all()
    assert not gx[0, [4, 6]].any()
    assert (gy[0, :n] != 0).all()
    assert not gy[0, n:].any()


def test_the_hidden_stream_is_that_of_the_queries_and_readers_see_the_same():
    gpt, prompts = small(), sample(TASK, 3, seed=1)
    prediction, stream = gpt(prompts, hidden=True)
    assert stream.shape == (3, 3, 7, 16)
    assert torch.equal(prediction, gpt(prompts))
    reader = GPTReader(gpt)
    torch.testing.assert_close(torch.stack(reader.states(prompts)), stream)
    recording = reader.run(prompts)
    assert recording.output.shape == (3, 1)
    torch.testing.assert_close(recording.output, prediction[:, -1:])
    assert recording[0][:, reader.examples].shape == (3, 6, 16)
    torch.testing.assert_close(recording[-1][:, reader.queries], stream[-1][:, -1:])


def test_probes_and_evaluation_take_an_open_model():
    gpt = small()
    trajectory = probe(gpt, TASK, prompts=64).path(sample(TASK, 2, seed=3))
    assert trajectory.values.shape == (3, 2, 6)
    assert evaluate(gpt, TASK, B=4, seed=0).mse.shape == (7,)


def test_saved_models_come_back_with_their_mask(tmp_path):
    gpt, prompts = small(), sample(TASK, 2, seed=1)
    gpt.save_pretrained(tmp_path)
    assert torch.equal(GPT.from_pretrained(tmp_path)(prompts), gpt(prompts))
    assert sum(p.numel() for p in gpt.parameters()) == parameters(gpt.model, 3, 6)


def test_a_causal_model_keeps_the_dictionary_and_the_identity_it_had():
    assert "mask" not in Model().to_dict()
    assert Run().identity == "cfc8c0102bfb"
    assert Run.from_dict(RUN.to_dict()) == RUN
    assert RUN.identity != RUN.override(mask="causal").identity


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Model(mask="full"), "mask = 'full': must be one of"),
        (
            lambda: GPT(Model(layers=1, heads=1, width=4), 3, 6).tokens(sample(TASK, 1, 0), n=2),
            "n = 2: must be left out",
        ),
        (lambda: small()(sample(Task(N=6, d=2), 1, seed=0)), "d = 2: must be 3"),
        (lambda: save_huggingface(small(), "nowhere"), "mask = 'open': must be 'causal'"),
    ],
)
def test_what_a_mask_cannot_do_is_said_in_words(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_context_lengths_alternate_and_have_equal_shares():
    lengths = [n for step in range(25) for n in context_lengths(RUN.override(curriculum_every=0), step)]
    assert lengths[:8] == [0, 1, 2, 3, 4, 0, 1, 2]
    assert {lengths.count(n) for n in range(5)} == {30}
    assert max(context_lengths(RUN, 0)) == RUN.curriculum_start - 1


def one_query_at_a_time(gpt: GPT, x: torch.Tensor, y: torch.Tensor, step: int) -> torch.Tensor:
    """The loss of RUN prompt after prompt, one query in each forward pass."""
    loss = torch.zeros((), dtype=torch.float64)
    for b in range(RUN.batch):
        n = (step * RUN.batch + b) % active_points(RUN, step)
        errors = []
        for query in range(n, RUN.task.N + 1):
            points = [*range(n), query]
            tokens = enlist(x[b : b + 1, points], y[b : b + 1, points], n)
            errors.append((gpt(tokens)[0, -1] - y[b, query]).square())
        loss = loss + sum(errors) / len(errors) / RUN.batch
    return loss


def test_steps_are_those_of_torchs_adamw_on_one_query_at_a_time():
    same_training(Engine([RUN.override(seed=1), RUN], CPU), 1, 30, reference(RUN, 30, one_query_at_a_time))


def test_a_restored_engine_goes_on_bitwise_from_the_middle_of_a_chunk():
    restores_bitwise(RUN, 20)


def test_the_second_loss_is_the_error_with_the_longest_context():
    run = RUN.override(batch=10, curriculum_every=0, seed=4)
    engine = Engine([run], CPU)
    before = engine.gpt(0)
    second = engine.advance(1)[0, 0, 1]
    x, y = (part[0] for part in draw_chunk(run, 0, torch.float64, CPU))
    with torch.no_grad():
        wanted = (before(Prompts(x[4::5], y[4::5]))[:, -1] - y[4::5, -1]).square().mean()
    torch.testing.assert_close(second, wanted)
