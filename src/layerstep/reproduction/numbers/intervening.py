"""Write into the layers of every model whose weights are here, and keep what comes out in results/interventions.

    python -m layerstep.reproduction.numbers.intervening [NAME ...]

measures what is not there, one file per network, about a minute each. --again measures anew what other code measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from layerstep.errors import require_choice
from layerstep.files import digest, provenance, write_json
from layerstep.measurement import identify
from layerstep.measurement.interventions.instrument import intervene
from layerstep.measurement.reading.hooks import reader_of
from layerstep.reproduction.numbers.impulse import impulse_response
from layerstep.reproduction.numbers.interventions import PARTS, SEED, Network, Reading, kept_parts, networks, place_of
from layerstep.reproduction.numbers.store import code_identity, to_json
from layerstep.training import GPT

DIGITS = 6


def measure(network: Network, part: str) -> Any:
    model = network.open()
    if part == "result":
        return intervene(model, network.task, seed=SEED).to_dict()
    if part == "bumps":
        return to_json(impulse_response(reader_of(model), network.task, SEED))  # type: ignore[arg-type]
    # A directory may hold probes, fitted on more prompts.
    subject, head = (model, _head(model)) if network.place is None else (network.place, None)
    found = identify(subject, network.task, parts=("behaviour", "readings"), seed=SEED, head=head).readings
    assert found is not None
    return {name: to_json(Reading.of(verdict)) for name, verdict in found.verdicts.items()}


def _head(model: Any) -> Callable[[Tensor], Tensor] | None:
    """The read-out of a planted network; a GPT has its own."""
    if isinstance(model, GPT):
        return None
    return lambda state: model.model.frame.read(state[:, model.queries], "f")


def rounded(value: Any) -> Any:
    """The same to six digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value


def bring_up_to_date(
    names: Sequence[str], parts: Sequence[str], say: Callable[[str], None], *, again: bool = False
) -> None:
    """Measure what is missing or was measured by other code; again=False leaves what other code measured."""
    for network in networks():
        if names and network.name not in names:
            continue
        for part in parts:
            kept, code = kept_parts(network), code_identity(PARTS[part])
            if part in kept and (not again or kept[part]["code"] == code):
                continue
            start, used = time.perf_counter(), time.process_time()
            data = rounded(measure(network, part))
            kept = kept_parts(network)  # another part may have been written meanwhile
            kept[part] = {
                "code": code,
                "provenance": provenance(),
                "seconds": round(time.perf_counter() - start, 1),
                "cpu_seconds": round(time.process_time() - used, 1),
                "digest": digest(data),
                "data": data,
            }
            about = {"name": network.name, "identity": digest(network.identity), "config": network.identity}
            write_json(place_of(network.name), {**about, "parts": kept})
            say(f"{network.name}: {part}, {kept[part]['cpu_seconds']} CPU seconds")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="of the networks (default: all)")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--again", action="store_true", help="measure anew what other code measured")
    given = parser.parse_args(arguments)
    for name in given.names:
        require_choice("names", name, [network.name for network in networks()])
    bring_up_to_date(given.names, given.parts, lambda words: print(words, flush=True), again=given.again)


if __name__ == "__main__":
    main()
