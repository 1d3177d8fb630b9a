"""The model: its size, its causality, its attention against loops, and parity with Hugging Face's GPT-2."""

import math
import pickle
import random
import zipfile

import pytest
import torch
from torch import nn

from layerstep.errors import FileError, InputError
from layerstep.measurement.reading.hooks import GPTReader
from layerstep.measurement.reading.published import Looped
from layerstep.tasks import Prompts, Task, sample
from layerstep.training import GPT, Model, Run, config
from layerstep.training.config import ATTENTION
from layerstep.training.engine import Engine
from layerstep.training.evaluation import evaluate
from layerstep.training.fused import unsupported
from layerstep.training.gpt import Attention, Linear, interleave
from layerstep.training.huggingface import load_garg, save_huggingface
from oracles.training import CPU, reference, same_training

TASK = Task(N=6, d=3)
SMALL = Model(layers=2, heads=2, width=16)


def small(attention: str = "softmax", seed: int = 0) -> GPT:
    return GPT(Model(layers=2, heads=2, width=16, attention=attention), d=3, N=6).initialise(seed).double()


def test_the_papers_model_has_9_500_417_parameters():
    assert sum(p.numel() for p in GPT(Model(), d=5, N=40).parameters()) == 9_500_417


def test_tokens_alternate_and_the_last_label_is_hidden():
    prompts = sample(TASK, 2, seed=0)
    tokens = interleave(prompts.x, prompts.y)
    assert torch.equal(tokens[:, ::2], prompts.x)
    assert torch.equal(tokens[:, 1:-1:2, 0], prompts.y[:, :-1])
    assert not tokens[:, 1::2, 1:].any()
    assert not tokens[:, -1].any()


@pytest.mark.parametrize("attention", ATTENTION)
def test_a_prediction_depends_on_all_that_came_before_and_on_nothing_after(attention):
    gpt = small(attention)
    x, y = sample(TASK, 1, seed=0).x.requires_grad_(), sample(TASK, 1, seed=0).y.requires_grad_()
    for n in range(TASK.N + 1):
        gx, gy = torch.autograd.grad(gpt(interleave(x, y))[0, n], (x, y))
        assert (gx[0, : n + 1].abs().sum(-1) > 0).all()
        assert (gy[0, :n] != 0).all()
        assert not gx[0, n + 1 :].any()
        assert not gy[0, n:].any()


@pytest.mark.parametrize("shape", [(1, 16), (3, 7, 16), (0, 16), (2, 16, 5)])
def test_a_product_without_gradients_is_that_with_them(shape):
    layer, x = Linear(16, 24), torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x = x if shape[-1] == 16 else x.mT  # not contiguous
    W, b = (each.detach().double().numpy() for each in (layer.weight, layer.bias))
    with torch.no_grad():
        found = layer(x)
    assert not found.requires_grad
    assert layer(x).requires_grad
    for each in (found, layer(x).detach()):
        assert each.dtype == torch.float32
        torch.testing.assert_close(each.double(), torch.from_numpy(x.double().numpy() @ W.T + b), rtol=0, atol=1e-5)


@pytest.mark.parametrize("attention", ATTENTION)
def test_attention_is_its_formula(attention):
    layer = Attention(Model(heads=2, width=8, attention=attention)).double()
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    q, k, v = layer.qkv(x)[0].split(8, dim=-1)
    rows = []
    for t in range(5):
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            score = torch.stack([q[t, head] @ k[u, head] / math.sqrt(4) for u in range(t + 1)])
            weight = {"softmax": score.softmax(0), "linear": score, "linear-mean": score / (t + 1)}[attention]
            heads.append(sum(weight[u] * v[u, head] for u in range(t + 1)))
        rows.append(torch.cat(heads))
    torch.testing.assert_close(layer(x)[0], layer.out(torch.stack(rows)))


def test_the_stream_is_returned_from_the_embedding_to_the_last_block():
    gpt, prompts = small(), sample(TASK, 3, seed=1)
    prediction, stream = gpt(prompts, hidden=True)
    assert stream.shape == (3, 3, 14, 16)
    torch.testing.assert_close(stream[0], gpt.read_in(gpt.tokens(prompts)) + gpt.positions)
    torch.testing.assert_close(stream[2], gpt.blocks[1](stream[1]))
    torch.testing.assert_close(prediction, gpt.read_out(gpt.norm(stream[2][:, ::2])).squeeze(-1))
    assert torch.equal(prediction, gpt(prompts))


def test_shorter_prompts_are_the_beginning_of_longer_ones():
    gpt, prompts = small(), sample(TASK, 2, seed=1)
    short = gpt(interleave(prompts.x[:, :4], prompts.y[:, :4]))
    torch.testing.assert_close(short, gpt(prompts)[:, :4])


def test_initial_weights_have_the_stated_spread_and_depend_on_the_seed_alone():
    gpt = GPT(Model()).initialise(seed=3)
    assert gpt.blocks[0].up.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert gpt.blocks[5].down.weight.std().item() == pytest.approx(0.02 / math.sqrt(24), rel=0.02)
    assert gpt.read_in.weight.std().item() == pytest.approx(5**-0.5, rel=0.1)
    assert torch.equal(small(seed=1).positions, small(seed=1).positions)
    assert not torch.equal(small(seed=1).positions, small(seed=2).positions)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Task(N=7, d=3), "tokens = 16: must be at most 14: the model holds N = 6"),
        (Task(N=6, d=2), "d = 2: must be 3"),
    ],
)
def test_prompts_that_do_not_fit_are_refused_in_words(task, words):
    with pytest.raises(InputError, match=words):
        small()(sample(task, 1, seed=0))


def test_evaluation_sets_the_model_beside_the_solution_of_every_prefix():
    prompts, found = sample(TASK, 5, seed=4), evaluate(small(), TASK, B=5, seed=4)
    K = TASK.gram(prompts.x, prompts.x)
    for n in range(1, TASK.N + 1):
        A = K[:, :n, :n] + TASK.lam * torch.eye(n, dtype=torch.float64)
        exact = (K[:, n, :n] * torch.linalg.solve(A, prompts.y[:, :n])).sum(-1)
        torch.testing.assert_close(found.krr[n], (exact - prompts.f[:, n]).square().mean())
    with torch.no_grad():
        torch.testing.assert_close(found.mse, (small()(prompts) - prompts.f).square().mean(0))


def test_evaluation_does_not_depend_on_the_block():
    gpt = small()
    one, two = (evaluate(gpt, TASK, B=7, seed=1, block=block) for block in (7, 3))
    torch.testing.assert_close(one.mse, two.mse)
    assert one.ratio == pytest.approx(float(one.mse[-1] / one.krr[-1]))


def test_hugging_faces_gpt2_gives_the_same_numbers(tmp_path):
    transformers = pytest.importorskip("transformers")
    gpt, prompts = small(seed=5), sample(TASK, 3, seed=2)
    save_huggingface(gpt, tmp_path)
    theirs = transformers.GPT2Model.from_pretrained(tmp_path, dtype=torch.float64).eval()
    embedded = gpt.read_in(gpt.tokens(prompts))
    with torch.no_grad():
        out = theirs(inputs_embeds=embedded).last_hidden_state
        torch.testing.assert_close(gpt.read_out(out[:, ::2]).squeeze(-1), gpt(prompts), rtol=1e-10, atol=1e-10)


class GargTransformer(nn.Module):
    """The module whose checkpoints are imported, written as their code writes it."""

    def __init__(self, n_dims, n_positions, n_embd, n_layer, n_head):
        from transformers import GPT2Config, GPT2Model

        super().__init__()
        config = GPT2Config(
            n_positions=2 * n_positions, n_embd=n_embd, n_layer=n_layer, n_head=n_head,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        )  # fmt: skip
        self._read_in = nn.Linear(n_dims, n_embd)
        self._backbone = GPT2Model(config)
        self._read_out = nn.Linear(n_embd, 1)

    def forward(self, xs, ys):
        wide = torch.cat((ys.unsqueeze(-1), torch.zeros(*xs.shape[:2], xs.shape[2] - 1)), dim=2)
        zs = torch.stack((xs, wide), dim=2).view(len(xs), -1, xs.shape[2])
        return self._read_out(self._backbone(inputs_embeds=self._read_in(zs)).last_hidden_state)[:, ::2, 0]


@pytest.mark.parametrize("nested", [True, False])
def test_checkpoints_of_garg_et_al_are_imported(tmp_path, nested):
    pytest.importorskip("transformers")
    theirs = GargTransformer(3, 7, 16, 2, 2).eval()
    state = theirs.state_dict() | {"_backbone.h.0.attn.bias": torch.ones(1, 1, 14, 14).tril()}
    torch.save({"model_state_dict": state, "train_step": 3} if nested else state, tmp_path / "state.pt")
    gpt = load_garg(tmp_path / "state.pt", heads=2)
    prompts = sample(TASK, 3, seed=2, dtype=torch.float32)
    assert (gpt.N, gpt.d, gpt.model) == (6, 3, SMALL)
    with torch.no_grad():
        torch.testing.assert_close(gpt(prompts), theirs(prompts.x, prompts.y), rtol=1e-5, atol=1e-5)


class Hostile:
    def __reduce__(self):
        return (open, ("/tmp/layerstep-was-here", "w"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"weights": torch.zeros(2)}, "does not have the layout"),
        (Hostile(), "is not a file of tensors alone, and nothing else is loaded"),
        ({"_read_in.weight": torch.zeros(3)}, "does not have the layout"),
        ([1, 2], "does not have the layout"),
        (None, "is not a file"),
    ],
)
def test_foreign_checkpoints_are_refused_and_never_executed(tmp_path, content, words):
    if content is not None:
        torch.save(content, tmp_path / "state.pt")
    with pytest.raises(FileError, match=words):
        load_garg(tmp_path / "state.pt", heads=2)


def files_of_all_kinds(tmp_path):
    """Noise, zeros, text, pickles, archives, and a checkpoint cut off or changed in a byte."""
    draw = random.Random(0)
    torch.save(small().state_dict(), tmp_path / "whole.pt")
    whole = (tmp_path / "whole.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("a/data.pkl", b"x")
    yield from (b"", b"\0" * 100, b"PK", b"not a checkpoint", (tmp_path / "archive.zip").read_bytes())
    yield from (pickle.dumps(value, protocol) for value in (3, "text", {"a": 1}, [None]) for protocol in range(6))
    yield from (draw.randbytes(draw.randrange(1, 400)) for _ in range(100))
    yield from (whole[: draw.randrange(len(whole))] for _ in range(20))
    for _ in range(60):
        at = draw.randrange(len(whole))
        yield whole[:at] + draw.randbytes(1) + whole[at + 1 :]


def test_any_file_at_all_is_refused_in_words(tmp_path):
    for content in files_of_all_kinds(tmp_path):
        (tmp_path / "state.pt").write_bytes(content)
        with pytest.raises(FileError, match=r"is not a file of tensors alone|does not have the layout"):
            load_garg(tmp_path / "state.pt", heads=2)


@pytest.mark.parametrize("where", ["model", "kernels", "unsupported"])
def test_an_attention_that_nobody_wrote_is_refused(where, monkeypatch):
    """Its name may have been added to the table and nowhere else."""
    monkeypatch.setattr(config, "ATTENTION", (*config.ATTENTION, "sigmoid"))
    run = Run(task=TASK, model=Model(layers=1, heads=2, width=16, attention="sigmoid"), precision="bfloat16")
    if where == "unsupported":
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # as if Triton were there
        assert "attention = 'sigmoid' is not one of" in unsupported(run, torch.device("cuda"))
        return
    with pytest.raises(InputError, match="attention = 'sigmoid': must be one of"):
        if where == "model":
            GPT(run.model, d=3, N=6)(sample(TASK, 2, seed=0))
        else:
            attention = pytest.importorskip("layerstep.training.fused.attention")
            attention._shape(14, 2, 16, "sigmoid", 1)


LOOPED = Model(layers=2, heads=2, width=16, loops=3)


def test_a_looped_model_is_yangs(tmp_path):
    prompts = sample(TASK, 4, seed=0)
    gpt = GPT(LOOPED, d=3, N=6).initialise(1).double()
    once = GPT(SMALL, d=3, N=6).double()
    once.load_state_dict(gpt.state_dict())
    wanted = Looped(once, 3)(once.tokens(prompts))
    torch.testing.assert_close(gpt(prompts), wanted)
    assert not torch.allclose(gpt(prompts), once(prompts))
    gpt.save_pretrained(tmp_path)
    assert torch.equal(GPT.from_pretrained(tmp_path)(prompts), gpt(prompts))


def test_every_use_of_a_block_is_a_site():
    prompts = sample(TASK, 4, seed=0)
    gpt = GPT(LOOPED, d=3, N=6).initialise(1).double()
    reader = GPTReader(gpt, attention=True)
    assert reader.stages[-1] == 6
    assert reader.sites[-2:] == ("attention 6", "block 6")
    made = reader.run(prompts)
    torch.testing.assert_close(made.output, gpt(prompts))
    torch.testing.assert_close(torch.stack(made.states[::2]), gpt(prompts, hidden=True)[1])
    again = reader.run(prompts, {"block 6": lambda h: made.states[-1] + 0 * h, "block 3": lambda h: 2 * h})
    torch.testing.assert_close(again.output, made.output)


def test_a_looped_model_trains_as_autograd_has_it():
    run = Run(task=TASK, model=LOOPED, steps=40, batch=4, lr=3e-3, warmup=5, curriculum_every=0, precision="float64")
    loss_of = lambda gpt, x, y, step: (gpt(interleave(x, y)) - y).square().mean()  # noqa: E731
    same_training(Engine([run], CPU), 0, 4, reference(run, 4, loss_of))


def test_loops_go_without_saying_and_what_cannot_loop_says_so(tmp_path):
    assert "loops" not in SMALL.to_dict()
    assert Model.from_dict(LOOPED.to_dict()) == LOOPED
    words = unsupported(Run(model=LOOPED, precision="bfloat16"), torch.device("cuda"))
    assert "loops" in words or "Triton" in words
    with pytest.raises(InputError, match=r"loops = 3: must be 1"):
        save_huggingface(GPT(LOOPED, d=3, N=6), tmp_path)
    with pytest.raises(InputError, match="loops = 0"):
        Model(loops=0)


def test_linear_attention_has_no_gpt2(tmp_path):
    with pytest.raises(InputError, match="attention = 'linear': must be 'softmax'"):
        save_huggingface(small("linear"), tmp_path)


def test_numbers_that_a_model_cannot_square_are_refused():
    prompts = Prompts(torch.ones(1, 3, 2).double(), torch.full((1, 3), 1e30).double())
    gpt = GPT(Model(layers=1, heads=1, width=4), d=2, N=2).initialise(0)
    with pytest.raises(InputError, match=r"prompts = numbers up to 1e\+30: must be numbers up to 1.8e\+19, whose"):
        gpt(prompts)
    assert gpt.double()(prompts).isfinite().all()
