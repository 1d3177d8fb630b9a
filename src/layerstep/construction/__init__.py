"""A transformer whose weights are constructed: splines, named stream, blocks, schemes, certificates."""

from typing import TYPE_CHECKING, Any

from layerstep.construction.build import SCHEMES, construct
from layerstep.construction.certificate import Certificate, Prediction
from layerstep.construction.convergence import convergence_data
from layerstep.construction.iterates import Iterates
from layerstep.construction.kernels import GaussianMixture, Matern, RationalQuadratic
from layerstep.construction.network import Construction
from layerstep.construction.schemes.deflation import Interval, calibrate_interval
from layerstep.construction.stream import Stream

if TYPE_CHECKING:
    from layerstep.construction.estimator import TransformerKRR

__all__ = [
    "SCHEMES",
    "Certificate",
    "Construction",
    "GaussianMixture",
    "Interval",
    "Iterates",
    "Matern",
    "Prediction",
    "RationalQuadratic",
    "Stream",
    "TransformerKRR",
    "calibrate_interval",
    "construct",
    "convergence_data",
]


def __getattr__(name: str) -> Any:
    if name != "TransformerKRR":  # scikit-learn is loaded by those who use it
        raise AttributeError(f"layerstep.construction has no {name!r}")
    from layerstep.construction.estimator import TransformerKRR

    return TransformerKRR
