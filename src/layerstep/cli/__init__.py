"""The command line, one file per verb. `layerstep --help` answers at once: torch is imported by the verbs."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.exceptions import (
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from layerstep import __version__
from layerstep.cli.options import UNNAMED, convert, import_module
from layerstep.errors import InputError, LayerstepError, in_words

VERBS = {
    "solve": "run classical solvers on every prefix of sampled prompts",
    "construct": "write the weights of a transformer that solves kernel ridge regression",
    "train": "train GPT-style models on Gaussian-process prompts",
    "probe": "fit one linear probe per layer of a model",
    "identify": "say which solver the layers of a model follow, or that they follow none",
    "reproduce": "build the report: the paper and ours, side by side",
    "sweep": "train many runs, here or on a cluster",
    "runs": "list runs: how far they are and what differs between them",
    "evaluate": "say how far finished runs are from exact kernel ridge regression",
    "publish": "put a finished training run in its place among the results",
    "calibrate": "measure the error rates of identify, or print the shipped ones",
    "list": "print the names of solvers, kernels, inputs, families, presets and models",
    "bench": "run the benchmarks and print their tables",
}
#: Options that had another name, each with the verbs where the new one holds (all that have it, unless named).
RENAMED = {
    "--sequences": ("--test-prompts", "--prompts"),
    "--sample": ("--prompts",),
    "--figure": ("--plot",),
    "--save": ("--out",),
    "--home": ("--out",),
}


def command_line(asked: str = "") -> App:
    """All verbs, each imported only where it is the one `asked` for, and --json, which every one of them has."""
    common = Parameter(
        negative=(),
        allow_repeating=False,
        name_transform=lambda name: name.replace("_", "-"),
        converter=convert,
        show_default=lambda value: None if value is None or value is False or value == () else str(value),
    )
    app = App(
        name="layerstep",
        help="layerstep: which solver does a transformer run, and can we write one down?",
        version=__version__,
        version_flags=["--version", "-V"],
        default_parameter=common,
        help_format="markdown",
    )
    for place, (verb, what) in enumerate(VERBS.items()):  # the verb's own docstring says more, but has to be imported
        help_line = None if verb == asked else what
        app.command(f"layerstep.cli.{verb}:run", name=verb, help=help_line, sort_key=place)

    @app.meta.default
    def launch(
        *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        json: Annotated[bool, Parameter(help="print the result as one line of JSON.")] = False,
        modules: Annotated[
            tuple[str, ...],
            Parameter(name="--import", allow_repeating=True, help="a module of yours, with kernels, tasks or solvers."),
        ] = (),
    ) -> None:
        for module in modules:
            import_module(module)
        verb, given, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        if (result := verb(*given.args, **given.kwargs)) is not None:
            result.show(json)

    app.meta.suppress_keyboard_interrupt = False
    return app


def main(argv: list[str] | None = None) -> int:
    """Run one verb. A user's mistake is one line on stderr and status 2, never a traceback."""
    words = (sys.argv[1:] if argv is None else argv) or ["--help"]
    verb = next((word for word in words if word in VERBS), "")
    name = f"layerstep {verb}".rstrip()
    if sys.stdout is None:  # closed by the shell (>&-)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without √ shows ?, as does a name that is not UTF-8
    app = command_line(verb)
    try:
        with _warnings_as_notes(name):
            app.meta(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        print(f"{name}: {_sentence(error, app)} See {name} --help.", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"{name}: stopped. {stop}".rstrip(), file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        _drop_output()
    except (LayerstepError, OSError, MemoryError, RuntimeError) as error:
        print(f"{name}: {_in_words(error)}", file=sys.stderr)
        return 2
    return 0


def _sentence(error: CycloptsError, app: App) -> str:
    """What is wrong with the words of the command: which of them, and what is allowed."""
    argument = error.argument
    if isinstance(error.__cause__, InputError) and argument is not None:
        return str(error.__cause__).replace(UNNAMED, argument.name, 1)
    match error:
        case UnknownOptionError(token=token):
            there = {name for argument in error.argument_collection for name in argument.names}
            old = (token.keyword or token.value).partition("=")[0].replace("_", "-")
            for new in RENAMED.get(old, ()):
                if new in there:
                    return f"{old} is now {new}."
            for new in sorted(there):
                if new.lower() == old.lower():
                    return f"Unknown option: {old}. Did you mean {new}?"
        case UnknownCommandError(unused_tokens=words):
            given = (words or [""])[0]
            near = difflib.get_close_matches(given.lower(), [*VERBS, "--help", "--version"], n=1)
            said = f"Did you mean {near[0]}?" if near else f"Must be one of {', '.join(VERBS)}."
            return f"verb = {in_words(repr(given))}: there is none of that name. {said}"
        case RepeatArgumentError(token=token):
            option = (token.keyword or "").replace("_", "-")
            return f"{option} is given twice. Give it once, with all its values."
        case MissingArgumentError() if argument is not None:
            verb = app[error.command_chain[0]] if error.command_chain else app
            told = verb.assemble_argument_collection(parse_docstring=True)
            what = next(each.parameter.help or "" for each in told if each.field_info.name == argument.field_info.name)
            needs = "has no value" if error.keyword else "is missing"
            return f"{error.keyword or argument.name} {needs}: {' '.join(what.partition('.')[0].split())}."
        case UnusedCliTokensError(unused_tokens=words):
            return f"{in_words(repr((words or [''])[0]))} is one value too many."
    return " ".join(in_words(error).split())


def _in_words(error: Exception) -> str:
    """One line about what is not a bug: a mistake, no memory, no room for the output. Anything else is raised again."""
    if isinstance(error, LayerstepError):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error):  # torch's own words
        return "out of memory. Ask for fewer prompts, steps or examples, or for a smaller model."
    if isinstance(error, OSError) and error.filename is None:  # files of ours are a FileError
        _drop_output()
        return f"cannot write the output: {error.strerror or error}. Send it to another place."
    raise error


def _drop_output() -> None:
    """What is still in the buffer of stdout cannot be written; nobody shall try again when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _warnings_as_notes(name: str) -> Iterator[None]:
    """A warning is one line, without the place in our code that gave it."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(f"{name}: note: {message}", file=sys.stderr)
        yield
