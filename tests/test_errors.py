"""Errors: every kind of number is known as one, nothing else is, and what is given in the wrong place is said so."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import layerstep as ls
from layerstep import errors
from layerstep.construction import calibrate_interval
from layerstep.errors import FileError, InputError, as_dtype, as_float, as_path, require_positive, require_square
from layerstep.measurement import intervene, read_three_ways

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
def test_what_is_not_a_number_passes_no_comparison(value):
    assert math.isnan(as_float(value))


@pytest.mark.parametrize("check", [require_positive, require_square])
def test_numbers_of_few_digits_are_compared_without_a_warning(check):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(v=np.float16(0.5), sigma=np.float32(0.1))
        with pytest.raises(InputError, match=r"v = .*: must be a finite number above 0"):
            check(v=np.float32(np.inf))


REFUSED = {
    "many digits": (lambda: errors.require_count(1, 5, n=10**5000), "n = an int of thousands of digits: must be an in"),
    "long text": (lambda: require_positive(v="1" * 10_000), r"v = '1{79}\.\.\.1{19}' \(10,002 characters\): must be"),
    "an array": (lambda: errors.require_count(n=np.ones(3)), r"n = a ndarray of shape \[3\]: must be an integer of at"),
    "a choice": (lambda: errors.require_choice("x", np.ones(2), ["a"]), r"x = a ndarray of shape \[2\]: must be one"),
    "seed": (lambda: errors.require_seed(seed=-1), r"seed = -1: must be an integer from 0 to 2\*\*64 - 1"),
    "kinds": (lambda: errors.require_kind("model", None, (str, int)), "model = None: must be a str or an int"),
    "callable": (lambda: errors.require_callable("f", 3, "a function of x"), "f = 3: must be a function of x"),
    "number as path": (lambda: as_path("out", 5), "out = 5: must be the path of a file or directory"),
    "bytes as path": (lambda: as_path("out", b"x"), "out = b'x': must be the path"),
    "no path": (lambda: as_path("out", ""), "out = '': must be a path, not empty"),
    "NUL": (lambda: as_path("out", "a\0"), "must be a path, not empty"),
    "surrogate": (lambda: as_path("out", "\ud800"), "must be a path, not empty"),
    "long name": (lambda: as_path("out", "é" * 128), "must be a path whose names have at most 255 bytes. Choose a sho"),
    "long path": (lambda: as_path("out", "a/" * 2100), "must be a path whose names have at most 255 bytes"),
    "integers": (lambda: as_dtype("int8"), "dtype = 'int8': must be one of float64, float32, bfloat16, float16"),
    "not a type": (lambda: as_dtype(None), "dtype = 'None': must be one of float64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_shared_checks_refuse_in_one_short_sentence(name):
    call, words = REFUSED[name]
    with pytest.raises(InputError, match=words) as refused:
        call()
    assert len(str(refused.value)) < 400


def test_a_message_repeats_no_long_word():
    words = str(FileError(f"cannot read {'a' * 5000}: no such file"))
    assert len(words) < 700
    assert words.endswith(" no such file")
    assert len(str(FileError("frame of a library " * 1000))) < 700


@pytest.mark.parametrize("dtype", ["float32", "torch.float32", torch.float32, np.float32], ids=repr)
def test_a_dtype_has_many_names(dtype):
    assert as_dtype(dtype) is torch.float32


def test_a_path_is_taken_as_it_is(tmp_path):
    assert as_path("out", tmp_path) == as_path("out", str(tmp_path)) == tmp_path
    assert as_path("out", "a" * 255).name == "a" * 255


def test_a_loop_of_links_is_not_a_path(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match=r"out = .*loop/deeper': must be a path whose links do not lead back"):
        as_path("out", tmp_path / "loop" / "deeper")


TASK = ls.Task(N=4, d=2)
PROMPTS = ls.sample(TASK, 3, seed=0)
GPT = ls.GPT(ls.Model(layers=1, heads=1, width=4), d=2, N=4).initialise(0).eval()
PATH = ls.solve(ls.Richardson(), PROMPTS, TASK, 2)


def read(**changes):
    """The states of a model that changes nothing, at the tokens of x_1, y_1, x_2, ..."""
    given = {"model": nn.Identity().eval(), "inputs": lambda p: p.x.repeat_interleave(2, 1), "modules": [""]}
    return ls.Hooked(**(given | changes)).states(PROMPTS)


def solved_by(iterates):
    """What a solver of the user's answers: a function of the system that gives its iterates."""

    class Own(ls.IterativeSolver):
        label = "own"

        def iterates(self, system):
            return iter(iterates(system))

    return ls.solve(Own(), PROMPTS, TASK, 2)


MISPLACED = {
    "a truth that is an array": (
        lambda: ls.TransformerKRR(scale=np.ones(2)).fit(np.ones((2, 1)), [0.0, 1.0]),
        r"scale = a ndarray of shape \[2\]: must be True or False",
    ),
    "a refresh that is an array": (
        lambda: ls.construct(2, 4, 1.0, 0.5, scheme="adaptive", hi=1.0, L=1, refresh=np.ones(2)),
        r"refresh = a ndarray of shape \[2\]: must be True or False",
    ),
    **{
        f"{kind.__name__} with an array for a truth": (
            lambda kind=kind, name=name: kind(**{name: np.ones(2)}),
            rf"{name} = a ndarray of shape \[2\]: must be True or False",
        )
        for kind, name in (
            (ls.RecursiveKRR, "newest_first"),
            (ls.GradientDescentPlusPlus, "absolute"),
            (ls.ConjugateGradient, "reorthogonalize"),
        )
    },
    "progress of a training in an array": (
        lambda: ls.train(ls.PRESETS["tiny"], "nowhere", progress=np.ones(2)),
        r"progress = a ndarray of shape \[2\]: must be True or False",
    ),
    "progress of a sweep in an array": (
        lambda: ls.sweep([ls.PRESETS["tiny"]], "nowhere", progress=np.ones(2)),
        r"progress = a ndarray of shape \[2\]: must be True or False",
    ),
    "heads without end": (
        lambda: ls.GaussianMixture.fit("matern52", 1e-3, heads=10**400),
        "heads = .*: must be an integer from 1 to 64",
    ),
    "a bound asked for by an array": (
        lambda: ls.TransformerKRR().fit([[0.0], [1.0]], [0.0, 1.0]).predict([[0.0]], return_bound=np.ones(2)),
        r"return_bound = a ndarray of shape \[2\]: must be True or False",
    ),
    "an integer too long for a float": (
        lambda: ls.TransformerKRR().fit(10**400, [0.0, 1.0]),
        "X or y: must be numbers of float64",
    ),
    "prompts without end": (lambda: read_three_ways(GPT, TASK, PROMPTS, fit=10**30), "fit = 1000.*to 100000000"),
    "a mixture of nothing": (lambda: ls.GaussianMixture.from_dict([None]), r"fields = a list: must be a Mapping"),
    "a mixture of something else": (
        lambda: ls.construct(2, 4, 1.0, 0.5, L=1, kernel={"a": 1}),
        "fields keys = a: must be among weights, widths",
    ),
    "ragged length scales": (
        lambda: ls.construct(2, 4, [[1.0], [2.0, 3.0]], 0.5, L=1),
        "v is not an array of numbers",
    ),
    "ragged length scales of an estimator": (
        lambda: ls.TransformerKRR(v=[[1.0], [2.0, 3.0]]).fit([[0.0], [1.0]], [0.0, 1.0]),
        "length_scale is not an array of numbers",
    ),
    "no length scale": (lambda: calibrate_interval(PROMPTS, [], 0.1), "v = 0 numbers: must be 1 or d = 2 numbers"),
    "a length scale in a dictionary": (
        lambda: calibrate_interval(PROMPTS, {"a": 1}, 0.1),
        r"v = \{'a': 1\}: must be a finite number above 0",
    ),
    "no task to read": (lambda: read_three_ways(GPT, len, PROMPTS), "task = a builtin_function.*: must be a Task"),
    "a head that is none": (
        lambda: read_three_ways(GPT, TASK, PROMPTS, head=TASK),
        r"head = .*: must be a function from a state",
    ),
    "a head that raises": (
        lambda: read_three_ways(GPT, TASK, PROMPTS, head=int, fit=8),
        "head: raised .*Error: .* It must turn a state",
    ),
    "counts in an array": (lambda: intervene(GPT, TASK, prompts=torch.ones(2, 2)), "prompts = a Tensor: must be a Map"),
    "a network for another task": (
        lambda: ls.identify(ls.construct(2, 4, 1.0, 0.5, L=1), {}),
        r"task = a dict: must be a Task\. ls\.identify\(network\) takes its own",
    ),
    "a network of many lengths": (
        lambda: ls.identify(ls.construct(2, 4, [1.0, 2.0], 0.5, L=1)),
        r"model = Construction.*: must be a network of one length scale",
    ),
    "a network of Gaussians": (
        lambda: ls.identify(ls.construct(2, 4, 1.0, 0.5, L=1, kernel=ls.GaussianMixture(weights=[1], widths=[2]))),
        "model = of Gaussians of your own: must be a network whose kernel has a name",
    ),
    "a solver of another shape": (
        lambda: solved_by(lambda system: [torch.zeros(7)]),
        r"iterate 0 of 'own' = a Tensor of shape \[7\]: must be a tensor of shape \[3, 4\], as system.y",
    ),
    "a solver in NumPy": (
        lambda: solved_by(lambda system: [np.zeros((3, 4))]),
        r"iterate 0 of 'own' = a ndarray of shape \[3, 4\]: must be a tensor",
    ),
    "inputs for tokens": (
        lambda: GPT(PROMPTS.x),
        r"tokens = torch.float64: must be torch.float32, as the model's weigh",
    ),
    "a device as precision": (lambda: PROMPTS.to("cuda"), r"dtype = 'cuda': must be .*A device is the second argument"),
    "one prompt": (lambda: ls.Prompts(PROMPTS.x[0], PROMPTS.y[0]), r"x\.shape = \[5, 2\]: must be \[B, N\+1, d\]"),
    "one query": (
        lambda: ls.construct(2, 4, 1.0, 0.5, L=1).predict(PROMPTS.x[0], PROMPTS.y[0], PROMPTS.x[0, 4]),
        r"xq\.shape = \[2\]: must be \[M, d\]",
    ),
    "labels of other contexts": (
        lambda: ls.solve(ls.Richardson(), PROMPTS, TASK, 1).mse(ls.sample(ls.Task(N=3, d=2), 3, seed=0)),
        "contexts = up to 4: must be at most N = 3 of the prompts",
    ),
    "neither error nor depth": (
        lambda: ls.construct(2, 4, 1.0, 0.5, B_y=1.0),
        "error = None and L = None: must be given, one of the two. error asks for a guarantee",
    ),
    "both": (
        lambda: ls.construct(2, 4, 1.0, 0.5, B_y=1.0, L=1, error=0.1),
        "error = 0.1 and L = 1: must be one of the two, not both",
    ),
    "solve": (lambda: ls.solve(ls.Richardson(), TASK, PROMPTS, 5), r"prompts = a Task: must be a Prompts\."),
    "solve without a task": (lambda: ls.solve(ls.Richardson(), PROMPTS, 0.1, 5), r"task = a float: must be a Task\."),
    "exact": (lambda: ls.exact(TASK, PROMPTS), r"prompts = a Task: must be a Prompts\."),
    "identify": (lambda: ls.identify(PATH, TASK, PROMPTS), r"prompts = a Task: must be a Prompts\. The order is path,"),
    "identify a name": (lambda: ls.identify(PATH, PROMPTS, "sphere"), r"task = a str: must be a Task\."),
    "match": (
        lambda: ls.match(PATH, PROMPTS, PATH),
        r"reference = a Prompts: must be a Trajectory\. The order is",
    ),
    "match the prompts": (lambda: ls.match(PROMPTS, PATH, PATH), r"path = a Prompts: must be a Trajectory\."),
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


def test_a_solver_that_comes_to_its_end_stays_there():
    path = solved_by(lambda system: [torch.zeros_like(system.y)])
    assert path.S == 3
    assert not path.values.any()


@pytest.mark.parametrize("contexts", [None, [2, 4]])
def test_prompts_are_taken_as_their_noisy_labels(contexts):
    path = ls.solve(ls.Richardson(), PROMPTS, TASK, 2, contexts=contexts)
    labels = PROMPTS.y[:, contexts or [1, 2, 3, 4]]
    assert torch.equal(path.mse(PROMPTS), (path.values - labels).square().mean(1))


@pytest.mark.parametrize("make", [list, tuple, torch.tensor, np.array])
def test_tokens_are_picked_by_anything_that_holds_integers(make, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    tokens = range(0, 10, 2)
    assert torch.equal(read(tokens=make(tokens))[0], read(tokens=tokens)[0])
