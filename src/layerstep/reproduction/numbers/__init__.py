"""Numbers of the paper's experiments as frozen values, computed once and kept as JSON. Nothing here draws."""

from layerstep.reproduction.numbers.collection import Numbers, collect
from layerstep.reproduction.numbers.constructed import MEASURED, PROMISE, Schemes, Walk
from layerstep.reproduction.numbers.curves import SolverCurves
from layerstep.reproduction.numbers.measurements import usable_models
from layerstep.reproduction.numbers.model import (
    CUT,
    SOLVER_LABELS,
    Alignment,
    ModelNumbers,
    Models,
    SolverMatch,
    r2_text,
    twin,
)
from layerstep.reproduction.numbers.noise import TABLE_SEQUENCES, Ratio, RidgeNoise
from layerstep.reproduction.numbers.store import Store, code_identity, read_result, to_json, write_result
from layerstep.reproduction.numbers.systems import Conditioning, Precision
from layerstep.reproduction.numbers.trained_noise import ModelNoise
from layerstep.reproduction.numbers.verdicts import CONTROLS, VERDICT_SEED, ModelVerdict, Verdicts, model_verdicts

__all__ = [
    "Alignment", "CONTROLS", "CUT", "Conditioning", "MEASURED", "ModelNoise", "ModelNumbers", "ModelVerdict",
    "Models", "Numbers", "PROMISE", "Precision", "Ratio", "RidgeNoise", "SOLVER_LABELS", "Schemes", "SolverCurves",
    "SolverMatch", "Store", "TABLE_SEQUENCES", "VERDICT_SEED", "Verdicts", "Walk", "code_identity", "collect",
    "model_verdicts", "r2_text", "read_result", "to_json", "twin", "usable_models", "write_result",
]  # fmt: skip
