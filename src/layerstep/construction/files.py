"""A constructed network as files: safetensors with JSON in the header, and a model that needs torch alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from layerstep.construction import standalone
from layerstep.errors import FileError, InputError, as_path
from layerstep.files import read_tensors, write_aside, write_tensors

if TYPE_CHECKING:
    from layerstep.construction.network import Construction


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
    """What `standalone` has to know beside the weights: parts of each block, masks, rows of the stream, centring."""
    parts = modules(network)
    place = {id(part): index for kind in parts.values() for index, part in enumerate(kind)}
    return {
        "blocks": [[place.get(id(block.attention)), place.get(id(block.mlp))] for block in network.blocks],
        "masks": [[[mask.dummy, mask.train, mask.query] for mask in part.masks] for part in parts["attention"]],
        "mlps": len(parts["mlp"]),
        "stream": {name: rows.start for name, rows in network.stream.items()},
        "width": network.stream.width,
        "centre": network.scheme.flexible,
        "scales": network.problem.scales,
    }


def save(network: Construction, path: str | os.PathLike) -> Path:
    """Write weights, layout, the arguments of `construct` and the certificate to one safetensors file."""
    # Copies: safetensors stores no tensor that shares memory with another.
    tensors = {name: weight.detach().clone() for name, weight in named_weights(network).items()}
    header = {
        "layout": layout(network),
        "arguments": network.arguments,
        "certificate": network.certificate.to_dict(),
    }
    return write_tensors(as_path("path", path), tensors, header)


def load(path: str | os.PathLike) -> Construction:
    """The network that `save` wrote, in the precision it was saved in."""
    from layerstep.construction.build import construct  # which makes a network, as this does

    tensors, header = read_tensors(as_path("path", path))
    arguments = header.get("arguments")
    if not isinstance(arguments, dict):
        raise FileError(
            f"{path} is not a constructed network: its header has no `arguments`. Save one with `network.save(path)`."
        )
    try:
        network = construct(**arguments)
    except (TypeError, InputError) as error:
        raise FileError(f"{path} has arguments that do not make a network ({error}). Save it again.") from error
    weights = named_weights(network)
    if {name: weight.shape for name, weight in weights.items()} != {n: t.shape for n, t in tensors.items()}:
        raise FileError(f"{path} has other weights than its arguments make. Save it again.")
    network.to(next(iter(tensors.values())).dtype)
    for name, weight in weights.items():
        weight.data.copy_(tensors[name])
    return network


def export(network: Construction, folder: str | os.PathLike) -> Path:
    """Write `model.py`, which needs torch and safetensors only, and its `weights.safetensors`."""
    folder = as_path("folder", folder)
    save(network, folder / "weights.safetensors")
    with write_aside(folder / "model.py") as aside:
        shutil.copyfile(str(standalone.__file__), aside)
    return folder
