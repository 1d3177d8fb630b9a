"""A transformer whose weights are written: named stream, blocks, schemes, certificates."""

from layerstep.construction.certificate import Certificate, Prediction
from layerstep.construction.construct import SCHEMES, construct
from layerstep.construction.convergence import convergence_data
from layerstep.construction.network import Construction
from layerstep.construction.stream import Stream

__all__ = ["SCHEMES", "Certificate", "Construction", "Prediction", "Stream", "construct", "convergence_data"]
