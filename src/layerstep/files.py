"""Files that are whole or absent: written aside, flushed, renamed. Results that say where they came from."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import platform
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from layerstep.errors import FileError, InputError, as_path


@contextlib.contextmanager
def write_aside(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it becomes `path`, on any failure it is removed.

    A link stays a link: what it points to is written. A device or a pipe is refused: renaming would replace it.
    """
    with write_together([path]) as [aside]:
        yield aside


@contextlib.contextmanager
def write_together(
    paths: Sequence[str | os.PathLike], before: Callable[[], None] = lambda: None
) -> Iterator[list[Path]]:
    """`write_aside` of several paths: nothing changes until all are written. Then `before` is called, then they are
    renamed in this order."""
    asides: list[Path] = []
    try:
        places = [as_path("path", path).resolve() for path in paths]
        for place in places:
            if place.exists() and not place.is_file():
                raise OSError(None, "Is a directory" if place.is_dir() else "Not a regular file")
            place.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
            os.close(handle)
            asides.append(Path(name))
        yield asides
        for aside in asides:
            with open(aside, "rb") as file:
                os.fsync(file.fileno())
            aside.chmod(0o666 & ~_umask())
        before()
        for aside, place in zip(asides, places, strict=True):
            os.replace(aside, place)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        reason = error.strerror or str(error)
        if isinstance(error, FileExistsError):
            reason = f"{error.filename} is a file, not a directory"
        raise FileError(
            f"cannot write {paths[0] if len(paths) == 1 else Path(paths[0]).parent}: {reason}. "
            "What was there before is unchanged; free some space or choose another place."
        ) from error
    finally:
        for aside in asides:
            aside.unlink(missing_ok=True)


def require_writable(path: str | os.PathLike) -> None:
    """A FileError before the work, not after it, where `path` cannot be written."""

    class Seen(Exception):
        pass

    with contextlib.suppress(Seen), write_aside(path):
        raise Seen


class InUseError(FileError):
    """Another process has the lock."""


@contextlib.contextmanager
def locked(path: str | os.PathLike, taken: str) -> Iterator[None]:
    """Lock the file `path`, made where it is missing, for this process alone; InUseError(taken) where another has it.

    The lock ends with the process, however that ends. Where the disk or the system has no locks a warning says so.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+b")  # network disks grant a lock to writers only  # noqa: SIM115
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}. Choose another place.") from error
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (ImportError, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.EAGAIN, errno.EACCES):
                raise InUseError(taken) from error
            why = error.strerror if isinstance(error, OSError) else "this system has no fcntl"
            words = f"{path} cannot be locked ({why}). See to it that no other process writes there."
            warnings.warn(words, stacklevel=3)
        _locks.add(file)
        try:
            yield
        finally:
            _locks.discard(file)


_locks: set[IO[bytes]] = set()


def _close_locks() -> None:
    """A forked child has the files too, and would keep the locks when its parent is gone."""
    for file in _locks:
        file.close()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_locks)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: str | os.PathLike, text: str) -> Path:
    with write_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")
    return Path(path)


def write_json(path: str | os.PathLike, value: Any) -> Path:
    return write_text(path, as_json(value))


def as_json(value: Any) -> str:
    try:
        return json.dumps(value, indent=1) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"this cannot be written as JSON: {error}. Give numbers, strings, lists and dictionaries."
        ) from error


def read_json(path: str | os.PathLike) -> Any:
    """The JSON value in `path`, or a FileError that says what is wrong with it."""
    try:
        return json.loads(as_path("path", path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileError(f"{path} is not there. Check the path.") from error
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}. Check the path.") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number of too many digits
        raise FileError(f"{path} is not readable JSON ({error}). Is it cut short? Copy or write it again.") from error


def write_tensors(path: str | os.PathLike, tensors: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> Path:
    """Torch tensors by name to one safetensors file. Header values are kept as JSON; a string stands for itself."""
    with write_aside(path) as aside:
        save_tensors(aside, tensors, header)
    return Path(path)


def save_tensors(aside: Path, tensors: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> None:
    """The same to a path that is one of `write_aside` already."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    words = {key: value if isinstance(value, str) else json.dumps(value) for key, value in (header or {}).items()}
    try:
        save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, aside, words or None)
    except SafetensorError as error:  # safetensors wraps a full disk in an error of its own
        raise OSError(str(error)) from error


def read_tensors(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of a safetensors file and its header, or a FileError. What is not JSON in the header is a string."""
    from safetensors import SafetensorError, safe_open

    if not as_path("path", path).is_file():
        raise FileError(f"{path} is not there. Check the path.")
    try:
        with safe_open(path, framework="pt") as file:
            words = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path} is not a whole safetensors file ({error}). Copy or write it again.") from error
    return tensors, {key: _json_or_string(text) for key, text in words.items()}


def _json_or_string(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def digest(value: Any) -> str:
    """The identity of a configuration: 12 hex digits of the SHA-256 of its canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digest_of_values(values: Any) -> str:
    """The identity of a function by its values, a tensor: rounded, because machines differ in the last digits."""
    least = 1e-9 * float(values.abs().max())
    return digest([f"{value:.7g}" if abs(value) > least else "0" for value in values.flatten().tolist()])


@functools.cache
def source_digest(packages: tuple[str, ...]) -> str:
    """Identity of the code in these packages: a result made by other code is made anew."""
    here = Path(__file__).parent
    whole = hashlib.sha256()
    for file in sorted(file for package in packages for file in (here / package).rglob("*.py")):
        whole.update(str(file.relative_to(here)).encode() + file.read_bytes())
    return whole.hexdigest()[:12]


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Where a result came from: commit, versions, device, time. Goes into every result file."""
    import numpy
    import torch

    import layerstep

    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine()
    return {
        "layerstep": layerstep.__version__,
        "commit": _commit(Path(__file__).resolve().parent),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "device": f"{device} ({name}, {os.cpu_count()} cores)",
        "threads": torch.get_num_threads(),
        "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


@functools.cache
def _commit(here: Path) -> str:
    """The commit of this package's own repository, or the one an archive of it was made from (`git archive` fills
    commit.txt); in a repository of somebody else's it has none. Looked up once: the code of a process stays."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if Path(git("rev-parse", "--show-toplevel")).resolve() / "src" / "layerstep" == here:
            return git("describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")
    with contextlib.suppress(OSError):
        written = (here / "commit.txt").read_text(encoding="utf-8").strip()
        return "unknown" if written.startswith("$") else written[:10]
    return "unknown"
