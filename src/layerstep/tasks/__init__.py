"""What is asked: kernels, input distributions, prompts, and the Trajectory every answer is given in."""

from layerstep.tasks.inputs import INPUTS
from layerstep.tasks.kernels import KERNELS
from layerstep.tasks.prompts import Prompts, sample
from layerstep.tasks.task import Task
from layerstep.tasks.trajectory import Trajectory

Path = Trajectory  # its name before 0.2

__all__ = ["INPUTS", "KERNELS", "Path", "Prompts", "Task", "Trajectory", "sample"]
