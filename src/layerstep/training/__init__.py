"""A transformer whose weights are learned: model, protocol, engine, checkpoints."""

from layerstep.training.config import PRESETS, Model, Run
from layerstep.training.evaluation import Evaluation, evaluate
from layerstep.training.gpt import GPT
from layerstep.training.loop import Diverged, train
from layerstep.training.pretrained import SHIPPED
from layerstep.training.schedule import active_points, learning_rate
from layerstep.training.sweeping import sweep
from layerstep.training.unit import Outcome

__all__ = [
    "GPT",
    "Model",
    "Run",
    "PRESETS",
    "SHIPPED",
    "train",
    "sweep",
    "Outcome",
    "Diverged",
    "Evaluation",
    "evaluate",
    "learning_rate",
    "active_points",
]
