"""Where work that falls into independent units is done: a pool of workers, Slurm, Ray. None of them is of our own."""

from layerstep.engines.choice import choose_engine
from layerstep.engines.driving import Work, drive
from layerstep.engines.pieces import compute_pieces
from layerstep.engines.pool import Engine

__all__ = ["Engine", "Work", "choose_engine", "compute_pieces", "drive"]
