"""What a model answers layer by layer, and whose steps those are: probes, match, verdict."""

from layerstep.measurement.identification.crossfit import Instrument
from layerstep.measurement.identification.decision import Judgement, Rule
from layerstep.measurement.identification.library import CLASSES, Library
from layerstep.measurement.identification.pipeline import identify
from layerstep.measurement.identification.result import Verdict
from layerstep.measurement.reading.hooks import GPTReader, Hooked, Reader
from layerstep.measurement.reading.probes import Probes, probe
from layerstep.measurement.similarity import Line, Match, layers_won, match

__all__ = [
    "match",
    "Match",
    "Line",
    "layers_won",
    "probe",
    "Probes",
    "Reader",
    "GPTReader",
    "Hooked",
    "identify",
    "Verdict",
    "Judgement",
    "Rule",
    "CLASSES",
    "Library",
    "Instrument",
]
