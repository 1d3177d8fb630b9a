"""Edits: one verb reads and writes any model."""

import re
from collections import namedtuple

import pytest
import torch
from torch import nn

import layerstep as ls
from layerstep.measurement.reading.hooks import EditableReader, GPTReader, Hooked
from layerstep.training.gpt import interleave

TASK = ls.Task(inputs="sphere", d=3, N=6)
PROMPTS = ls.sample(TASK, 4, seed=0)
Output = namedtuple("Output", "hidden extra")


def gpt(layers=3):
    return ls.GPT(ls.Model(layers=layers, heads=2, width=16), d=3, N=6).initialise(1).double().eval()


def hooked(model, modules, **given):
    return Hooked(model=model, inputs=lambda p: interleave(p.x, p.y), modules=modules, **given)


class Wrapped(nn.Module):
    """The blocks of a GPT with outputs of another kind, changed in place after the hook."""

    def __init__(self, model, wrap):
        super().__init__()
        self.gpt, self.wrap = model, wrap
        self.h = nn.ModuleList(Shell(block, wrap) for block in model.blocks)

    def forward(self, tokens):
        x = next(self.gpt.stream(tokens))
        for block in self.h:
            made = block(x)
            x = made[0] if isinstance(made, tuple) else made
            x = x.mul_(1.0)
        return self.gpt.head(x)


class Shell(nn.Module):
    def __init__(self, block, wrap):
        super().__init__()
        self.block, self.wrap = block, wrap

    def forward(self, x):
        return self.wrap(self.block(x))


class Looped(nn.Module):
    def __init__(self, model, times):
        super().__init__()
        self.gpt, self.times = model, times
        self.block = model.blocks[0]

    def forward(self, tokens):
        x = next(self.gpt.stream(tokens))
        for _ in range(self.times):
            x = self.block(x)
        return self.gpt.head(x)


WRAPS = {"tensor": lambda x: x, "tuple": lambda x: (x, None), "named tuple": lambda x: Output(x, 1)}


def readers():
    yield GPTReader(gpt())
    yield GPTReader(gpt(), attention=True)
    yield hooked(gpt(), ["blocks.0", "blocks.1", "blocks.2"])
    for wrap in WRAPS.values():
        yield hooked(Wrapped(gpt(), wrap).eval(), ["h.0", "h.1", "h.2"])
    yield hooked(Looped(gpt(), 3).eval(), ["block"] * 3)


@pytest.mark.parametrize("reader", list(readers()), ids=lambda reader: f"{reader.sites[-1]}")
def test_an_edit_fires_once_changes_what_follows_and_nothing_before(reader):
    assert isinstance(reader, EditableReader)
    plain = reader.run(PROMPTS)
    assert len(plain) == len(reader.sites)
    for site in reader.sites:
        seen = []
        same = reader.run(PROMPTS, edits={site: lambda h, seen=seen: seen.append(h) or h})
        assert [h.shape for h in seen] == [(4, 14, 16)]
        assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))
        assert torch.equal(plain.output, same.output)
    for index, site in enumerate(reader.sites):
        changed = reader.run(PROMPTS, edits={site: lambda h: h.mul_(2)})  # in place: the model's own is not touched
        assert torch.equal(changed[site], 2 * plain[site])
        assert all(torch.equal(changed[k], plain[k]) for k in range(index))
        assert not any(torch.equal(changed[k], plain[k]) for k in range(index + 1, len(plain)))
        assert not torch.equal(changed.output, plain.output)
    assert torch.equal(reader.run(PROMPTS).output, plain.output)
    assert not any(module._forward_hooks for module in reader.model.modules())


def test_an_edit_of_a_gpt_is_the_same_through_both_readers():
    model = gpt()
    noise = torch.randn(4, 14, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours = GPTReader(model).run(PROMPTS, edits={"block 2": lambda h: h + noise})
    theirs = hooked(model, ["blocks.1"]).run(PROMPTS, edits={"blocks.1": lambda h: h + noise})
    assert torch.equal(ours["block 2"], theirs["blocks.1"])
    assert torch.equal(ours.output, theirs.output)


def test_writing_the_state_of_another_prompt_at_the_last_site_gives_its_prediction():
    reader, other = GPTReader(gpt()), ls.sample(TASK, 4, seed=9)
    source = reader.run(other)
    moved = reader.run(PROMPTS, edits={"block 3": lambda h: source["block 3"]})
    assert torch.equal(moved.output, source.output)


def test_gradients_flow_through_an_edit():
    for reader in (GPTReader(gpt()), hooked(gpt(), ["blocks.0", "blocks.1", "blocks.2"])):
        site = reader.sites[-3]
        shift = torch.zeros(4, 14, 16, dtype=torch.float64, requires_grad=True)
        reader.run(PROMPTS, edits={site: lambda h, shift=shift: h + shift}).output.sum().backward()
        with torch.no_grad():
            up, down = (reader.run(PROMPTS, edits={site: lambda h, s=s: h + s}).output.sum() for s in (1e-6, -1e-6))
        assert torch.isclose(shift.grad.sum(), (up - down) / 2e-6, rtol=1e-5)


def test_x_tokens_and_label_tokens_are_where_the_labels_say():
    reader = GPTReader(gpt())
    other = ls.Prompts(PROMPTS.x, PROMPTS.y + 1)
    changed = (reader.run(other)[0] != reader.run(PROMPTS)[0]).any(-1).any(0)
    examples = torch.zeros(14, dtype=torch.bool)
    examples[reader.examples] = True
    assert torch.equal(changed, examples)
    assert torch.arange(14)[reader.queries].tolist() == [0, 2, 4, 6, 8, 10, 12]


class Pairs(nn.Module):
    """An open mask by hand: every pair is a token, the query is last and has no label; the answer is a mean."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Identity()

    def forward(self, tokens):
        h = self.mix(tokens)
        return h.mean(1, keepdim=True)[..., -1] + h[:, -1:, 0]


def test_an_open_mask_is_read_one_pass_per_context_length():
    def tokens(prompts):
        label = prompts.y.clone()
        label[:, -1] = 0
        return torch.cat([prompts.x, label[..., None]], -1)

    reader = Hooked(model=Pairs().eval(), inputs=tokens, modules=["mix"], mask="open")
    (states,) = reader.states(PROMPTS)
    assert torch.equal(states, torch.cat([PROMPTS.x, torch.zeros(4, 7, 1, dtype=torch.float64)], -1))
    recording = reader.run(PROMPTS, edits={"mix": lambda h: 2 * h})
    assert recording[0].shape == (4, 7, 4)
    mean = PROMPTS.y[:, :-1].sum(1) / 7
    assert torch.allclose(reader.predictions(recording)[:, 0], 2 * (mean + PROMPTS.x[:, -1, 0]))


def test_a_readout_makes_predictions_of_what_the_model_returns():
    model = gpt()
    reader = hooked(model, ["blocks.2"], readout=lambda output: 3 * output)
    recording = reader.run(PROMPTS)
    assert torch.equal(reader.predictions(recording), 3 * recording.output)


def broken(changes):
    return lambda: GPTReader(gpt()).run(PROMPTS, edits=changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (broken({"block 9": lambda h: h}), "edits: the reader has no site 'block 9'. Did you mean block 3"),
        (broken({"block 1": lambda h: h[:, ::2]}), "one that returns [4, 7, 16]: must be a function that returns"),
        (broken({"block 1": lambda h: None}), "Return the state after changing it in place."),
        (broken({"block 1": 3}), "a function from the state [B, T, W] to the new one"),
        (broken([("block 1", abs)]), "edits = a list"),
        (lambda: GPTReader(gpt()).run(PROMPTS)["block 7"], "no site 'block 7'"),
        (lambda: hooked(gpt().train(), ["blocks.0"]).run(PROMPTS), "is in training mode"),
        (lambda: hooked(torch.compile(gpt()), ["blocks.0"]).run(PROMPTS), "no module 'blocks.0'"),
        (lambda: hooked(torch.compile(gpt()), ["_orig_mod.blocks.0"]).run(PROMPTS), "is compiled"),
        (lambda: hooked(Looped(gpt(), 2).eval(), ["block"]).run(PROMPTS), "calls of block in one pass = 2"),
        (lambda: ls.probe(torch.compile(gpt()), TASK), "is compiled"),
        (lambda: hooked(gpt(), ["blocks.0"], mask="all"), "mask = 'all': must be one of causal, open"),
        (lambda: hooked(gpt(), ["blocks.0"], examples="y"), "examples = 'y': must be a slice"),
    ],
)
def test_mistakes_are_sentences(make, message, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    with pytest.raises(ls.InputError, match=re.escape(message)):
        make()
