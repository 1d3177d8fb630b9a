"""The command line, one file a verb. `layerstep --help` answers at once: torch is imported by the verbs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import itertools
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

from layerstep import __version__
from layerstep.errors import InputError, LayerstepError, require_choice

VERBS = {
    "solve": "run classical solvers on every prefix of sampled prompts",
    "construct": "write the weights of a transformer that solves kernel ridge regression",
    "train": "train GPT-style models on Gaussian-process prompts",
    "probe": "fit one linear probe per layer of a model",
    "identify": "say which solver the layers of a model follow, or that they follow none",
    "reproduce": "build the report: the paper and ours, side by side",
    "bench": "run the benchmarks and print their tables",
}
KINDS = {"int": "an integer", "float": "a number"}


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
            parsed = tyro.cli(ready, args=arguments, prog=f"layerstep {verb}")
    except SystemExit as stop:
        if not stop.code:
            raise
        sentence = _sentence(said.getvalue())
        if verb == "train" and sentence.startswith("Unrecognized"):
            sentence += " Numbers of a run are changed with --set NAME=VALUE."
        raise InputError(f"{sentence} See layerstep {verb} --help.") from None
    _require_once(arguments)
    return parsed


def _require_once(arguments: list[str]) -> None:
    """Of an option given twice the parser would keep the last values alone; --a-b, --a_b and --a-b=1 are one option."""
    options = Counter(each.partition("=")[0].replace("_", "-") for each in arguments if re.match(r"--\w", each))
    if repeated := [option for option, times in options.items() if times > 1]:
        raise InputError(f"{repeated[0]} is given twice. Give it once, with all its values.")


def _sentence(box: str) -> str:
    """What the parser says is wrong: it draws a box, in ASCII where the terminal knows no more, of a title and
    paragraphs with rules between them."""
    lines = [line.strip(" │") for line in box.splitlines()[1:] if not line.startswith("╰")]
    paragraphs = [
        " ".join(group)
        for is_rule, group in itertools.groupby(filter(None, lines), lambda line: not line.strip("─-"))
        if not is_rule
    ]
    sentence, *more = paragraphs
    if wrong := re.match(r"Error parsing (\S+): .*(int|float)\W.*'(.*)'", sentence):
        option, kind, value = wrong.groups()
        sentence = f"{option} = {value!r}: must be {KINDS[kind]}"
    elif wrong := re.match(r"invalid choice '(.*)' for argument '(\S+)'. Expected one of \((.*)\)", sentence):
        value, option, choices = wrong.groups()
        sentence = f"{option} = {value!r}: must be one of " + choices.replace("'", "")
    elif wrong := re.match(r"Missing from .*?: (?:(--\S+) )?(\S+) (.*?)\.? \(required\)", sentence):
        option, kind, what = wrong.groups()
        sentence = f"{option or kind} is missing: {what}"
    for meant in (re.match(r"Perhaps you meant: .*?(--[\w-]+)", paragraph) for paragraph in more):
        sentence += f". Perhaps you meant {meant[1]}" if meant else ""
    return f"{sentence.rstrip('.')}."


def main(argv: list[str] | None = None) -> int:
    """Run one verb. A user's mistake is one line on stderr and status 2, never a traceback."""
    verb, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    name = f"layerstep {verb}" if verb in VERBS else "layerstep"
    if sys.stdout is None:  # closed by the shell (>&-)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without √ shows ?, as does a name that is no UTF-8
    try:
        with _warnings_as_notes(name):
            _run(verb, rest)
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        print(f"{name}: stopped. {stop}".rstrip(), file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        _drop_output()
    except (LayerstepError, OSError, MemoryError, RuntimeError) as error:
        print(f"{name}: {_in_words(error)}", file=sys.stderr)
        return 2
    return 0


def _run(verb: str, rest: list[str]) -> None:
    if verb in ("-h", "--help", "help"):
        print(usage())
    elif verb in ("-V", "--version"):
        print(__version__)
    else:
        require_choice("verb", verb, VERBS)
        _parse(verb, rest)()


def _in_words(error: Exception) -> str:
    """One line about what is no bug: a mistake, no memory, no room for the output. Anything else is raised again."""
    if isinstance(error, LayerstepError):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error):  # torch's own words
        return "out of memory. Ask for fewer sequences, steps or examples, or for a smaller model."
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
