"""Libraries kept under the user's cache directory: the same prompts, task, families and code give the same table.

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
from jaxtyping import Bool, Float
from torch import Tensor

from layerstep.errors import FileError
from layerstep.files import digest, read_tensors, source_digest, write_tensors
from layerstep.tasks import Prompts

#: Bytes of all files together; the library of 256 prompts has 310 MB.
LIMIT = 2 * 2**30
#: Packages whose code decides the numbers in a library.
CODE = ("tasks", "solvers", "measurement/identification")
STALE = 24 * 3600.0  # seconds after which an unfinished file has no writer any more

Kept = tuple[Bool[Tensor, "K"], Float[Tensor, "R B C"]]  # which candidates stayed, and their predictions


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
    content = hashlib.sha256()
    for part in (prompts.x, prompts.y):
        content.update(str(tuple(part.shape)).encode() + part.contiguous().numpy().tobytes())
    return digest([content.hexdigest(), grid, list(contexts), task, source_digest(CODE), torch.__version__])


def kept(identity: str, make: Callable[[], Kept]) -> Kept:
    """The table under this identity, from the cache or made now and put there."""
    folder = cache_directory()
    if folder is None:
        return make()
    file = folder / f"library-{identity}.safetensors"
    if (found := _read(file)) is not None:
        return found
    made = make()
    # In the background: the disk may need seconds, and nobody waits for them. Python waits for the thread at its end.
    threading.Thread(target=_write, args=(file, *made), name="layerstep-cache").start()
    return made


def _read(file: Path) -> Kept | None:
    """What `_write` wrote; None where it is absent or damaged."""
    if not file.is_file():
        return None
    with contextlib.suppress(FileError, KeyError, OSError):
        tensors, header = read_tensors(file)
        stayed, table = tensors["stayed"], tensors["table"]
        if header["crc"] == _crc(stayed, table):
            os.utime(file)
            return stayed, table
    return None


def _write(file: Path, stayed: Tensor, table: Tensor) -> None:
    """Put a table into the cache. Where that cannot be done the next call computes it again: no reason to fail."""
    with contextlib.suppress(OSError):
        size = table.nbytes + stayed.nbytes
        if size <= LIMIT:
            _make_space(file.parent, size)
            write_tensors(file, {"stayed": stayed, "table": table}, {"crc": _crc(stayed, table)})


def _crc(*tensors: Tensor) -> int:
    crc = 0
    for tensor in tensors:
        crc = zlib.crc32(tensor.contiguous().view(torch.uint8).numpy().data, crc)
    return crc


def _make_space(folder: Path, size: int) -> None:
    """Remove what was used longest ago until `size` more bytes are within the limit, and what a killed writer left."""
    found = []
    for file in [*folder.glob("library-*.safetensors"), *folder.glob(".library-*.part")]:
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
