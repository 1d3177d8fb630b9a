"""The settings of the paper's experiments, and the prompts on which everything is evaluated."""

from __future__ import annotations

import functools

from layerstep.tasks import Prompts, Task, sample

#: Task by name. The paper's text says gaussian inputs have s.d. 0.6; its noise table fits 1.0: both are here.
SETTINGS: dict[str, Task] = {
    "sphere": Task(inputs="sphere"),
    "uniform": Task(inputs="uniform"),
    "gaussian": Task(inputs="gaussian", input_std=0.6),
    "gaussian-1.0": Task(inputs="gaussian", input_std=1.0),
    "sphere-v2": Task(inputs="sphere", v=2.0),
    "arccos1": Task(inputs="sphere", kernel="arccos1"),
}
SPHERE = SETTINGS["sphere"]
TITLES = {
    "sphere": "sphere",
    "uniform": "uniform",
    "gaussian": "Gaussian, s.d. 0.6",
    "gaussian-1.0": "Gaussian, s.d. 1.0",
    "sphere-v2": "sphere, v = 2",
    "arccos1": "sphere, arc-cosine kernel",
}
#: The paper's three input distributions: a setting each, and the default model trained on it.
DISTRIBUTIONS = ("sphere", "uniform", "gaussian")

#: Context lengths of the curves by step and by layer.
CURVE_CONTEXTS = (2, 10, 15, 20, 25, 30, 35, 40)
#: Standard deviations of the noise in prompts, at n = N.
SIGMA_TEST = (1e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0)

#: The paper evaluates on 256 sequences with one fixed seed; this is ours.
EVALUATION_SEED = 256
EVALUATION_SEQUENCES = 256
BOOTSTRAP_SEED = 1


def evaluation_prompts(setting: str, B: int = EVALUATION_SEQUENCES) -> Prompts:
    """The prompts every figure of `setting` is made from; the first 256 of any larger number are the same."""
    return _drawn(SETTINGS[setting], B)


@functools.lru_cache(maxsize=8)
def _drawn(task: Task, B: int) -> Prompts:
    """The same tensors for every caller: not to be written to."""
    return sample(task, B, seed=EVALUATION_SEED)
