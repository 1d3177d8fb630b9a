"""What a model answers layer by layer, and whose steps those are: probes, match, verdict."""

from layerstep.measurement.decision import Judgement, Rule
from layerstep.measurement.evidence import Instrument
from layerstep.measurement.identify import identify
from layerstep.measurement.library import CLASSES, Library
from layerstep.measurement.match import Line, Match, layers_won, match
from layerstep.measurement.probe import Probes, probe
from layerstep.measurement.readers import GPTReader, Hooked, Reader
from layerstep.measurement.verdict import Verdict

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
