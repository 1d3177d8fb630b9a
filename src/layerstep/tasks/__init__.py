"""What is asked: kernels, laws of inputs, prompts, and the Path every answer is given in."""

from layerstep.tasks.inputs import INPUTS
from layerstep.tasks.kernels import KERNELS
from layerstep.tasks.path import Path
from layerstep.tasks.prompts import Prompts, sample
from layerstep.tasks.task import Task

__all__ = ["INPUTS", "KERNELS", "Path", "Prompts", "Task", "sample"]
