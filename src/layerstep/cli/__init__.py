"""The command line, one file a verb. `layerstep --help` answers at once: torch is imported by the verbs."""

from __future__ import annotations

import importlib
import sys

from layerstep import __version__
from layerstep.errors import LayerstepError

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
    import tyro

    module = importlib.import_module(f"layerstep.cli.{verb}")
    try:
        tyro.cli(module.run, args=rest, prog=f"layerstep {verb}")
    except LayerstepError as error:
        print(f"layerstep {verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"layerstep {verb}: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        sys.stderr.close()
        return 0
    return 0
