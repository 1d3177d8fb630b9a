"""Numbers of the paper's experiments as frozen values, computed once and kept as JSON. Nothing here draws."""

from layerstep.reproduction.numbers.collection import Numbers, collect
from layerstep.reproduction.numbers.constructed import MEASURED, Schemes, Walk
from layerstep.reproduction.numbers.impulse import Impulse
from layerstep.reproduction.numbers.interventions import Reading, WrittenInto, measure_interventions
from layerstep.reproduction.numbers.linear_models import LinearModel, measure_linear_models
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
from layerstep.reproduction.numbers.noise import NOISE_SEQUENCES, TABLE_SEQUENCES, ModelNoise, Ratio, RidgeNoise
from layerstep.reproduction.numbers.open_mask import OpenMask
from layerstep.reproduction.numbers.planted_paths import PlantedPath
from layerstep.reproduction.numbers.solvers import Conditioning, Precision, SolverCurve, SolverCurves
from layerstep.reproduction.numbers.store import Store, code_identity, read_result, to_json, write_result
from layerstep.reproduction.numbers.verdict import VERDICT_SEED, ModelVerdict
from layerstep.reproduction.numbers.verdicts import CONTROLS, Verdicts, calibrated_rule, make_verdicts, model_verdicts
from layerstep.reproduction.runs import DEEP, SEEDS, human_name
from layerstep.reproduction.settings import (
    BOOTSTRAP_SEED,
    CURVE_CONTEXTS,
    DISTRIBUTIONS,
    EVALUATION_SEED,
    EVALUATION_SEQUENCES,
    SETTINGS,
    SIGMA_TEST,
    SPHERE,
    TITLES,
)

__all__ = [
    "Alignment", "BOOTSTRAP_SEED", "calibrated_rule", "code_identity", "collect", "Conditioning", "CONTROLS",
    "CURVE_CONTEXTS", "CUT", "DEEP", "DISTRIBUTIONS", "EVALUATION_SEED", "EVALUATION_SEQUENCES", "human_name",
    "Impulse", "LinearModel", "make_verdicts", "measure_interventions", "measure_linear_models", "MEASURED",
    "model_verdicts", "ModelNoise", "ModelNumbers", "Models", "ModelVerdict", "NOISE_SEQUENCES", "Numbers",
    "OpenMask", "PlantedPath", "Precision", "r2_text", "Ratio", "read_result", "Reading", "RidgeNoise", "Schemes",
    "SEEDS", "SETTINGS", "SIGMA_TEST", "SOLVER_LABELS", "SolverCurve", "SolverCurves", "SolverMatch", "SPHERE",
    "Store", "TABLE_SEQUENCES", "TITLES", "to_json", "twin", "VERDICT_SEED", "Verdicts", "Walk", "write_result",
    "WrittenInto",
]  # fmt: skip
