"""What a model computes layer by layer: reading it, the paper's metrics, and which solver its layers follow."""

from layerstep.measurement.combined.entry import identify
from layerstep.measurement.combined.result import Identification
from layerstep.measurement.comparison import Comparison, compare
from layerstep.measurement.identification.crossfit import Instrument
from layerstep.measurement.identification.decision import RangeResult, Rule
from layerstep.measurement.identification.families import CLASSES, FAMILIES, Family
from layerstep.measurement.identification.linear_tasks import linear_families
from layerstep.measurement.identification.result import Verdict
from layerstep.measurement.interventions.instrument import intervene
from layerstep.measurement.interventions.result import CausalResult
from layerstep.measurement.interventions.rule import CausalRule
from layerstep.measurement.reading.edits import Recording
from layerstep.measurement.reading.hooks import GPTReader, Hooked, Reader
from layerstep.measurement.reading.probes import Probes, probe
from layerstep.measurement.reading.published import load
from layerstep.measurement.reading.readouts import Readouts, read_three_ways
from layerstep.measurement.reading.tokens import interleaved, pairs
from layerstep.measurement.similarity import Line, Match, layers_won, match

__all__ = [
    "CLASSES",
    "CausalResult",
    "CausalRule",
    "Comparison",
    "FAMILIES",
    "Family",
    "GPTReader",
    "Hooked",
    "Identification",
    "Instrument",
    "Line",
    "Match",
    "Probes",
    "RangeResult",
    "Reader",
    "Readouts",
    "Recording",
    "Rule",
    "Verdict",
    "compare",
    "identify",
    "interleaved",
    "intervene",
    "layers_won",
    "linear_families",
    "load",
    "match",
    "pairs",
    "probe",
    "read_three_ways",
]
