"""What is asked: tasks, kernels, input distributions, prompts, and the Trajectory every answer is given in."""

from layerstep.tasks.base import KernelTask, TaskProtocol, require_task, sample
from layerstep.tasks.inputs import INPUTS
from layerstep.tasks.kernels import KERNELS, import_kernel
from layerstep.tasks.prompts import Prompts
from layerstep.tasks.registry import TASKS, task_from_dict
from layerstep.tasks.regression import LinearRegression
from layerstep.tasks.task import Task
from layerstep.tasks.trajectory import Trajectory

Path = Trajectory  # its name before 0.2

__all__ = [
    "INPUTS",
    "KERNELS",
    "KernelTask",
    "LinearRegression",
    "Path",
    "Prompts",
    "TASKS",
    "Task",
    "TaskProtocol",
    "Trajectory",
    "import_kernel",
    "require_task",
    "sample",
    "task_from_dict",
]
