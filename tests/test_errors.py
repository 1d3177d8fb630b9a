"""Errors: every kind of number is known as one, nothing else is, and what is given in the wrong place is said so."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import layerstep as ls
from layerstep.errors import InputError, as_float, require_positive, require_square

NUMBERS = [
    (1, 1.0),
    (10**400, math.inf),
    (np.int64(3), 3.0),
    (np.float32(0.5), 0.5),
    (Fraction(1, 4), 0.25),
    (-(10**400), -math.inf),
]


@pytest.mark.parametrize(("value", "expected"), NUMBERS, ids=repr)
def test_every_real_number_is_a_float(value, expected):
    assert as_float(value) == expected


@pytest.mark.parametrize("value", ["0.5", True, np.True_, None, 1j, [0.5], math.nan], ids=repr)
def test_what_is_no_number_passes_no_comparison(value):
    assert math.isnan(as_float(value))


@pytest.mark.parametrize("check", [require_positive, require_square])
def test_numbers_of_few_digits_are_compared_without_a_warning(check):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(v=np.float16(0.5), sigma=np.float32(0.1))
        with pytest.raises(InputError, match=r"v = .*: must be a finite number above 0"):
            check(v=np.float32(np.inf))


TASK = ls.Task(N=4, d=2)
PROMPTS = ls.sample(TASK, 3, seed=0)
GPT = ls.GPT(ls.Model(layers=1, heads=1, width=4), d=2, N=4).initialise(0).eval()
PATH = ls.solve(ls.Richardson(), PROMPTS, TASK, 2)


def read(**changes):
    """The states of a model that changes nothing, at the tokens of x_1, y_1, x_2, ..."""
    given = {"model": nn.Identity().eval(), "inputs": lambda p: p.x.repeat_interleave(2, 1), "modules": [""]}
    return ls.Hooked(**(given | changes)).states(PROMPTS)


MISPLACED = {
    "solve": (lambda: ls.solve(ls.Richardson(), TASK, PROMPTS, 5), r"prompts = a Task: must be a Prompts\."),
    "solve without a task": (lambda: ls.solve(ls.Richardson(), PROMPTS, 0.1, 5), r"task = a float: must be a Task\."),
    "exact": (lambda: ls.exact(TASK, PROMPTS), r"prompts = a Task: must be a Prompts\."),
    "identify": (lambda: ls.identify(PATH, TASK, PROMPTS), r"prompts = a Task: must be a Prompts\. The order is path,"),
    "identify a name": (lambda: ls.identify(PATH, PROMPTS, "sphere"), r"task = a str: must be a Task\."),
    "match": (lambda: ls.match(PATH, PROMPTS, PATH), r"reference = a Prompts: must be a Path\. The order is path, ref"),
    "match the prompts": (lambda: ls.match(PROMPTS, PATH, PATH), r"path = a Prompts: must be a Path\."),
    "sample": (lambda: ls.sample("sphere", 2, seed=0), r"task = a str: must be a Task\. Make one with ls\.Task"),
    "path": (lambda: ls.probe(GPT, TASK, prompts=2).path(TASK), r"prompts = a Task: must be a Prompts\."),
    "inputs": (lambda: read(inputs=PROMPTS.x), "inputs = a Tensor: must be a function from prompts"),
    "tokens": (lambda: read(tokens="all"), r"tokens = 'all': must be a slice or a list of integers\. All: slice"),
    "fractions of tokens": (lambda: read(tokens=[0.0, 2.0]), r"tokens = \[0\.0, 2\.0\]: must be a slice or a list"),
    "one token": (lambda: read(tokens=0), "tokens = 0: must be a slice or a list of integers"),
    "tokens too far": (lambda: read(tokens=[0, 2, 4, 6, 10]), r"tokens = \[.*10\]: do not fit the 10 tokens of "),
    "backwards": (lambda: read(tokens=slice(None, None, -2)), r"tokens = slice\(.*\): do not fit the 10 tokens of "),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_arguments_of_another_kind_are_refused_in_words(name, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    call, words = MISPLACED[name]
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.parametrize("make", [list, tuple, torch.tensor, np.array])
def test_tokens_are_picked_by_anything_that_holds_integers(make, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    tokens = range(0, 10, 2)
    assert torch.equal(read(tokens=make(tokens))[0], read(tokens=tokens)[0])
