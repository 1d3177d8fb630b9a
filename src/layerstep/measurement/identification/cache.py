"""What is kept under the user's cache directory: libraries, for the same prompts, task, families and code give the same
table, and what probes read off a model, for the same weights and prompts give the same path.

A file is written aside and renamed, so that two writers do no harm; one that is damaged is made anew. When the files
pass a limit together the ones that were used longest ago go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerstep.errors import FileError
from layerstep.files import digest, read_tensors, source_digest, write_tensors
from layerstep.tasks import Prompts

#: Bytes of all files together; the library of 256 prompts has 310 MB.
LIMIT = 2 * 2**30
#: Packages whose code decides the numbers in a library.
CODE = ("tasks", "solvers", "measurement/identification")
STALE = 24 * 3600.0  # seconds after which an unfinished file has no writer any more

Tensors = dict[str, Tensor]
KINDS = ("library", "path")  # how the names of files begin


def cache_directory() -> Path | None:
    """$LAYERSTEP_CACHE, or layerstep in the platform's place for caches; None where the variable is set to nothing."""
    if (own := os.environ.get("LAYERSTEP_CACHE")) is not None:
        return Path(own).expanduser() if own else None
    with contextlib.suppress(RuntimeError):  # a user without a home
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return base / "layerstep"
    return None


def library_identity(prompts: Prompts, grid: Any, contexts: Sequence[int], task: dict[str, Any]) -> str:
    """What a table depends on: the prompts' content in their order, every candidate, and the code that runs them."""
    content = content_digest(prompts.x, prompts.y)
    return digest([content, grid, list(contexts), task, source_digest(CODE), torch.__version__])


def content_digest(*tensors: Tensor) -> str:
    """Of shapes, types and every bit."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        content.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()


def kept(kind: str, identity: str, make: Callable[[], Tensors]) -> Tensors:
    """The tensors under this identity, from the cache or made now and put there."""
    folder = cache_directory()
    if folder is None:
        return make()
    file = folder / f"{kind}-{identity}.safetensors"
    if (found := _read(file)) is not None:
        return found
    made = make()
    # In the background: the disk may need seconds, and nobody waits for them. Python waits for the thread at its end.
    threading.Thread(target=_write, args=(file, made), name="layerstep-cache").start()
    return made


def _read(file: Path) -> Tensors | None:
    """What `_write` wrote; None where it is absent or damaged."""
    if not file.is_file():
        return None
    with contextlib.suppress(FileError, KeyError, OSError):
        tensors, header = read_tensors(file)
        if header["crc"] == _crc(tensors):
            os.utime(file)
            return tensors
    return None


def _write(file: Path, tensors: Tensors) -> None:
    """Put tensors into the cache. Where that cannot be done the next call computes them again: no reason to fail."""
    with contextlib.suppress(OSError):
        size = sum(tensor.nbytes for tensor in tensors.values())
        if size <= LIMIT:
            _make_space(file.parent, size)
            write_tensors(file, tensors, {"crc": _crc(tensors)})


def _crc(tensors: Tensors) -> int:
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(tensors[name].contiguous().view(torch.uint8).numpy().data, crc)
    return crc


def _make_space(folder: Path, size: int) -> None:
    """Remove what was used longest ago until `size` more bytes are within the limit, and what a killed writer left."""
    found = []
    for file in [
        each for kind in KINDS for each in (*folder.glob(f"{kind}-*.safetensors"), *folder.glob(f".{kind}-*.part"))
    ]:
        with contextlib.suppress(OSError):  # another process removed it
            facts = file.stat()
            if file.suffix == ".part" and time.time() - facts.st_mtime > STALE:
                file.unlink(missing_ok=True)
            elif file.suffix != ".part":
                found.append((facts.st_mtime, facts.st_size, file))
    total = size + sum(bytes_ for _, bytes_, _ in found)
    for _, bytes_, file in sorted(found):
        if total <= LIMIT:
            return
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
        total -= bytes_
