"""Ray core tasks: on this machine's GPUs, or on the cluster of RAY_ADDRESS. A token always, no dashboard, loopback."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layerstep.engines.choice import installed
from layerstep.engines.pool import Engine, Function
from layerstep.errors import InputError, in_words, require, require_choice

LONGEST_FOLDER = 107 - 62  # of a Unix socket's path, less what Ray adds
HOW = (
    "Ray runs the code of whoever reaches its ports. Run: ray get-auth-token --generate; copy ~/.ray/auth_token to "
    "every node, set RAY_AUTH_MODE=token there before ray start, and call again."
)


class RayTasks(Engine):
    """A task per unit. Ray itself never tries again: it does not know a run that diverged from a worker that died."""

    name = "ray"

    def __init__(self, folder: Path, *, gpus: int | None, threads: int | None, options: Mapping[str, Any]) -> None:
        options = dict(options)
        address = address_in(options)
        options.pop("address", None)
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        self.ray, self.folder = installed("ray"), folder
        ray = self.ray
        known = set(inspect.signature(ray.init).parameters) - {"num_cpus", "num_gpus", "resources"}
        start = {name: options.pop(name) for name in list(options) if name in known or name.startswith("_")}
        self.mine = not ray.is_initialized()
        if self.mine:
            self._start(address, folder, start)
        there = ray.cluster_resources()
        self.gpus = (1 if there.get("GPU") else 0) if gpus is None else gpus
        self.threads = threads or int(options.get("num_cpus") or 1)
        self.options = {"num_cpus": self.threads, "num_gpus": self.gpus, "max_retries": 0} | options
        if self.gpus and there.get("GPU", 0) < self.gpus:
            self.close()
            raise InputError(f"gpus = {gpus}: the Ray cluster has {there.get('GPU', 0):g}. Take gpus=0 for the CPUs.")
        share = there["GPU"] / self.gpus if self.gpus else there.get("CPU", 1) / self.options["num_cpus"]
        self.slots, self.at_once = max(1, int(share)), float("inf")

    def _start(self, address: str, folder: Path, start: dict[str, Any]) -> None:
        from ray.exceptions import AuthenticationError  # type: ignore[import-not-found]

        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR} | start
        if address == "local":
            if not token_is_there():  # Ray would write one to the home directory, for all to read
                os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # of this process and of what it starts
                with contextlib.suppress(ImportError, AttributeError):  # one that it had before
                    importlib.import_module("ray._raylet").AuthenticationTokenLoader.instance().reset_cache()
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # as there: loopback, whatever the system
            with contextlib.suppress(ImportError, AttributeError):  # Ray reads it when it is imported, perhaps before
                vars(importlib.import_module("ray._private.ray_constants"))["ENABLE_RAY_CLUSTER"] = False
            options.setdefault("include_dashboard", False)
            options.setdefault("_node_ip_address", "127.0.0.1")
            options.setdefault("_temp_dir", str(socket_folder(folder)))
        elif "RAY_AUTH_MODE" not in os.environ:
            os.environ["RAY_AUTH_MODE"] = "token"
            with contextlib.suppress(ImportError, AttributeError):  # Ray reads it when it is imported, and now
                importlib.import_module("ray._raylet").Config.initialize("")
        try:
            self.ray.init(address=address, **options)
        except (ConnectionError, RuntimeError, ValueError, OSError, AuthenticationError) as error:
            raise InputError(f"on = 'ray', address = {address!r}: {in_words(error)}") from error

    def submit(self, function: Function, arguments: Sequence[str]) -> list[Any]:
        try:
            task = self.ray.remote(function).options(**self.options)
        except (ValueError, TypeError) as error:
            raise InputError(f"options of on = 'ray': {in_words(error)}") from error
        return [RayFuture(self.ray, task.remote(argument)) for argument in arguments]

    def recover(self) -> None:
        pass

    def close(self, wait: bool = True) -> None:
        if self.mine and wait:  # tasks that nobody waits for end with this process
            self.ray.shutdown()
            shutil.rmtree(self.folder, ignore_errors=True)


class RayFuture:
    def __init__(self, ray: Any, reference: Any) -> None:
        self.ray, self.reference = ray, reference

    def done(self) -> bool:
        return bool(self.ray.wait([self.reference], timeout=0)[0])

    def result(self) -> Any:
        return self.ray.get(self.reference)

    def cancel(self) -> None:
        self.ray.cancel(self.reference)


def address_in(options: Mapping[str, Any]) -> str:
    """The cluster to join, or local: one of this machine alone, for this call."""
    return options.get("address") or os.environ.get("RAY_ADDRESS") or "local"


def require_token(address: str) -> None:
    """An InputError where a cluster is to be joined without a token, or with tokens switched off."""
    require_choice("RAY_AUTH_MODE", os.environ.get("RAY_AUTH_MODE", "token").lower(), ("token",), HOW)
    if address == "local":
        return
    require(token_is_there(), "on", f"'ray' with the address {address}", "used with a token, and there is none", HOW)


def token_is_there() -> bool:
    """Whether Ray will find a token: in the environment or in a file."""
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or file.is_file()


def socket_folder(folder: Path) -> Path:
    """Where Ray keeps its session: beside the results, or in the user's runtime directory where that is too deep."""
    candidates = [folder.absolute()]
    if own := os.environ.get("XDG_RUNTIME_DIR"):
        candidates.append(Path(own) / "layerstep-ray")
    for each in candidates:
        if len(os.fsencode(each)) <= LONGEST_FOLDER:
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
            each.chmod(0o700)
            return each / "s"  # Ray lets everybody write into its own
    raise InputError(
        f"out = {folder.parent}: its path is too long for Ray's sockets ({LONGEST_FOLDER} bytes with /.ray). "
        "Choose a shorter one, or name a directory of yours: _temp_dir='/home/me/ray'."
    )
