"""The Python of docs/training.md runs as it is printed, with a run of seconds in place of the paper's."""

import dataclasses

import torch

import layerstep as ls
from layerstep.training.huggingface import backbone_names


def garg_checkpoint(gpt: ls.GPT) -> dict[str, torch.Tensor]:
    """The weights of `gpt` under the names of Garg et al.'s code."""
    names = backbone_names(gpt.model.layers)
    state = {}
    for ours, tensor in gpt.state_dict().items():
        turned = tensor.T if ours.startswith("blocks.") and tensor.ndim == 2 else tensor
        state[f"_backbone.{names[ours]}" if ours in names else f"_{ours}"] = turned.contiguous()
    return state


def test_the_examples_run(examples, tmp_path, monkeypatch):
    blocks = examples("docs/training.md")
    assert len(blocks) == 2
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    trained = []

    def short(run: ls.Run, out: str) -> ls.GPT:
        """What `ls.train` does, on the same task and for one step of a narrow model."""
        trained.append(run)
        small = dataclasses.replace(run, model=ls.Model(layers=1, heads=8, width=16), steps=1, batch=2)
        return train(small, out, device="cpu")

    train = ls.train
    monkeypatch.setattr(ls, "train", short, raising=False)
    names = {}
    exec(blocks[0], names)
    assert trained[0].steps == 500_000
    assert names["prediction"].shape == (64, 41)
    torch.save(garg_checkpoint(names["gpt"]), tmp_path / "models" / "state.pt")
    weights = {name: tensor.clone() for name, tensor in names["gpt"].state_dict().items()}
    exec(blocks[1], names)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in names["gpt"].state_dict().items())
    assert (tmp_path / "export" / "model.safetensors").is_file()
    half = ls.GPT.from_pretrained(tmp_path / "half")
    assert torch.equal(half.positions, weights["positions"].half().float())
