"""Numbers of the paper's experiments as frozen values, computed once and kept as JSON. Nothing here draws."""

from layerstep.reproduction.numbers.collection import Numbers, collect
from layerstep.reproduction.numbers.constructed import MEASURED, Schemes, Walk
from layerstep.reproduction.numbers.curves import SolverCurves
from layerstep.reproduction.numbers.impulse import Impulse
from layerstep.reproduction.numbers.interventions import Reading, WrittenInto
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
from layerstep.reproduction.numbers.open_mask import OpenMask
from layerstep.reproduction.numbers.store import Store, code_identity, read_result, to_json, write_result
from layerstep.reproduction.numbers.systems import Conditioning, Precision
from layerstep.reproduction.numbers.trained_noise import ModelNoise
from layerstep.reproduction.numbers.verdict import VERDICT_SEED, ModelVerdict
from layerstep.reproduction.numbers.verdicts import CONTROLS, Verdicts, calibrated_rule, model_verdicts
from layerstep.reproduction.runs import DEEP, SEEDS
from layerstep.reproduction.settings import (
    BOOTSTRAP_SEED,
    DISTRIBUTIONS,
    EVALUATION_SEED,
    EVALUATION_SEQUENCES,
    SETTINGS,
    SIGMA_TEST,
    SPHERE,
    TITLES,
)

__all__ = [
    "Alignment", "BOOTSTRAP_SEED", "CONTROLS", "CUT", "Conditioning", "DEEP", "DISTRIBUTIONS", "EVALUATION_SEED",
    "EVALUATION_SEQUENCES", "Impulse", "MEASURED", "ModelNoise", "ModelNumbers", "ModelVerdict", "Models", "Numbers",
    "OpenMask", "Precision", "Ratio", "Reading", "RidgeNoise", "SEEDS", "SETTINGS", "SIGMA_TEST", "SOLVER_LABELS",
    "SPHERE", "Schemes", "SolverCurves", "SolverMatch", "Store", "TABLE_SEQUENCES", "TITLES", "VERDICT_SEED",
    "Verdicts", "Walk", "WrittenInto", "calibrated_rule", "code_identity", "collect", "model_verdicts", "r2_text",
    "read_result", "to_json", "twin", "usable_models", "write_result",
]  # fmt: skip
