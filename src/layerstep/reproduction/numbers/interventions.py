"""What came out when the layers of every model with weights were written into: kept in results/interventions.

A measurement (`layerstep reproduce --measure missing`, about a minute per network) holds what any rule needs; the claim
is made when it is read, by the rule of today.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from layerstep.errors import FileError, LayerstepError
from layerstep.files import digest, provenance, read_json, write_json
from layerstep.measurement import Verdict, identify
from layerstep.measurement.calibration.controls.suite import controls
from layerstep.measurement.calibration.mechanisms import Mechanism
from layerstep.measurement.interventions.instrument import intervene
from layerstep.measurement.interventions.result import CausalResult
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.measurement.reading.hooks import reader_of
from layerstep.reproduction.numbers.impulse import Impulse, impulse_response
from layerstep.reproduction.numbers.store import Json, code_identity, from_json, to_json
from layerstep.reproduction.runs import models_folder, results_folder
from layerstep.reproduction.settings import DISTRIBUTIONS, SETTINGS, SPHERE
from layerstep.tasks import Task
from layerstep.training import GPT, Model

SEED = 0
DIGITS = 6
Group = Literal["planted", "positive", "near miss", "decoy", "untrained", "labels", "open", "causal"]


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network that is written into. truth: what its layers run, "" where nobody knows or there is nothing."""

    name: str
    group: Group
    mask: str
    task: Task
    truth: str = ""
    place: Path | None = None
    mechanism: Mechanism | None = None

    def open(self) -> Any:
        if self.mechanism is not None:
            return self.mechanism.reader(self.task)
        if self.place is not None:
            return GPT.from_pretrained(self.place).eval()
        return GPT(Model(mask=self.mask), d=self.task.d, N=self.task.N).initialise(SEED).eval()  # type: ignore[arg-type]

    @property
    def identity(self) -> Json:
        """What its measurement depends on but for code."""
        about: Json = {"task": self.task.to_dict(), "mask": self.mask, "seed": SEED}
        if self.mechanism is not None:
            return about | {"mechanism": self.mechanism.to_dict()}
        return about | {"weights": self._weights()}

    def _weights(self) -> dict[str, str]:
        files = [] if self.place is None else sorted(self.place.glob("model*.safetensors"))
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in files}


def networks() -> list[Network]:
    """Those whose weights are here, those that are made on the spot; what is known first."""
    home = results_folder()
    planted = {"steps": (1,) * 12, "seed": SEED}
    found = [
        _planted("planted-richardson", Mechanism(solver="richardson", mask="open", **planted)),
        _planted("planted-richardson-dual", Mechanism(solver="richardson", form="dual", mask="open", **planted)),
        _planted("planted-causal-richardson", Mechanism(solver="causal-richardson", mask="causal", **planted)),
    ]
    groups: dict[str, Group] = {
        "positive": "positive", "near-miss": "near miss", "decoy": "decoy", "labels": "labels"
    }  # fmt: skip
    for control in controls():
        mechanism = control.mechanism
        known = mechanism is not None and control.kind in ("positive", "near-miss")
        found.append(
            Network(
                name=control.name,
                group=groups[control.kind],
                mask=control.mask,
                task=control.run.task,
                truth=mechanism.solver if known and mechanism is not None else "",
                place=home / "controls" / control.name,
            )
        )
    found += [
        Network(name=f"untrained-{mask}", group="untrained", mask=mask, task=SPHERE) for mask in ("causal", "open")
    ]
    for name in ("open-sphere-seed-0", "open-sphere-seed-1", "open-uniform", "open-gaussian"):
        place = home / "open" / name
        found.append(Network(name=name, group="open", mask="open", task=SETTINGS[name.split("-")[1]], place=place))
    found += [
        Network(name=name, group="causal", mask="causal", task=SETTINGS[name], place=models_folder() / name)
        for name in DISTRIBUTIONS
    ]
    return [each for each in found if each.place is None or each._weights()]


def _planted(name: str, mechanism: Mechanism) -> Network:
    return Network(
        name=name,
        group="planted",
        mask=mechanism.mask,
        task=SPHERE,
        truth=mechanism.solver,
        mechanism=mechanism,
    )


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The verdict on what one reading reads off the layers."""

    solver: str | None
    status: str
    nearest: str | None
    U: float | None
    V: float | None

    @staticmethod
    def of(verdict: Verdict) -> Reading:
        overall = verdict.overall
        nearest = overall.fits[0].kind if overall.fits else None
        U, V = (None if math.isnan(value) else float(value) for value in (overall.U, overall.V))
        return Reading(solver=overall.solver, status=overall.status, nearest=nearest, U=U, V=V)


@dataclass(frozen=True, kw_only=True)
class WrittenInto:
    """What is known of one network: by writing into its layers, a bump followed, and three readings of the layers.

    readings: by "labels" (probes fitted on y), "output" (maps to the model's output), "lens" (its own head). bumps
    and readings are empty where they were not measured.
    """

    name: str
    group: str
    mask: str
    inputs: str
    truth: str
    result: CausalResult
    bumps: list[Impulse]
    readings: dict[str, Reading]

    @property
    def v(self) -> float:
        """The width of the task's kernel."""
        return self.result.facts["task"]["v"]

    @property
    def is_recognisable(self) -> bool:
        """Whether the solver it runs is one of those that were tried."""
        return self.truth in self.result.facts["solvers"]

    @property
    def left(self) -> list[float]:
        """By layer, the share of the response that the nearest solver leaves, in whichever form."""
        matches = [layer.match for layer in self.result.layers if layer.match is not None]
        return [min(each.unexplained for each in match.ranking) for match in matches]

    @property
    def claimed(self) -> str:
        """What is claimed of it under today's rule, in words; "" for nothing."""
        return "; ".join(dict.fromkeys(f"{claim.solver}, {claim.form}" for claim in self.result.claims))


#: A part of a measurement by name, and the module whose code measures it.
PARTS = {
    "result": "layerstep.measurement.interventions.instrument",
    "bumps": "layerstep.reproduction.numbers.impulse",
    "readings": "layerstep.measurement.combined.entry",
}


def place_of(name: str) -> Path:
    return results_folder() / "interventions" / f"{name}.json"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a measurement, and by which code and where it was made."""

    code: str
    provenance: Json
    seconds: float
    cpu_seconds: float
    digest: str
    data: Any


def written_into(rule: CausalRule | None = None) -> dict[str, WrittenInto]:
    """What was measured of the networks whose weights are here, by name; under today's rule, or another."""
    found = {}
    for network in networks():
        kept = {name: part.data for name, part in kept_parts(network).items()}
        with contextlib.suppress(KeyError, TypeError, LayerstepError):
            found[network.name] = WrittenInto(
                name=network.name,
                group=network.group,
                mask=network.mask,
                inputs=network.task.inputs,
                truth=network.truth,
                result=CausalResult.from_dict(_tuples(kept["result"]), rule or CausalRule()),
                bumps=from_json(list[Impulse], kept.get("bumps", [])),
                readings=from_json(dict[str, Reading], kept.get("readings", {})),
            )
    return found


def kept_parts(network: Network) -> dict[str, Part]:
    """The parts that were measured of this network as it is."""
    with contextlib.suppress(FileError, TypeError):
        found = read_json(place_of(network.name))
        if isinstance(found, dict) and found.get("identity") == digest(network.identity):
            parts: dict[str, Part] = from_json(dict[str, Part], found.get("parts"))
            return {name: part for name, part in parts.items() if digest(part.data) == part.digest}
    return {}


def _tuples(value: Any) -> Any:
    """JSON with the sequences that results have: tuples of numbers, lists of what is built from them."""
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    parts = [_tuples(each) for each in value]
    return parts if parts and isinstance(parts[0], dict) else tuple(parts)


# Measuring ------------------------------------------------------------------------------------------------------------


def measure_interventions(say: Callable[[str], None], *, again: bool = False) -> None:
    """Measure what results/interventions does not have; again: and what other code measured."""
    for network in networks():
        for name, module in PARTS.items():
            kept, code = kept_parts(network), code_identity(module)
            if name in kept and (not again or kept[name].code == code):
                continue
            say(f"writing into {network.name}: {name}")
            start, used = time.perf_counter(), time.process_time()
            data = rounded(_measure(network, name))
            part = Part(
                code=code,
                provenance=provenance(),
                seconds=round(time.perf_counter() - start, 1),
                cpu_seconds=round(time.process_time() - used, 1),
                digest=digest(data),
                data=data,
            )
            parts = kept_parts(network) | {name: part}  # another part may have been written meanwhile
            about = {"name": network.name, "identity": digest(network.identity), "config": network.identity}
            write_json(place_of(network.name), {**about, "parts": to_json(parts)})


def _measure(network: Network, part: str) -> Any:
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
