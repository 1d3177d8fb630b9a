"""Saved models come back bit for bit; damaged and foreign directories are refused in words."""

import errno
import json
import pkgutil

import numpy as np
import pytest
import torch

from layerstep.errors import FileError, InputError
from layerstep.files import write_tensors
from layerstep.tasks import Task, sample
from layerstep.training import GPT, Model


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


OLD, NEW = {"shard_bytes": 4000}, {"shard_bytes": 4000, "about": {"step": 8}}


def fail_at(monkeypatch, count: int, error: BaseException, *places: str) -> None:
    """Raise `error` at the call number `count` of all these functions together."""
    left = [count]

    def counted(function):
        def call(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0:
                raise error
            return function(*args, **kwargs)

        return call

    for place in places:
        owner, name = place.rsplit(".", 1)
        owner = pkgutil.resolve_name(owner.replace("pathlib.Path", "pathlib:Path"))
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


@pytest.mark.parametrize("old", [{}, OLD], ids=["one file", "shards"])
@pytest.mark.parametrize("new", [{}, NEW], ids=["one file", "shards"])
def test_a_disk_that_fills_at_any_write_leaves_the_old_model_whole(gpt, tmp_path, monkeypatch, old, new):
    """Every write and every flush may be the one that fails; only when all have succeeded is anything changed."""
    gpt.save_pretrained(tmp_path, **old)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    full, refused = OSError(errno.ENOSPC, "No space left on device"), 0
    other = GPT(gpt.model, gpt.d, gpt.N).initialise(8)
    for count in range(100):
        with monkeypatch.context() as patch:
            fail_at(patch, count, full, "safetensors.torch.save_file", "pathlib.Path.write_text", "os.fsync")
            try:
                other.save_pretrained(tmp_path, **new)
                break
            except FileError as error:
                words = str(error)
        assert "No space left on device. What was there before is unchanged" in words
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
        refused += 1
    assert refused >= 4  # weights and config, written and flushed
    again = GPT.from_pretrained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), again.parameters(), strict=True))


def test_a_kill_between_renames_leaves_no_mixture_of_two_models(gpt, tmp_path, monkeypatch):
    gpt.save_pretrained(tmp_path, **OLD)
    other = GPT(gpt.model, gpt.d, gpt.N).initialise(8)
    for count in range(100):
        with monkeypatch.context() as patch:
            fail_at(patch, count, KeyboardInterrupt(), "os.replace")
            try:
                other.save_pretrained(tmp_path, **NEW)
                break
            except KeyboardInterrupt:
                pass
        with pytest.raises(FileError, match="holds no weights"):
            GPT.from_pretrained(tmp_path)
    assert count > 3
    GPT.from_pretrained(tmp_path)


def test_a_model_is_not_saved_onto_a_file(gpt, tmp_path, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="file is a file, not a directory"):
        gpt.save_pretrained(tmp_path / "file")
    with pytest.raises(InputError, match="path = 5: must be the path of a file or directory"):
        gpt.save_pretrained(5)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("change", ["integers", "two precisions", "nothing"])
def test_damaged_weights_are_refused_in_words(gpt, tmp_path, change):
    gpt.save_pretrained(tmp_path)
    state = gpt.state_dict()
    if change == "integers":
        state = {name: t.long() for name, t in state.items()}
    elif change == "two precisions":
        state["positions"] = state["positions"].half()
    write_tensors(tmp_path / "model.safetensors", {} if change == "nothing" else state)
    with pytest.raises(FileError, match=r"holds no tensors|not one precision"):
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
        ("truncated", "not a whole safetensors file"),
        ("missing", "is not there"),
        ("config", "does not describe a layerstep-gpt"),
        ("half a config", "not readable JSON"),
        ("shape", "12 tensors do not fit the model, first blocks.2"),
        ("key", "does not describe a model: model keys = depth"),
        ("width", "does not describe a model"),
        ("type", "does not describe a model: d = 'three'"),
        ("model is a list", r"does not describe a model: model = \[1, 2\]"),
        ("N", "config.json has no 'N'"),
        ("model", "config.json has no 'model'"),
        ("index", "not an index of shards"),
        ("list", "not an index of shards"),
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


def test_a_path_that_is_not_a_directory_is_refused_in_words(tmp_path):
    with pytest.raises(FileError, match="is not a directory"):
        GPT.from_pretrained(tmp_path / "nothing")
