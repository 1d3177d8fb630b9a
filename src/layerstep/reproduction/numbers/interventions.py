"""What came out when the layers of every model with weights were written into: read from results/interventions.

A measurement (`numbers.intervening`) holds what any rule needs; the claim is made here, by the rule of today.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from layerstep.errors import FileError, LayerstepError
from layerstep.files import digest, read_json
from layerstep.measurement import Verdict
from layerstep.measurement.calibration.controls.suite import controls
from layerstep.measurement.calibration.mechanisms import Mechanism
from layerstep.measurement.interventions.result import CausalResult
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.reproduction import runs
from layerstep.reproduction.numbers.impulse import Impulse
from layerstep.reproduction.numbers.store import Json, from_json
from layerstep.reproduction.settings import DISTRIBUTIONS, SETTINGS
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
    home = runs.MODELS.parent
    sphere = SETTINGS["sphere"]
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
        Network(name=f"untrained-{mask}", group="untrained", mask=mask, task=sphere) for mask in ("causal", "open")
    ]
    for name in ("open-sphere-seed-0", "open-sphere-seed-1", "open-uniform", "open-gaussian"):
        place = home / "open" / name
        found.append(Network(name=name, group="open", mask="open", task=SETTINGS[name.split("-")[1]], place=place))
    found += [
        Network(name=name, group="causal", mask="causal", task=SETTINGS[name], place=runs.MODELS / name)
        for name in DISTRIBUTIONS
    ]
    return [each for each in found if each.place is None or each._weights()]


def _planted(name: str, mechanism: Mechanism) -> Network:
    return Network(
        name=name,
        group="planted",
        mask=mechanism.mask,
        task=SETTINGS["sphere"],
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
    return runs.MODELS.parent / "interventions" / f"{name}.json"


def written_into(rule: CausalRule | None = None) -> dict[str, WrittenInto]:
    """What was measured of the networks whose weights are here, by name; under today's rule, or another."""
    found = {}
    for network in networks():
        kept = kept_parts(network)
        with contextlib.suppress(KeyError, TypeError, LayerstepError):
            data = {"bumps": [], "readings": {}} | {part: each["data"] for part, each in kept.items()}
            found[network.name] = WrittenInto(
                name=network.name,
                group=network.group,
                mask=network.mask,
                inputs=network.task.inputs,
                truth=network.truth,
                result=CausalResult.from_dict(_tuples(data["result"]), rule or CausalRule()),
                bumps=from_json(list[Impulse], data["bumps"]),
                readings=from_json(dict[str, Reading], data["readings"]),
            )
    return found


def kept_parts(network: Network) -> Json:
    """The parts that were measured of this network as it is."""
    with contextlib.suppress(FileError):
        found = read_json(place_of(network.name))
        if isinstance(found, dict) and found.get("identity") == digest(network.identity):
            return {part: each for part, each in found["parts"].items() if digest(each["data"]) == each["digest"]}
    return {}


def _tuples(value: Any) -> Any:
    """JSON with the sequences that results have: tuples of numbers, lists of what is built from them."""
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    parts = [_tuples(each) for each in value]
    return parts if parts and isinstance(parts[0], dict) else tuple(parts)
