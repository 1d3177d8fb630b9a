"""One prepared instrument for the package's tests: the whole library on few prompts, with few bandwidths."""

import pytest

import layerstep as ls
from layerstep.measurement import Instrument

TASK = ls.Task(inputs="gaussian")


@pytest.fixture(scope="session")
def prompts():
    return ls.sample(TASK, 96, seed=21)


@pytest.fixture(scope="session")
def instrument(prompts):
    return Instrument.prepare(prompts, TASK, bandwidths=(0.95, 1.0, 1.05), ridges=(2.0,))
