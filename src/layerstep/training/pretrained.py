"""Weights in the layout of the Hugging Face hub: config.json and model.safetensors, whole or in shards. No pickle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from layerstep.errors import FileError, InputError, as_device, as_dtype, as_path, require, require_count, require_kind
from layerstep.files import as_json, read_json, read_tensors, save_tensors, write_together
from layerstep.training.config import Model

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
KIND = "layerstep-gpt"
Saved = TypeVar("Saved", bound="Pretrained")

#: Trained models inside the package, by name: their directories, with weights, probes and a card.
SHIPPED = {card.parent.name: card.parent for card in sorted(Path(__file__).parent.glob("shipped/*/README.md"))}


def model_folder(path: str | os.PathLike) -> Path:
    """The directory `path`, or the shipped model of that name where there is no such directory."""
    folder = as_path("path", path)
    return folder if folder.is_dir() else SHIPPED.get(str(path), folder)


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
        dtype: torch.dtype | str | None = None,
        shard_bytes: int | None = None,
        about: dict[str, Any] | None = None,
    ) -> Path:
        """Write config.json and model.safetensors to the directory `path`.

        dtype=torch.float16 halves the file; `shard_bytes` splits it. `about` is kept in config.json.
        """
        folder, kind = as_path("path", path), None if dtype is None else as_dtype(dtype)
        if shard_bytes is not None:
            require_count(shard_bytes=shard_bytes)
        require_kind("about", about, (dict, type(None)), "It is kept in config.json.")
        state = {name: t.to(kind) for name, t in self.state_dict().items()}
        groups = shards(state, shard_bytes) if shard_bytes else [state]
        config = {"model_type": KIND, "model": self.model.to_dict(), "d": self.d, "N": self.N}
        texts = {CONFIG: config | ({"about": about} if about else {})}
        names = [WEIGHTS]
        if len(groups) > 1:
            names = [f"model-{i:05}-of-{len(groups):05}.safetensors" for i in range(1, len(groups) + 1)]
            weight_map = {key: name for name, group in zip(names, groups, strict=True) for key in group}
            total = sum(t.nbytes for t in state.values())
            texts[INDEX] = {"metadata": {"total_size": total}, "weight_map": weight_map}

        def no_index() -> None:  # a kill between two renames leaves no weights then, and no mixture of old and new ones
            (folder / INDEX).unlink(missing_ok=True)

        with write_together([folder / name for name in (*names, *texts)], before=no_index) as asides:
            for aside, group in zip(asides, groups, strict=False):
                save_tensors(aside, group, {"format": "pt"})
            for aside, value in zip(asides[len(names) :], texts.values(), strict=True):
                aside.write_text(as_json(value), encoding="utf-8")
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
        dtype: torch.dtype | str | None = None,
        device: str | torch.device = "cpu",
    ) -> Saved:
        """The model saved in the directory `path`, in its own precision unless `dtype` says otherwise.

        `path` may be the name of a shipped model (`SHIPPED`). Weights stored in half precision come back as float32.
        """
        folder, place, kind = model_folder(path), as_device(device), None if dtype is None else as_dtype(dtype)
        if not folder.is_dir():
            shipped = ", ".join(SHIPPED)
            raise FileError(
                f"{folder} is not a directory. save_pretrained and `layerstep train` write one; shipped: {shipped}."
            )
        inside = sorted(config.parent.name for config in folder.glob(f"*/{CONFIG}"))
        if inside and not (folder / CONFIG).exists():
            raise FileError(f"{folder} holds models and is not one itself. Choose one of {', '.join(inside)}.")
        model = cls._described(folder / CONFIG)
        files = _weight_files(folder / INDEX) if (folder / INDEX).is_file() else [WEIGHTS]
        if not any((folder / file).exists() for file in files):
            raise FileError(f"{folder} holds no weights ({files[0]} is not there). Copy or train the model again.")
        state = {name: t for file in files for name, t in read_tensors(folder / file)[0].items()}
        load(model, state, str(folder))
        stored = next(iter(state.values())).dtype
        kept = torch.float32 if stored in (torch.float16, torch.bfloat16) else stored
        return model.to(device=place, dtype=kind or kept).eval()

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
            raise FileError(f"{path} does not describe a model: {error} Copy or write it again.") from error


def _weight_files(index: Path) -> list[str]:
    """The files that an index of shards names."""
    found = read_json(index)
    places = found.get("weight_map") if isinstance(found, dict) else None
    # Names of files only: an index cannot point outside its folder.
    if not isinstance(places, dict) or not places or any(Path(str(f)).name != f for f in places.values()):
        raise FileError(f"{index} is not an index of shards: it has no `weight_map` of file names. Write it again.")
    return sorted(set(places.values()))


def load(model: nn.Module, state: dict[str, Tensor], where: str) -> None:
    """Copy `state` into `model`; names and shapes must agree exactly. The model takes the state's precision."""
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in state.items()}
    if not state:
        raise FileError(f"{where} holds no tensors. Copy or write it again.")
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        first = wrong[0]
        raise FileError(
            f"{where}: {len(wrong)} tensors do not fit the model, first {first}: "
            f"found {found.get(first, 'none')}, expected {expected.get(first, 'none')}."
        )
    kinds = {t.dtype for t in state.values()}
    if len(kinds) > 1 or not all(kind.is_floating_point for kind in kinds):
        raise FileError(f"{where} holds {', '.join(sorted(map(str, kinds)))}, not one precision. Write it again.")
    model.to(next(iter(state.values())).dtype).load_state_dict(state)
