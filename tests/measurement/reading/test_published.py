"""Published layouts: folders rebuilt in their format, their forward passes written out here from the tensors alone."""

import contextlib
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import layerstep as ls
from layerstep.measurement.reading.published import read_yaml
from oracles.published import PUBLISHED, encoder_state, folder_of, gpt_state

PROMPTS = ls.sample(ls.LinearRegression(d=3, N=8), 5, seed=1, dtype=torch.float32)


def backbone(state, root, turned, x, heads=2):
    """GPT-2 on embeddings, written out."""
    T, W = x.shape[1:]

    def apply(name, h):
        weight = state[f"{name}.weight"]
        return h @ (weight if turned else weight.T) + state[f"{name}.bias"]

    def normed(name, h):
        return F.layer_norm(h, (W,), state[f"{name}.weight"], state[f"{name}.bias"])

    x = x + state[f"{root}wpe.weight"][:T]
    k = 0
    while f"{root}h.{k}.ln_1.weight" in state:
        block = f"{root}h.{k}."
        q, key, v = (
            part.unflatten(-1, (heads, -1)).transpose(1, 2)
            for part in apply(f"{block}attn.c_attn", normed(f"{block}ln_1", x)).split(W, dim=-1)
        )
        score = (q @ key.mT / math.sqrt(W // heads)).masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        x = x + apply(f"{block}attn.c_proj", (score.softmax(-1) @ v).transpose(1, 2).flatten(2))
        x = x + apply(
            f"{block}mlp.c_proj", F.gelu(apply(f"{block}mlp.c_fc", normed(f"{block}ln_2", x)), approximate="tanh")
        )
        k += 1
    return normed(f"{root}ln_f", x)


def embedded(state, prompts):
    y = torch.cat([prompts.y[..., None], torch.zeros(*prompts.x.shape[:2], prompts.d - 1)], dim=-1)
    tokens = torch.stack([prompts.x, y], dim=2).flatten(1, 2)
    return tokens @ state["_read_in.weight"].T + state["_read_in.bias"]


def read_out(state, h):
    return (h @ state["_read_out.weight"].T + state["_read_out.bias"])[:, ::2, 0]


@pytest.mark.parametrize(
    ("root", "turned", "positions"), [("_backbone.", True, 26), ("_backbone.transformer.", False, 27)]
)
def test_a_folder_of_garg_et_al_or_of_yang_et_al_gives_their_model_and_its_task(tmp_path, root, turned, positions):
    state = gpt_state(root, turned, positions)
    model, task = ls.load(folder_of(tmp_path, state))
    assert task == ls.LinearRegression(d=3, N=8)  # the curriculum ends with nine points
    with torch.no_grad():
        theirs = read_out(state, backbone(state, root, turned, embedded(state, PROMPTS)))
        torch.testing.assert_close(model(PROMPTS), theirs, rtol=1e-5, atol=1e-5)
    reader = ls.GPTReader(model, normed=True)
    recording = reader.run(PROMPTS)
    ended = backbone(state, root, turned, embedded(state, PROMPTS))
    torch.testing.assert_close(recording[-1][:, ::2], ended[:, ::2], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(reader.predictions(recording), theirs, rtol=1e-5, atol=1e-5)
    assert reader.sites[-1] == "final norm"
    again, _ = ls.load(tmp_path / "state.pt")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("form", ["z=f(x+z)", "z=f(x*z)"])
def test_a_looped_transformer_is_read_after_every_loop(tmp_path, form):
    root = "_backbone.transformer."
    state = gpt_state(root, False, 27, layers=1)
    folder = folder_of(tmp_path, state, family="gpt2_loop", more=f"  loop_func: {form}\n", layers=1)
    reader, task = ls.load(folder, loops=3)
    x = embedded(state, PROMPTS)
    z, made = (torch.zeros_like(x) if "+" in form else torch.ones_like(x)), []
    for _ in range(3):
        z = backbone(state, root, False, x + z if "+" in form else x * z)
        made.append(z)
    recording = reader.run(PROMPTS)
    for ours, theirs in zip(recording, made, strict=True):  # the last label is not the model's to see
        torch.testing.assert_close(ours[:, :-1], theirs[:, :-1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(reader.predictions(recording), read_out(state, z), rtol=1e-5, atol=1e-5)
    path = ls.probe(reader, task, prompts=64, seed=0).path(ls.sample(task, 8, seed=2))
    assert path.values.shape == (3, 8, 8)


@pytest.mark.parametrize(("activation", "mean"), [("relu", True), ("softmax", False)])
def test_an_encoder_of_bai_et_al_answers_every_context_length(tmp_path, activation, mean):
    W, layers = 16, 2
    state = encoder_state(layers, 3, W)
    more = f"  encoder_activation: {activation}\n  normalize_attn: {str(mean).lower()}\n"
    reader, _ = ls.load(folder_of(tmp_path, state, family="EncoderTF", more=more))

    def theirs(n):
        y = torch.cat([PROMPTS.y[:, :n], torch.zeros(PROMPTS.B, 1)], dim=1)[..., None]
        h = torch.cat([PROMPTS.x[:, : n + 1], y], dim=-1) @ state["_read_in.weight"].T + state["_read_in.bias"]
        for k in range(layers):
            q, key, v = (h @ state[f"{name}.{k}.weight"].T for name in ("_queries", "_keys", "_values"))
            score = q @ key.mT
            weights = score.clamp_min(0) if activation == "relu" else score.softmax(-1)
            h = h + (weights / (n + 1) if mean else weights) @ v
            h = F.layer_norm(h, (W,), state[f"_lns_1.{k}.weight"], state[f"_lns_1.{k}.bias"])
            inner = (h @ state[f"_mlps.{k}.0.weight"].T + state[f"_mlps.{k}.0.bias"]).clamp_min(0)
            h = h + inner @ state[f"_mlps.{k}.2.weight"].T + state[f"_mlps.{k}.2.bias"]
            h = F.layer_norm(h, (W,), state[f"_lns_2.{k}.weight"], state[f"_lns_2.{k}.bias"])
        return h[:, -1]

    states = reader.states(PROMPTS)
    assert len(states) == layers
    wanted = torch.stack([theirs(n) for n in range(PROMPTS.N + 1)], dim=1)
    torch.testing.assert_close(states[-1], wanted, rtol=1e-5, atol=1e-5)
    said = reader.predictions(reader.run(PROMPTS))
    torch.testing.assert_close(
        said[:, 0], wanted[:, -1] @ state["_read_out.weight"][0] + state["_read_out.bias"], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("task", "kwargs", "wanted"),
    [
        ("noisy_linear_regression", "\n    noise_std: 0.5", ls.LinearRegression(d=3, N=8, sigma=0.5)),
        ("sparse_linear_regression", "\n    sparsity: 2", ls.LinearRegression(d=3, N=8, prior="sparse:2")),
    ],
)
def test_the_task_is_that_of_the_configuration(tmp_path, task, kwargs, wanted):
    folder = folder_of(tmp_path, gpt_state("_backbone.", True, 26), task=task, kwargs=kwargs)
    assert ls.load(folder)[1] == wanted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": "relu_2nn_regression"}, r"task = 'relu_2nn_regression' is not linear regression.*task=\.\.\."),
        ({"family": "lstm"}, r"family = 'lstm': must be gpt2, gpt2_loop or EncoderTF\. Wrap the model in ls\.Hooked"),
        ({"heads": "many"}, "`n_head` is 'many', which must be a number"),
        ({"state": {"weights": torch.zeros(2)}}, "does not have the layout _read_in, _backbone, _read_out"),
        ({"state": {"weights": torch.zeros(2)}, "family": "EncoderTF"}, "does not have the layout _read_in, _queries"),
        (
            {"state": {"weights": torch.zeros(2)}, "family": "gpt2_loop"},
            "layout of its family: _read_in.weight is missing",
        ),
    ],
)
def test_what_is_not_such_a_folder_is_refused_in_words(tmp_path, change, words):
    state = change.pop("state", None) or gpt_state("_backbone.", True, 26)
    with pytest.raises(ls.FileError, match=words):
        ls.load(folder_of(tmp_path, state, **change))


def test_a_folder_without_a_configuration_or_weights_says_what_is_missing(tmp_path):
    with pytest.raises(ls.FileError, match=r"holds no config\.yaml.*load_garg\(file, heads=\.\.\.\)"):
        ls.load(tmp_path)
    folder_of(tmp_path, {})
    (tmp_path / "state.pt").unlink()
    with pytest.raises(ls.FileError, match=r"holds no state\.pt or model\.pt"):
        ls.load(tmp_path)


@pytest.mark.parametrize("layout", PUBLISHED)
def test_a_checkpoint_without_a_tensor_or_with_another_is_refused_in_words(tmp_path, layout):
    folder = PUBLISHED[layout](tmp_path)
    whole = torch.load(folder / "state.pt")["model_state_dict"]
    needed = [name for name in whole if not name.endswith(("wte.weight", "masked_bias", "attn.bias"))]
    for name in needed:
        for other in (None, "x", 3, torch.ones(()), torch.ones(2, 3, 4), torch.eye(16).to_sparse()):
            torch.save({name: other} | {each: whole[each] for each in whole if each != name}, folder / "state.pt")
            with pytest.raises(ls.LayerstepError):
                ls.load(folder)
    torch.save(whole | {3: torch.ones(1)}, folder / "state.pt")
    ls.load(folder)


@pytest.mark.parametrize("value", ["", "3", "-1", "x", "nan", "{}", "true", "noisy_linear_regression", "\n    end: x"])
def test_a_configuration_with_another_value_is_read_or_refused_in_words(tmp_path, value):
    config = PUBLISHED["garg"](tmp_path) / "config.yaml"
    lines = config.read_text().splitlines()
    for number, line in enumerate(lines):
        config.write_text("\n".join([*lines[:number], f"{line.partition(':')[0]}: {value}", *lines[number + 1 :]]))
        with contextlib.suppress(ls.LayerstepError):
            ls.load(tmp_path)


@pytest.mark.parametrize("layout", PUBLISHED)
def test_a_published_model_is_identified_with_its_task(tmp_path, layout):
    found = ls.identify(*ls.load(PUBLISHED[layout](tmp_path)), prompts=64, fit=32, cache=False)
    assert found.behaviour is not None
    assert found.interventions is not None or "interventions" in found.untested
    assert "classesambiguous" not in str(found)


@pytest.mark.parametrize("wrong", [{"task": torch.ones(2, 2)}, {"task": np.zeros((0, 2))}, {"loops": 0}])
def test_arguments_of_another_kind_are_refused(tmp_path, wrong):
    with pytest.raises(ls.InputError, match=next(iter(wrong))):
        ls.load(PUBLISHED["looped"](tmp_path), **wrong)


def test_a_model_of_ours_comes_with_its_task():
    gpt, task = ls.load(ls.SHIPPED["tiny"])
    assert isinstance(gpt, ls.GPT)
    assert task == ls.PRESETS["tiny"].task


def test_configurations_are_read_as_data_alone(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(
        "a:\n  b: 1\n  c:\n    d: 2.5  # words\n  e: true\nf: !!python/object:os.system ls\ng: 'x'\nh: null\n"
    )
    assert read_yaml(file) == {
        "a": {"b": 1, "c": {"d": 2.5}, "e": True}, "f": "!!python/object:os.system ls", "g": "x", "h": None
    }  # fmt: skip


def test_token_makers_place_what_the_papers_say():
    x, y = PROMPTS.x, PROMPTS.y
    narrow, wide = ls.interleaved()(PROMPTS), ls.interleaved(width=4)(PROMPTS)
    assert torch.equal(narrow[:, ::2], x)
    assert torch.equal(narrow[:, 1:-1:2, 0], y[:, :-1])
    assert float(narrow[:, 1::2, 1:].abs().max()) == 0 == float(narrow[:, -1].abs().max())
    assert torch.equal(wide[:, ::2, 1:], x)
    assert float(wide[:, ::2, 0].abs().max()) == 0
    together = ls.pairs(sign=-1)(PROMPTS)
    assert torch.equal(together[..., :3], x)
    assert torch.equal(together[:, :-1, 3], -y[:, :-1])
    assert float(together[:, -1, 3].abs().max()) == 0
    with pytest.raises(ls.InputError, match="width = 9: must be 3 or 4"):
        ls.interleaved(width=9)(PROMPTS)


#: Published error / d of Garg et al.'s pretrained linear model, from the metrics.json beside it, by number of examples.
GARG = {0: 0.982, 5: 0.735, 10: 0.513, 19: 0.0638, 20: 0.0207, 21: 0.0077, 25: 0.0016, 30: 0.00083, 40: 0.00058}


@pytest.mark.skipif("GARG_MODELS" not in os.environ, reason="GARG_MODELS names no folder with the published models")
def test_the_published_weights_have_the_published_errors():
    model, task = ls.load(Path(os.environ["GARG_MODELS"]) / "linear_regression" / "pretrained")
    prompts = ls.sample(task, 1280, seed=0, dtype=torch.float32)
    with torch.no_grad():
        error = (model(prompts) - prompts.y).square().mean(0) / task.d
    for n, published in GARG.items():
        assert math.isclose(float(error[n]), published, rel_tol=0.3), (n, float(error[n]), published)
