"""Saved models come back bit for bit; damaged and foreign folders are refused in words."""

import json

import numpy as np
import pytest
import torch

from layerstep.errors import FileError, InputError
from layerstep.tasks import Task, sample
from layerstep.training import GPT, Model, pretrained


@pytest.fixture
def gpt():
    return GPT(Model(layers=2, heads=2, width=16, attention="linear-mean"), d=3, N=6).initialise(7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saved_model_comes_back_bit_for_bit(gpt, tmp_path, dtype):
    gpt.to(dtype).save_pretrained(tmp_path, about={"step": 3})
    again = GPT.from_pretrained(tmp_path)
    assert again.model == gpt.model
    for name, tensor in gpt.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    prompts = sample(Task(d=3, N=6), 2, seed=0)
    assert torch.equal(gpt(prompts), again(prompts))
    assert GPT.from_pretrained(tmp_path, dtype=torch.float64).positions.dtype == torch.float64


def test_a_model_sized_by_numpy_is_saved_too(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    shape = Model(layers=np.int64(1), heads=np.int64(2), width=np.int64(16))
    GPT(shape, d=np.int64(3), N=np.int64(6)).save_pretrained(tmp_path)
    again = GPT.from_pretrained(tmp_path)
    assert (again.model, again.d, again.N) == (Model(layers=1, heads=2, width=16), 3, 6)


def test_half_precision_in_shards_is_the_rounded_model(gpt, tmp_path):
    gpt.save_pretrained(tmp_path, dtype=torch.float16, shard_bytes=4000)
    files = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(files) > 2
    assert all(file.stat().st_size < 6000 for file in files)
    again = GPT.from_pretrained(tmp_path)
    for name, tensor in gpt.state_dict().items():
        assert torch.equal(tensor.half().float(), again.state_dict()[name])


def test_a_save_that_is_cut_short_leaves_no_mixture_of_two_models(gpt, tmp_path, monkeypatch):
    gpt.save_pretrained(tmp_path, shard_bytes=4000)
    write, written = pretrained.write_tensors, []

    def once(path, *rest):
        if written:
            raise KeyboardInterrupt
        written.append(write(path, *rest))

    monkeypatch.setattr(pretrained, "write_tensors", once)
    with pytest.raises(KeyboardInterrupt):
        gpt.initialise(8).save_pretrained(tmp_path, shard_bytes=4000)
    with pytest.raises(FileError, match="holds no weights"):
        GPT.from_pretrained(tmp_path)


def damage(folder, kind):
    weights, config = folder / "model.safetensors", folder / "config.json"
    if kind == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif kind == "missing":
        weights.unlink()
    elif kind == "config":
        config.write_text('{"model_type": "gpt2"}')
    elif kind == "half a config":
        config.write_text(config.read_text()[:20])
    elif kind == "index":
        (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../elsewhere"}}')
    elif kind == "list":
        (folder / "model.safetensors.index.json").write_text('["model.safetensors"]')
    else:
        about = json.loads(config.read_text())
        if kind in about:
            del about[kind]
        elif kind == "type":
            about["d"] = "three"
        elif kind == "model is a list":
            about["model"] = [1, 2]
        else:
            about["model"] |= {"shape": {"layers": 3}, "key": {"depth": 3}, "width": {"width": None}}[kind]
        config.write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("truncated", "no whole safetensors file"),
        ("missing", "is not there"),
        ("config", "does not describe a layerstep-gpt"),
        ("half a config", "not readable JSON"),
        ("shape", "12 tensors do not fit the model, first blocks.2"),
        ("key", "describes no model: model keys = depth"),
        ("width", "describes no model"),
        ("type", "describes no model: d = 'three'"),
        ("model is a list", r"describes no model: model = \[1, 2\]"),
        ("N", "config.json has no 'N'"),
        ("model", "config.json has no 'model'"),
        ("index", "no index of shards"),
        ("list", "no index of shards"),
    ],
)
def test_damaged_and_foreign_folders_are_refused_in_words(gpt, tmp_path, kind, words):
    gpt.save_pretrained(tmp_path)
    damage(tmp_path, kind)
    with pytest.raises(FileError, match=words):
        GPT.from_pretrained(tmp_path)


@pytest.mark.parametrize("device", ["foo", "cuda:99", "cpu:x"])
def test_a_device_that_is_not_there_is_refused_in_words(gpt, tmp_path, device):
    gpt.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"device = .*: must be"):
        GPT.from_pretrained(tmp_path, device=device)


def test_a_path_that_is_no_folder_is_refused_in_words(tmp_path):
    with pytest.raises(FileError, match="is no folder"):
        GPT.from_pretrained(tmp_path / "nothing")
