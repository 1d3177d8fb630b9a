"""Weights in other layouts: Hugging Face's GPT-2, and checkpoints of Garg et al.'s in-context learning code.

Their model is read-in → GPT-2 → read-out on the same interleaved tokens, so weights move without loss.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerstep.errors import FileError, as_path, require, require_count, require_kind
from layerstep.files import write_json, write_tensors
from layerstep.training.config import Model
from layerstep.training.gpt import GPT
from layerstep.training.pretrained import load

# ours: theirs. Conv1D, their linear layer, stores the transpose of its matrix.
BLOCK = {
    "norm1": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "norm2": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
HEADS = "read.safetensors"


def backbone_names(layers: int) -> dict[str, str]:
    """Names of our parameters between read-in and read-out: names in a GPT2Model."""
    names = {"positions": "wpe.weight", "norm.weight": "ln_f.weight", "norm.bias": "ln_f.bias"}
    for layer in range(layers):
        for ours, theirs in BLOCK.items():
            for part in ("weight", "bias"):
                names[f"blocks.{layer}.{ours}.{part}"] = f"h.{layer}.{theirs}.{part}"
    return names


def count_layers(names: Iterable[str], root: str) -> int:
    """How many blocks have any tensor under `root`: what one of them lacks is for `load` to say."""
    return len({name.removeprefix(root).partition(".")[0] for name in names if name.startswith(root)})


def _turned(name: str, tensor: Tensor) -> Tensor:
    """A matrix of a block changes between our [out, in] and their [in, out]."""
    return tensor.T if name.startswith("blocks.") and tensor.ndim == 2 else tensor


def save_huggingface(gpt: GPT, path: str | os.PathLike) -> Path:
    """Write a directory that `transformers.GPT2Model.from_pretrained` loads; read-in and read-out lie beside it.

    Call the loaded model with inputs_embeds = read_in(tokens) and apply read_out at the even tokens.
    """
    require_kind("gpt", gpt, GPT)
    kind = gpt.model.attention
    require(kind == "softmax", "attention", repr(kind), "'softmax'", "GPT-2 has no linear attention.")
    require(gpt.causal, "mask", repr(gpt.model.mask), "'causal'", "A GPT-2 sees nothing that comes later.")
    require(gpt.model.loops == 1, "loops", gpt.model.loops, "1", "A GPT-2 uses every layer once.")
    folder, state = as_path("path", path), gpt.state_dict()
    backbone = {theirs: _turned(ours, state[ours]) for ours, theirs in backbone_names(gpt.model.layers).items()}
    # A GPT-2 always has a vocabulary; ours is one token that is never used.
    backbone["wte.weight"] = torch.zeros(1, gpt.model.width, dtype=gpt.positions.dtype)
    write_tensors(folder / "model.safetensors", backbone, {"format": "pt"})
    write_tensors(folder / HEADS, {name: t for name, t in state.items() if name.startswith("read_")})
    write_json(
        folder / "config.json",
        {
            "architectures": ["GPT2Model"],
            "model_type": "gpt2",
            "vocab_size": 1,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "n_positions": len(gpt.positions),
            "n_embd": gpt.model.width,
            "n_layer": gpt.model.layers,
            "n_head": gpt.model.heads,
            "activation_function": "gelu_new",
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        },
    )
    return folder


def read_state(path: str | os.PathLike) -> dict[str, Tensor]:
    """The tensors of a checkpoint of torch.save, bare or under `model_state_dict`; nothing in it is executed."""
    file = as_path("path", path)
    if not file.is_file():
        raise FileError(f"{file} is not a file. Check the path.")
    try:
        found: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of any kind, on bytes that are not a checkpoint
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise FileError(f"{file} is not a file of tensors alone, and nothing else is loaded ({reason}).") from error
    if isinstance(found, dict) and isinstance(found.get("model_state_dict"), dict):
        found = found["model_state_dict"]
    if not isinstance(found, dict):
        raise FileError(f"{file} does not have the layout of a checkpoint: it holds a {type(found).__name__}.")
    return {name: tensor for name, tensor in found.items() if isinstance(name, str) and _is_plain(tensor)}


def _is_plain(value: Any) -> bool:
    """Is this a tensor that weights can be copied from?"""
    return isinstance(value, Tensor) and value.layout == torch.strided and not value.is_complex()


def load_garg(path: str | os.PathLike, heads: int) -> GPT:
    """A GPT from a checkpoint with `_read_in`, `_backbone` and `_read_out`, loaded without executing anything.

    `heads` (n_head of their configuration) is not in the weights. Both a bare state dict and their
    training state with `model_state_dict` are read.
    """
    require_count(heads=heads)
    file, found = as_path("path", path), read_state(path)
    marks = ("_read_in.weight", "_backbone.wpe.weight", "_read_out.weight")
    if any(getattr(found.get(mark), "ndim", 0) != 2 for mark in marks):
        raise FileError(f"{file} does not have the layout _read_in, _backbone, _read_out.")
    width, d = found["_read_in.weight"].shape
    T = len(found["_backbone.wpe.weight"])
    layers = count_layers(found, "_backbone.h.")
    outputs = len(found["_read_out.weight"])
    require(outputs == 1, "_read_out", f"{outputs} outputs", "1 output")
    require(T % 2 == 0 and T >= 4, "_backbone.wpe", f"{T} positions", "two for each of at least two points")
    names = {ours: f"_backbone.{theirs}" for ours, theirs in backbone_names(layers).items()}
    names |= {f"{ours}.{part}": f"_{ours}.{part}" for ours in ("read_in", "read_out") for part in ("weight", "bias")}
    gpt = GPT(Model(layers=layers, heads=heads, width=width), d=d, N=T // 2 - 1)
    there = {ours: found[theirs] for ours, theirs in names.items() if isinstance(found.get(theirs), Tensor)}
    load(gpt, {ours: _turned(ours, tensor) for ours, tensor in there.items()}, str(file))
    return gpt.eval()
