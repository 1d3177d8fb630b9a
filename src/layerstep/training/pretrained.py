"""Weights in the layout of the Hugging Face hub: config.json and model.safetensors, whole or in shards. No pickle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from layerstep.errors import FileError, InputError, as_device, require, require_count
from layerstep.files import read_json, read_tensors, write_json, write_tensors
from layerstep.training.config import Model

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
KIND = "layerstep-gpt"
Saved = TypeVar("Saved", bound="Pretrained")


def shards(tensors: dict[str, Tensor], shard_bytes: int) -> list[dict[str, Tensor]]:
    """Tensors in order, in groups of at most `shard_bytes` (a tensor larger than that is a group alone)."""
    groups: list[dict[str, Tensor]] = [{}]
    for name, tensor in tensors.items():
        if groups[-1] and sum(t.nbytes for t in groups[-1].values()) + tensor.nbytes > shard_bytes:
            groups.append({})
        groups[-1][name] = tensor
    return groups


class Pretrained(nn.Module):
    """What a model of (Model, d, N) needs to be saved and loaded."""

    model: Model
    d: int
    N: int

    def save_pretrained(
        self,
        path: str | os.PathLike,
        *,
        dtype: torch.dtype | None = None,
        shard_bytes: int | None = None,
        about: dict[str, Any] | None = None,
    ) -> Path:
        """Write config.json and model.safetensors to the folder `path`.

        dtype=torch.float16 halves the file; `shard_bytes` splits it. `about` is kept in config.json.
        """
        folder = Path(path)
        _require_real(dtype)
        if shard_bytes is not None:
            require_count(shard_bytes=shard_bytes)
        state = {name: t.to(dtype) for name, t in self.state_dict().items()}
        groups = shards(state, shard_bytes) if shard_bytes else [state]
        names = [f"model-{i:05}-of-{len(groups):05}.safetensors" for i in range(1, len(groups) + 1)]
        if len(groups) == 1:
            names = [WEIGHTS]
        # Without its index a folder half written has no weights; with one that stays it would have old and new ones.
        (folder / INDEX).unlink(missing_ok=True)
        for name, group in zip(names, groups, strict=True):
            write_tensors(folder / name, group, {"format": "pt"})
        if len(groups) > 1:
            weight_map = {key: name for name, group in zip(names, groups, strict=True) for key in group}
            total = sum(t.nbytes for t in state.values())
            write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
        config = {"model_type": KIND, "model": self.model.to_dict(), "d": self.d, "N": self.N}
        write_json(folder / CONFIG, config | ({"about": about} if about else {}))
        # Weights saved there before, in another number of files, would be read in place of these.
        for file in [folder / WEIGHTS, *folder.glob("model-*-of-*.safetensors")]:
            if file.name not in names:
                file.unlink(missing_ok=True)
        return folder

    @classmethod
    def from_pretrained(
        cls: type[Saved],
        path: str | os.PathLike,
        *,
        dtype: torch.dtype | None = None,
        device: str | torch.device = "cpu",
    ) -> Saved:
        """The model saved in the folder `path`, in its own precision unless `dtype` says otherwise.

        Weights stored in half precision come back as float32.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise FileError(f"{folder} is no folder. save_pretrained and `layerstep train` write such folders.")
        place = as_device(device)
        _require_real(dtype)
        inside = sorted(config.parent.name for config in folder.glob(f"*/{CONFIG}"))
        if inside and not (folder / CONFIG).exists():
            raise FileError(f"{folder} holds models and is none. Choose one of {', '.join(inside)}.")
        model = cls._described(folder / CONFIG)
        files = _weight_files(folder / INDEX) if (folder / INDEX).is_file() else [WEIGHTS]
        if not any((folder / file).exists() for file in files):
            raise FileError(f"{folder} holds no weights ({files[0]} is not there). Copy or train the model again.")
        state = {name: t for file in files for name, t in read_tensors(folder / file)[0].items()}
        load(model, state, str(folder))
        stored = next(iter(state.values())).dtype
        kept = torch.float32 if stored in (torch.float16, torch.bfloat16) else stored
        return model.to(device=place, dtype=dtype or kept).eval()

    @classmethod
    def _described(cls: type[Saved], path: Path) -> Saved:
        """The model of a config.json, its weights not yet loaded."""
        config = read_json(path)
        if not isinstance(config, dict) or config.get("model_type") != KIND:
            raise FileError(f"{path} does not describe a {KIND}. For other layouts see docs/training.md.")
        try:
            require_count(d=config["d"], N=config["N"])
            require(isinstance(config["model"], dict), "model", repr(config["model"]), "a dictionary")
            return cls(Model.from_dict(config["model"]), d=config["d"], N=config["N"])  # type: ignore[call-arg]
        except KeyError as error:
            raise FileError(f"{path} has no {error}. Copy or write it again.") from error
        except (TypeError, InputError) as error:
            raise FileError(f"{path} describes no model: {error} Copy or write it again.") from error


def _require_real(dtype: torch.dtype | None) -> None:
    require(dtype is None or dtype.is_floating_point, "dtype", dtype, "a precision such as torch.float32")


def _weight_files(index: Path) -> list[str]:
    """The files that an index of shards names."""
    found = read_json(index)
    places = found.get("weight_map") if isinstance(found, dict) else None
    # Names of files only: an index cannot point outside its folder.
    if not isinstance(places, dict) or not places or any(Path(str(f)).name != f for f in places.values()):
        raise FileError(f"{index} is no index of shards: it has no `weight_map` of file names. Write it again.")
    return sorted(set(places.values()))


def load(model: nn.Module, state: dict[str, Tensor], where: str) -> None:
    """Copy `state` into `model`; names and shapes must agree exactly. The model takes the state's precision."""
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in state.items()}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        first = wrong[0]
        raise FileError(
            f"{where}: {len(wrong)} tensors do not fit the model, first {first}: "
            f"found {found.get(first, 'none')}, expected {expected.get(first, 'none')}."
        )
    require(len({t.dtype for t in state.values()}) == 1, "dtype", "several in one file", "one")
    model.to(next(iter(state.values())).dtype).load_state_dict(state)
