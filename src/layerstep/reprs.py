"""Short reprs: a result shows what it is in one line; its numbers are in its fields."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Sequence
from typing import Any

import torch

LONGEST = 400  # characters
FEW = 4  # members of a tuple that are shown


def brief(self: Any) -> str:
    """Class(field=value, ...) of a dataclass: tensors by their shape, what is long by its length, defaults left out.

    `__repr__ = brief` in the class.
    """
    told = [(each, getattr(self, each.name)) for each in dataclasses.fields(self) if each.repr]
    words = [f"{each.name}={shown(value)}" for each, value in told if not _is_default(each, value)]
    return cut(f"{type(self).__name__}({', '.join(words)})")


def shown(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, torch.Tensor):
        if value.numel() == 1:
            return f"{value.item():.4g}"
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, float):
        return min(f"{value:g}", f"{value:.4g}", key=len)
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    if isinstance(value, Mapping):
        return "{" + _some([f"{key!r}: ..." for key in value]) + "}"
    if isinstance(value, (tuple, list)):
        inside = _some([shown(each) for each in value])
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, torch.nn.Module) or dataclasses.is_dataclass(value):
        whole = repr(value)
        return whole if len(whole) <= LONGEST // 3 else f"{type(value).__name__}(...)"
    return cut(repr(value), LONGEST // 4)


def folded(sentences: Sequence[str], evidence: str) -> str:
    """HTML for a notebook: the first sentence in bold, and the evidence folded."""
    first, *rest = map(html.escape, sentences)
    said = f"<p><b>{first}</b> {' '.join(rest)}</p>"
    return f"<div>{said}<details><summary>evidence</summary><pre>{html.escape(evidence)}</pre></details></div>"


def cut(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 4]}...{text[-1]}"


def _some(words: list[str]) -> str:
    kept = words if len(words) <= FEW else [*words[: FEW - 1], f"... {len(words)} in all"]
    return ", ".join(kept)


def _is_default(field: dataclasses.Field, value: Any) -> bool:
    default = field.default
    return default is not dataclasses.MISSING and type(value) is type(default) and value == default
