"""A constructed network as files: safetensors with JSON in the header, and a model that needs torch alone."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path as FilePath
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from layerstep.construction import plain
from layerstep.construction.construct import construct
from layerstep.construction.network import Construction
from layerstep.errors import FileError
from layerstep.files import write_aside


def modules(network: Construction) -> dict[str, list[Any]]:
    """The attentions and the MLPs of the network, each once, in the order of the blocks."""
    found: dict[str, dict[int, nn.Module]] = {"attention": {}, "mlp": {}}
    for block in network.blocks:
        for kind, parts in found.items():
            part = getattr(block, kind)
            if part is not None:
                parts.setdefault(id(part), part)
    return {kind: list(parts.values()) for kind, parts in found.items()}


def named_weights(network: Construction) -> dict[str, nn.Parameter]:
    """Weights by name, each module once: attentions.0.W_Q, .., mlps.0.W_in, .."""
    return {
        f"{kind}s.{index}.{name}": weight
        for kind, parts in modules(network).items()
        for index, part in enumerate(parts)
        for name, weight in part.named_parameters()
    }


def layout(network: Construction) -> dict[str, Any]:
    """What `plain` has to know beside the weights: the parts of each block, the masks, the rows of the stream."""
    parts = modules(network)
    place = {id(part): index for kind in parts.values() for index, part in enumerate(kind)}
    return {
        "blocks": [[place.get(id(block.attention)), place.get(id(block.mlp))] for block in network.blocks],
        "masks": [[[mask.dummy, mask.train, mask.query] for mask in part.masks] for part in parts["attention"]],
        "mlps": len(parts["mlp"]),
        "stream": {name: rows.start for name, rows in network.stream.items()},
        "width": network.stream.width,
    }


def save(network: Construction, path: str | os.PathLike) -> FilePath:
    """Write weights, layout, the arguments of `construct` and the certificate to one safetensors file."""
    # Copies: safetensors stores no tensor that shares memory with another.
    tensors = {name: weight.detach().cpu().clone() for name, weight in named_weights(network).items()}
    header = {
        "layout": json.dumps(layout(network)),
        "arguments": json.dumps(network.arguments),
        "certificate": json.dumps(network.certificate.to_dict()),
    }
    with write_aside(path) as aside:
        save_file(tensors, aside, metadata=header)
    return FilePath(path)


def load(path: str | os.PathLike) -> Construction:
    """The network that `save` wrote, in the precision it was saved in."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path} is no safetensors file that can be read ({error}). Save it again.") from error
    if "arguments" not in header:
        raise FileError(f"{path} holds no constructed network: its header has no `arguments`. Save it with `save`.")
    network = construct(**json.loads(header["arguments"]))
    weights = named_weights(network)
    if {name: weight.shape for name, weight in weights.items()} != {n: t.shape for n, t in tensors.items()}:
        raise FileError(f"{path} does not hold the weights that its arguments make. Save it again.")
    network.to(next(iter(tensors.values())).dtype)
    for name, weight in weights.items():
        weight.data.copy_(tensors[name])
    return network


def export(network: Construction, folder: str | os.PathLike) -> FilePath:
    """Write `model.py`, which needs torch and safetensors only, and its `weights.safetensors`."""
    folder = FilePath(folder)
    save(network, folder / "weights.safetensors")
    with write_aside(folder / "model.py") as aside:
        shutil.copyfile(str(plain.__file__), aside)
    return folder
