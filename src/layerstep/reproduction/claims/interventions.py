"""What writing into the layers showed, in sentences made from the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from layerstep.reproduction.numbers import Numbers, WrittenInto

LABELS = ("causal", "open")


@dataclass(frozen=True, kw_only=True)
class Written:
    """The networks that were written into: those of unknown ways (`models`), and those that run a solver (`known`)."""

    models: Sequence[WrittenInto]
    known: Sequence[WrittenInto]  # trained to run one of the solvers that are tried
    planted: Sequence[WrittenInto]

    @staticmethod
    def of(numbers: Numbers) -> Written | None:
        found = numbers.interventions.values()
        written = Written(
            models=[each for each in found if each.group in LABELS],
            known=[each for each in found if each.group == "positive" and each.is_recognisable],
            planted=[each for each in found if each.group == "planted"],
        )
        return written if written.models and (written.known or written.planted) else None

    @property
    def claimed(self) -> list[WrittenInto]:
        return [each for each in self.models if each.claimed]

    @property
    def recognises(self) -> str:
        """Of how many networks that were trained to run a solver every claim is right, by mask, in a sentence."""
        words = []
        for mask, kind in (("open", "with an open mask"), ("causal", "with a causal one")):
            if known := [each for each in self.known if each.mask == mask]:
                words.append(f"{sum(_right(each) for each in known)} of {len(known)} {kind}")
        missing = "" if any(each.mask == "causal" for each in self.known) else "; none with a causal one was tried"
        return f"Of networks trained to run a solver it recognises {' and '.join(words)}{missing}." if words else ""


def _right(network: WrittenInto) -> bool:
    claims = network.result.claims
    return bool(claims) and all(
        network.truth in (claim.solver, *getattr(claim, "alternatives", ())) for claim in claims
    )


def left(networks: Iterable[WrittenInto]) -> list[float]:
    """Of each network the share of the response that the nearest solver leaves, the median over its layers."""
    return [median(network.left) for network in networks if network.left]


def span(values: Sequence[float]) -> str:
    """Shares in words: 40 % to 79 %."""
    low, high = (_share(value) for value in (min(values), max(values)))
    if low == high:
        return low
    return f"at most {high}" if min(values) < 0.001 else f"{low} to {high}"


def _share(value: float) -> str:
    return f"{value:.0%}" if value >= 0.01 else f"{value:.1%}" if value >= 0.001 else "less than 0.1%"


def probed(numbers: Numbers) -> tuple[int, int]:
    """Of networks that run a solver and were read by probes fitted on y: how many are named none, and how many."""
    running = (each for each in numbers.interventions.values() if each.group in ("planted", "positive"))
    readings = [reading for each in running if (reading := each.readings.get("labels")) is not None]
    return sum(reading.solver is None for reading in readings), len(readings)


def in_words(numbers: Numbers) -> str:
    """What came out, in two sentences."""
    written = Written.of(numbers)
    if written is None:
        return ""
    models, known = left(written.models), left(written.known)
    words = f"In {_count(models, 'model')} trained on labels the nearest solver leaves {span(models)} of the response"
    words += f"; in {_count(known, 'network')} trained to run one, {span(known)}" if known else ""
    words += " (medians over layers). "
    if written.claimed:
        said = "; ".join(f"{each.name}: {each.claimed}" for each in written.claimed)
        return words + f"Claimed of the former: {said}."
    return words + f"The rule claims a solver of none of the former. {written.recognises}"


def _count(values: Sequence[float], what: str) -> str:
    return f"{len(values)} {what}{'' if len(values) == 1 else 's'}"


#: A kernel describes a layer where it explains this share of the response.
DESCRIBES = 0.5


def kernels_in_words(numbers: Numbers) -> str:
    """In how many layers of the models one kernel explains most of the response one layer on, and how wide it is."""
    written = Written.of(numbers)
    if written is None:
        return ""
    found, count = [], 0
    for network in written.models:
        tested = [layer for layer in network.result.layers if layer.match is not None and layer.one_layer is not None]
        count += len(tested)
        operators = [layer.one_layer for layer in tested if layer.one_layer is not None]
        found += [each.bandwidth / network.v for each in operators if each.explained >= DESCRIBES]
    if not found:
        return ""
    return (
        f"In {len(found)} of {count} layers one kernel average explains most of what comes out one layer on; its width "
        f"is {min(found):.2f} to {max(found):.2f} times that of the task's kernel, {median(found):.2f} in the median."
    )
