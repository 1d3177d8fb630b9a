"""The command line, one file a verb. `layerstep --help` answers at once: torch is imported by the verbs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import itertools
import os
import sys
from collections.abc import Callable

from layerstep import __version__
from layerstep.errors import InputError, LayerstepError

VERBS = {
    "solve": "run classical solvers on every prefix of sampled prompts",
    "construct": "write the weights of a transformer that solves kernel ridge regression",
    "train": "train GPT-style models on Gaussian-process prompts",
    "probe": "fit one linear probe per layer of a model",
    "identify": "say which solver the layers of a model follow, or that they follow none",
    "reproduce": "build the report: the paper and ours, side by side",
    "bench": "run the benchmarks and print their tables",
}


def usage() -> str:
    lines = [f"  {verb:<10} {what}" for verb, what in VERBS.items()]
    return "\n".join(
        [
            f"layerstep {__version__}: which solver does a transformer run, and can we write one down?",
            "",
            "usage: layerstep VERB [options]      layerstep VERB --help",
            "",
            *lines,
        ]
    )


def _parse(verb: str, arguments: list[str]) -> Callable[[], None]:
    """The verb with its arguments, ready to run; a mistake in them is an InputError of one line."""
    import tyro

    run = importlib.import_module(f"layerstep.cli.{verb}").run

    @functools.wraps(run)
    def ready(**values):
        return lambda: run(**values)

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(ready, args=arguments, prog=f"layerstep {verb}")
    except SystemExit as stop:
        if not stop.code:
            raise
        # The parser draws a box: its first paragraph says what is wrong.
        lines = [line.strip(" │") for line in said.getvalue().splitlines() if not line.startswith(("╭", "╰"))]
        sentence = " ".join(itertools.takewhile(lambda line: not line.startswith("──"), lines))
        raise InputError(f"{sentence.rstrip('.')}. See layerstep {verb} --help.") from None


def main(argv: list[str] | None = None) -> int:
    """Run one verb. A user's mistake is one line on stderr and status 2, never a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(__version__)
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        print(f"layerstep: verb = {verb!r}: must be one of {', '.join(VERBS)}.", file=sys.stderr)
        return 2
    try:
        _parse(verb, rest)()
        sys.stdout.flush()
    except LayerstepError as error:
        print(f"layerstep {verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"layerstep {verb}: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except MemoryError:
        print(f"layerstep {verb}: out of memory. Ask for fewer sequences, steps or examples.", file=sys.stderr)
        return 2
    return 0
