"""Probes recover what is linear in the hidden states, and any model can be read."""

from inspect import unwrap  # past the tests' own check of types

import numpy as np
import pytest
import torch
from torch import nn

import layerstep as ls
from layerstep.measurement.reading.hooks import GPTReader, Hooked
from layerstep.measurement.reading.probes import Probes, probe, probe_each
from layerstep.training import GPT, Model
from layerstep.training.gpt import interleave

TASK = ls.Task(N=6, d=3)
QUIET = ls.Task(N=6, d=3, sigma=1e-6)  # labels are the function, but for 1e-6


def small_gpt() -> GPT:
    model = GPT(Model(layers=2, heads=2, width=16), d=3, N=6).initialise(seed=1).double().eval()
    with torch.no_grad():  # larger weights than at initialisation: every site carries information
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


class Planted:
    """A reader whose first site holds f at the token, linearly mixed, and with it a quiet label; the second f before.

    f is not an input of a model: a state that had the label itself would be refused.
    """

    def __init__(self) -> None:
        self.model = nn.Linear(1, 1)
        self.mix = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    sites = ("now", "before")
    stages = (1.0, 2.0)

    def states(self, prompts):
        before = torch.nn.functional.pad(prompts.f[:, :-1], (1, 0))
        return [
            torch.stack([f, 0.3 * f**2, prompts.x[..., 0], torch.ones_like(f)], -1) @ self.mix + 0.7
            for f in (prompts.f, before)
        ]


def test_a_planted_linear_target_is_recovered():
    prompts = ls.sample(QUIET, 8, seed=2)
    path = probe(Planted(), QUIET, prompts=512, seed=0).path(prompts)
    assert path.stages.tolist() == [1, 2]
    # The ridge of 1e-7 of the mean diagonal bounds the error.
    torch.testing.assert_close(path.values[0], prompts.target, atol=1e-4, rtol=0)
    assert (path.values[1] - prompts.target).abs().mean() > 0.1


def test_least_squares_equal_the_normal_equations():
    model = small_gpt()
    fitted = probe(model, TASK, prompts=96, batch=96, seed=3)
    drawn = ls.sample(TASK, 96, 3, 2**40)
    for state, weights in zip(GPTReader(model).states(drawn), fitted.weights, strict=True):
        H = state.flatten(0, 1)
        centred, labels = H - H.mean(0), drawn.y.flatten()
        C = centred.mT @ centred / len(H)
        w = torch.linalg.solve(C + 1e-7 * C.diagonal().mean() * torch.eye(16), centred.mT @ labels / len(H))
        torch.testing.assert_close(weights[:-1], w, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(weights[-1], labels.mean() - H.mean(0) @ w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("tokens", "first"), [("all", 0), ("last", -1)])
def test_probes_are_fitted_on_the_tokens_asked_for(tokens, first):
    """NumPy's least squares on the same tokens; the ridge of 1e-7 shrinks no direction of these states by much."""
    fitted = probe(Planted(), TASK, prompts=96, batch=96, seed=3, tokens=tokens)
    drawn, fresh = ls.sample(TASK, 96, 3, 2**40), ls.sample(TASK, 8, seed=2)
    seen, read = (Planted().states(prompts) for prompts in (drawn, fresh))
    for site, path in enumerate(fitted.path(fresh).values):
        H, new = (torch.nn.functional.pad(states[site], (0, 1), value=1.0).numpy() for states in (seen, read))
        w = np.linalg.lstsq(H[:, first:].reshape(-1, 6), drawn.y[:, first:].numpy().ravel(), rcond=1e-10)[0]
        np.testing.assert_allclose(path, new[:, 1:] @ w, atol=1e-4)
    assert fitted.facts["tokens"] == tokens


@pytest.mark.parametrize("method", ["least-squares", "gradient"])
def test_both_kinds_of_probes_come_from_one_pass(method):
    options, passes = {"prompts": 96, "batch": 32, "seed": 3, "method": method}, []

    class Counted(Planted):
        def states(self, prompts):
            passes.append(prompts.B)
            return super().states(prompts)

    both = probe_each(Counted(), TASK, ["all", "last"], **options)
    once = len(passes)
    for tokens, found in zip(["all", "last"], both, strict=True):
        alone = probe(Counted(), TASK, tokens=tokens, **options)
        assert found.facts["tokens"] == alone.facts["tokens"] == tokens
        for ours, theirs in zip(found.weights, alone.weights, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert len(passes) == 3 * once


def test_a_small_signal_on_a_large_mean_is_found_in_float32():
    class Offset(Planted):
        def states(self, prompts):
            return [(100 + 0.1 * state).float() for state in super().states(prompts)]

    prompts = ls.sample(QUIET, 8, seed=2)
    path = probe(Offset(), QUIET, prompts=2048, seed=0).path(prompts)
    assert (path.values[0] - prompts.target).square().mean().sqrt() < 0.02  # float32 keeps 1e-5 of 100


def test_probes_and_paths_do_not_depend_on_threads_or_pieces():
    model, prompts = small_gpt(), ls.sample(TASK, 40, seed=2)
    count, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            fitted = probe(model, TASK, prompts=150, batch=40, seed=0)
            found.append((torch.stack(fitted.weights), fitted.path(prompts).values))
    finally:
        torch.set_num_threads(count)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    torch.testing.assert_close(fitted.path(prompts, batch=7).values, found[0][1], rtol=1e-12, atol=1e-12)


def test_directions_far_below_the_largest_are_found_in_float32_states():
    """Variances from 1 to 1e-6, the label in the smallest: products in float32 would not see it."""

    class Spread(Planted):
        def states(self, prompts):
            f = prompts.f
            large = torch.stack([prompts.x.sum(-1), f.square(), prompts.x[..., 0]], -1)
            return [torch.cat([large, 1e-3 * f[..., None]], -1).float()] * 2

    prompts = ls.sample(QUIET, 8, seed=2)
    path = probe(Spread(), QUIET, prompts=2048, seed=0).path(prompts)
    # The ridge of 1e-7 of the mean variance shrinks a direction of variance 1e-6 by about a tenth.
    assert (path.values[0] - prompts.target).square().mean().sqrt() < 0.15


def test_gradient_probes_approach_the_least_squares_probes():
    prompts = ls.sample(TASK, 64, seed=9)
    exact = probe(Planted(), TASK, prompts=64 * 400, batch=64, seed=0).path(prompts).values
    trained = (
        probe(Planted(), TASK, prompts=64 * 400, batch=64, seed=0, method="gradient", lr=0.05).path(prompts).values
    )
    assert (trained - exact).square().mean().sqrt() < 0.05


def test_path_is_the_probe_applied_to_the_state_at_the_query():
    model = small_gpt()
    fitted = probe(model, TASK, prompts=64, seed=0)
    prompts = ls.sample(TASK, 5, seed=1)
    stream = model(prompts, hidden=True)[1]
    weights = fitted.weights[2]
    by_hand = stream[2, :, 2::2] @ weights[:-1] + weights[-1]  # tokens x_2, x_3, ...
    torch.testing.assert_close(fitted.path(prompts, batch=2).values[2], by_hand)


def test_hooks_read_the_same_states_as_the_model_reports():
    model = small_gpt()
    prompts = ls.sample(TASK, 4, seed=1)
    hooked = Hooked(model=model, inputs=lambda p: interleave(p.x, p.y), modules=["blocks.0", "blocks.1"])
    own = GPTReader(model).states(prompts)
    for theirs, ours in zip(hooked.states(prompts), own[1:], strict=True):
        torch.testing.assert_close(theirs, ours)
    half_way = GPTReader(model, attention=True)
    assert half_way.sites == ("embedding", "attention 1", "block 1", "attention 2", "block 2")
    states = half_way.states(prompts)
    torch.testing.assert_close(states[2], own[1])
    tokens = states[1]  # what the second half of the block adds leads to the next state
    block = model.blocks[0]
    rest = block.down(torch.nn.functional.gelu(block.up(block.norm2(tokens)), approximate="tanh"))
    torch.testing.assert_close(tokens + rest, own[1])


class Looped(nn.Module):
    """One block applied four times, x <- x + block(x): its name is `block`, and h.0 to h.3; inner adds in place."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.read_in = nn.Linear(3, 8)
        self.block = Step(dropout)
        self.h = nn.ModuleList([self.block] * 4)
        self.idle = nn.Linear(8, 8)

    def forward(self, tokens):
        x = self.read_in(tokens)
        for block in self.h:
            x = block(x)
        return x


class Step(nn.Module):
    def __init__(self, dropout: float):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x += self.dropout(torch.tanh(self.linear(x)))
        return x


def hooked(model, *modules):
    return Hooked(model=model, inputs=lambda p: interleave(p.x, p.y), modules=modules)


@torch.no_grad()
@pytest.mark.parametrize(
    ("names", "sites"),
    [
        (["block"] * 4, ("block #1", "block #2", "block #3", "block #4")),
        (["h.0", "h.1", "h.2", "h.3"], ("h.0", "h.1", "h.2", "h.3")),
    ],
)
def test_every_call_of_a_looped_block_is_a_site_of_its_own_also_when_it_adds_in_place(names, sites):
    model = Looped().eval()
    prompts = ls.sample(TASK, 4, seed=1)
    reader = hooked(model, "read_in", *names)
    assert reader.sites == ("read_in", *sites)
    x = model.read_in(interleave(prompts.x, prompts.y).float())
    by_hand = [x]
    for _ in range(4):
        by_hand.append(by_hand[-1] + torch.tanh(model.block.linear(by_hand[-1])))
    for state, expected in zip(reader.states(prompts), by_hand, strict=True):
        torch.testing.assert_close(state, expected[:, ::2])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hooked(Looped().eval(), "block"), r"calls of block in one pass = 4: must be 1.*Name it once for each"),
        (lambda: hooked(Looped().eval(), "block", "h.1"), "calls of block in one pass = 4: must be 2"),
        (lambda: hooked(Looped().eval(), "idle"), "calls of idle in one pass = 0: must be 1.*Name a module the model"),
        (lambda: hooked(Looped(dropout=0.1), "read_in"), r"is in training mode.*Call model\.eval\(\) first"),
    ],
)
def test_states_that_are_not_one_a_site_are_refused_in_words(make, words):
    with pytest.raises(ls.InputError, match=words):
        make().states(ls.sample(TASK, 4, seed=1))


def test_a_hugging_face_model_is_read_in_three_lines():
    from transformers import GPT2Config, GPT2Model

    class WithReadIn(nn.Module):
        def __init__(self):
            super().__init__()
            self.read_in = nn.Linear(3, 16)
            self.gpt2 = GPT2Model(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, vocab_size=4))

        def forward(self, tokens):
            return self.gpt2(inputs_embeds=self.read_in(tokens))

    model = WithReadIn().eval()
    reader = Hooked(model=model, inputs=lambda p: interleave(p.x, p.y).float(), modules=["gpt2.h.0", "gpt2.h.1"])
    path = probe(reader, TASK, prompts=64, seed=0).path(ls.sample(TASK, 4, seed=5))
    assert path.values.shape == (2, 4, 6)
    assert path.values.isfinite().all()


def test_probes_are_saved_and_loaded_for_the_model_they_belong_to(tmp_path):
    model = small_gpt()
    fitted = probe(model, TASK, prompts=64, seed=0)
    fitted.save(tmp_path / "probes.safetensors")
    prompts = ls.sample(TASK, 3, seed=1)
    again = Probes.load(tmp_path / "probes.safetensors", model)
    assert torch.equal(again.path(prompts).values, fitted.path(prompts).values)
    with pytest.raises(ls.InputError, match="sites of this model"):
        Probes.load(tmp_path / "probes.safetensors", GPT(Model(layers=1, heads=2, width=16), d=3, N=6))
    (tmp_path / "broken").write_bytes(b"not safetensors")
    model.save_pretrained(tmp_path / "model")
    for name, words in {
        "broken": "not a whole safetensors file",
        "absent": "is not there",
        "model/model.safetensors": r"no layerstep probes .* ls\.probe",
    }.items():
        with pytest.raises(ls.FileError, match=words):
            Probes.load(tmp_path / name, model)


def test_probes_know_the_weights_they_were_fitted_on(tmp_path):
    model = small_gpt()
    file = tmp_path / "probes.safetensors"
    fitted = probe(model, TASK, prompts=16, seed=0)
    fitted.save(file)
    model.save_pretrained(tmp_path / "half", dtype=torch.float16)
    assert Probes.load(file, GPT.from_pretrained(tmp_path / "half")).facts == fitted.facts
    other = small_gpt()
    with torch.no_grad():
        other.blocks[1].up.bias[3] += 0.01
    with pytest.raises(ls.InputError, match="model with other weights"):
        Probes.load(file, other)
    nameless = Probes(reader=fitted.reader, weights=fitted.weights, facts={"label": "old"})
    nameless.save(file)
    assert Probes.load(file, other).facts == {"label": "old"}


def test_probes_after_attention_are_loaded_as_such(tmp_path):
    model = small_gpt()
    fitted = probe(GPTReader(model, attention=True), TASK, prompts=16, seed=0)
    fitted.save(tmp_path / "probes.safetensors")
    prompts = ls.sample(TASK, 3, seed=1)
    again = Probes.load(tmp_path / "probes.safetensors", model).path(prompts)
    assert again.stages.tolist() == [0, 0.5, 1, 1.5, 2]
    assert torch.equal(again.values, fitted.path(prompts).values)


def test_low_precision_is_noticed_before_a_verdict():
    fitted = probe(small_gpt(), TASK, prompts=64, seed=0)
    prompts = ls.sample(TASK, 4, seed=1)
    assert fitted.self_check(prompts) == 0
    rough = Probes(reader=GPTReader(small_gpt().bfloat16()), weights=fitted.weights, facts={})
    with pytest.raises(ls.InputError, match="float64"):
        rough.self_check(prompts, tolerance=1e-6)


@pytest.mark.parametrize(
    "inputs",
    [
        lambda model, p: interleave(p.x, p.y).float(),
        lambda model, p: {"prompts": model.tokens(p)},  # closes over the model that is copied
        lambda model, p: (interleave(p.x, p.y),),
    ],
)
def test_a_hooked_model_is_checked_whatever_its_inputs_close_over(inputs):
    model = small_gpt().float()
    reader = Hooked(model=model, inputs=lambda p: inputs(model, p), modules=["blocks.0", "blocks.1"])
    fitted = probe(reader, TASK, prompts=64, seed=0)
    assert 0 < fitted.self_check(ls.sample(TASK, 4, seed=1)) < 1e-2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Linear(2, 2), "Wrap it"),
        (lambda: ls.construct(3, 6, 1.0, 0.1, scheme="compact", L=2), "model.path"),
        (lambda: Hooked(model=small_gpt(), inputs=lambda p: p, modules=["nothing"]), "no module 'nothing'"),
        (lambda: hooked(small_gpt()), r"modules = \(\): must be a list with the names"),
        (lambda: Hooked(model=small_gpt(), inputs=lambda p: p, modules="h.0"), "modules = 'h.0': must be a list"),
    ],
)
def test_models_that_cannot_be_read_are_refused_in_words(make, words):
    with pytest.raises(ls.InputError, match=words):
        probe(make(), TASK, prompts=8)


class Attending(nn.Module):
    """h <- h + mean of h over the tokens before, or over all; `scale` NaN spoils the last block."""

    def __init__(self, causal: bool = True, scale: float = 1.0):
        super().__init__()
        self.read_in, self.causal = nn.Linear(4, 8), causal
        self.h = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        for layer in (self.read_in, *self.h):
            nn.init.normal_(layer.weight, std=0.5, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            self.h[1].weight.mul_(scale)

    def forward(self, tokens):
        T = tokens.shape[1]
        weights = torch.ones(T, T, dtype=tokens.dtype)
        weights = weights.tril() if self.causal else weights
        h = self.read_in(tokens)
        for block in self.h:
            h = block(h + weights / weights.sum(-1, keepdim=True) @ h)
        return h


def in_pairs(p):
    """x_1, y_1, x_2, ...: two tokens an example."""
    tokens = p.x.new_zeros(p.B, 2 * (p.N + 1), p.d + 1)
    tokens[:, 0::2, :-1], tokens[:, 1::2, -1] = p.x, p.y
    return tokens


def own_label(p):
    return torch.cat([p.x, p.y[..., None]], -1)


def label_before(p):
    return torch.cat([p.x, nn.functional.pad(p.y[:, :-1], (1, 0))[..., None]], -1)


ALL, EVEN, ODD = slice(None), slice(0, None, 2), slice(1, None, 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("N", "count"), [(6, 40), (6, 1), (1, 40), (1, 1)])
@pytest.mark.parametrize(
    ("causal", "inputs", "tokens", "sees"),
    [
        (True, in_pairs, EVEN, False),
        (True, label_before, ALL, False),
        (True, own_label, ALL, True),
        (True, in_pairs, ODD, True),
        (False, in_pairs, EVEN, True),
        (False, label_before, ALL, True),
    ],
)
def test_states_that_see_the_label_they_should_predict_are_refused(causal, inputs, tokens, sees, N, count, dtype):
    model = Attending(causal).to(dtype).eval()
    reader = Hooked(model=model, inputs=inputs, modules=["h.0", "h.1"], tokens=tokens)
    task = ls.Task(N=N, d=3)
    if not sees:
        probe(reader, task, prompts=count)
    else:
        with pytest.raises(ls.InputError, match=r"h\.0: the state at x_\{n\+1\} depends on y_\{n\+1\}.*not causal"):
            probe(reader, task, prompts=count)


def test_one_wrong_token_is_enough_to_be_refused():
    for wrong in range(7):
        tokens = [2 * n + (n == wrong) for n in range(7)]
        reader = Hooked(model=Attending().eval(), inputs=in_pairs, modules=["h.0"], tokens=tokens)
        with pytest.raises(ls.InputError, match="not causal"):
            probe(reader, TASK, prompts=16)


def test_a_layer_of_nan_is_not_taken_for_one_that_sees_labels():
    reader = Hooked(model=Attending(scale=float("nan")).eval(), inputs=in_pairs, modules=["h.0", "h.1"])
    path = probe(reader, TASK, prompts=16).path(ls.sample(TASK, 3, seed=0))
    assert path.values[0].isfinite().all()
    assert path.values[1].isnan().all()


def test_numpy_numbers_are_saved_as_numbers(tmp_path):
    options = {"prompts": np.int64(16), "batch": np.int32(8), "seed": np.int64(3)}
    fitted = unwrap(probe_each)(small_gpt(), TASK, ["all"], **options)[0]
    fitted.save(tmp_path / "probes.safetensors")
    assert Probes.load(tmp_path / "probes.safetensors", small_gpt()).facts["seed"] == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "gradient", "lr": -1.0}, r"lr = -1\.0: must be a finite number above 0"),
        ({"prompts": 10**12}, "prompts = 1000000000000: must be an integer from 1 to 100000000"),
        ({"tokens": "first"}, r"tokens = 'first': must be .*all.*last"),
    ],
)
def test_bad_values_are_refused_in_words(changes, words):
    with pytest.raises(ls.InputError, match=words):
        unwrap(probe)(small_gpt(), TASK, **{"prompts": 8, **changes})
