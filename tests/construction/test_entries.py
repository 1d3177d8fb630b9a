"""What is asked for: one default that works, values that own their options, and a sentence for everything else."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import layerstep as ls
from layerstep.construction import convergence_data
from layerstep.construction.kernels import Gaussian
from layerstep.construction.problem import Problem
from layerstep.construction.schemes.compact import Compact
from layerstep.construction.schemes.exact import Exact
from layerstep.construction.schemes.paper import Paper
from layerstep.errors import FileError, InputError

pytestmark = pytest.mark.usefixtures("as_for_a_user")
PROBLEM = Problem(d=2, N=5, kernel=Gaussian(v=2.0), lam=1.0, B_x=1.0, B_y=1.0)
BASE = {"d": 2, "N": 5, "v": 2.0, "lam": 1.0, "B_x": 1.0, "B_y": 1.0}


def test_left_out_the_scheme_is_compact_or_the_papers_where_its_tolerance_is_given():
    network = ls.construct(5, 40, 1.0, 0.0025, error=0.01, B_y=3)
    assert repr(network) == "Construction(compact: 712 blocks of width 6)"
    assert network.certificate.bound <= 0.01
    assert ls.construct(**BASE, eps=0.05).certificate.scheme == "paper"


@pytest.mark.filterwarnings("ignore:the bound .* says nothing")
@pytest.mark.parametrize(
    ("made", "asked"),
    [
        (Compact.for_error(PROBLEM, 0.1), {"scheme": "compact", "error": 0.1}),
        (Compact.of_depth(PROBLEM, 7, eta=0.1), {"scheme": "compact", "L": 7, "eta": 0.1}),
        (Exact.for_error(PROBLEM, 0.1, rho=0.5, heads=1), {"scheme": "exact", "error": 0.1, "rho": 0.5, "heads": 1}),
        (Exact.of_depth(PROBLEM, 7), {"scheme": "exact", "L": 7}),
        (Paper.for_eps(PROBLEM, 0.1, c=None), {"scheme": "paper", "eps": 0.1, "c": None}),
        (Paper.for_eps(PROBLEM, 0.1, L=3), {"scheme": "paper", "eps": 0.1, "L": 3}),
        (Paper.for_error(PROBLEM, 2.0), {"scheme": "paper", "error": 2.0}),
        (Paper.of_depth(PROBLEM, 7, eta=0.1), {"scheme": "paper", "L": 7, "eta": 0.1}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_scheme_is_a_value_that_construct_finds(made, asked):
    network = ls.construct(**BASE, **asked)
    assert network.scheme == made
    assert network.problem == PROBLEM
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.L = 3


def test_a_problem_checks_itself_and_keeps_plain_numbers():
    given = Problem(d=np.int64(2), N=np.int32(5), kernel=Gaussian(v=np.float32(2)), lam=np.float64(1), B_x=1, B_y=1)
    assert given == PROBLEM
    kinds = [type(value) for value in (given.d, given.N, given.lam, given.B_x, given.kernel.v)]
    assert kinds == [int, int, float, float, float]
    assert Problem(d=1, N=1, kernel=Gaussian(v=1.0), lam=1.0).B_norm == math.inf
    x = torch.tensor([[0.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    assert given.kernel(x, x)[0].tolist() == pytest.approx([1, math.exp(-0.5)])
    for wrong in ({"B_y": 0}, {"B_x": None}, {"B_y": 10**400}, {"lam": "1"}, {"d": 10**6}, {"N": 10**400}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))} = .*: must be"):
            dataclasses.replace(PROBLEM, **wrong)
    with pytest.raises(InputError, match=r"error = 0.1: must be above inf.*Give B_y"):
        Compact.for_error(dataclasses.replace(PROBLEM, B_y=math.inf), 0.1)
    with pytest.raises(InputError, match="the theorem's constants = infinite, for B_y = 1, kappa_min = 0"):
        Paper.for_eps(dataclasses.replace(PROBLEM, B_x=math.inf), 0.1)


@pytest.mark.parametrize("scheme", ["compact", "exact", "paper"])
def test_a_depth_that_cannot_be_built_is_a_sentence(scheme):
    with pytest.raises(InputError, match="L = 1000000000: must be an integer from 1 to 1000000"):
        ls.construct(**BASE, scheme=scheme, L=10**9)


@pytest.mark.parametrize("eta", [1e-30, 1e-320])
def test_a_step_too_small_to_get_anywhere_is_a_sentence(eta):
    for asked in ({"eps": 0.1}, {"error": 2.0}):
        with pytest.raises(InputError, match=r"eta = .* large enough for 1,000,000 iterations; the theorem needs"):
            ls.construct(**BASE, scheme="paper", eta=eta, **asked)
    for scheme in ("compact", "exact"):
        with pytest.raises(InputError, match=r"L = .* iterations: must be at most 1,000,000"):
            ls.construct(**BASE, scheme=scheme, eta=eta, error=0.1)


ODD = [None, "a", "1", 1j, [1], (), {}, object(), np.ones(2), np.array(1.0), torch.tensor(1.0), True]
ODD += [0, -1, 1e-320, 1e-200, 1e200, 1e308, 10**400, math.nan, math.inf]


@pytest.mark.filterwarnings("ignore:the bound", "ignore:rounding")
@pytest.mark.parametrize("scheme", ["compact", "exact", "paper"])
@pytest.mark.parametrize("name", [*BASE, "scheme", "error", "eps", "eta", "c", "L", "rho", "heads", "dtype", "device"])
def test_construct_answers_or_says_why_not(scheme, name):
    """Whatever is given for one argument: a network with a certificate, or one short message of our own."""
    length = {"eps": 0.3} if scheme == "paper" else {"error": 0.1}
    told = []
    for odd in ODD:
        try:
            network = ls.construct(**BASE | {"scheme": scheme} | ({} if name == "L" else length) | {name: odd})
            assert not math.isnan(network.certificate.bound or 0)
        except InputError as error:
            told.append(len(str(error)))
    assert len(told) > len(ODD) // 2
    assert max(told) < 800


@pytest.mark.parametrize("dtype", [torch.float32, "float32", np.float32])
def test_a_type_may_be_given_by_its_name(dtype):
    assert ls.construct(2, 5, 1.0, 0.1, L=3, dtype=dtype).dtype == torch.float32


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
def test_a_device_that_is_not_there_is_a_sentence():
    with pytest.raises(InputError, match="device = 'cuda': must be one of cpu"):
        ls.construct(2, 5, 1.0, 0.1, L=3, device="cuda")


NETWORK = ls.construct(2, 3, 1.0, 0.1, L=3)
X, Y, XQ = np.eye(3, 2), np.ones(3), np.ones((2, 2))
ARRAYS = [None, "a", ["a"], [None], {}, object(), 3, 1j * X, [[1, 2], [3]], np.full((3, 2), np.nan), X[:, :1]]
MASKED = np.ma.masked_array([1.0, 2.0, 1e6], mask=[0, 0, 1])
MISTAKES = {
    "masked labels": lambda: NETWORK.predict(X, MASKED, XQ),
    "estimator, masked labels": lambda: ls.TransformerKRR().fit(X, MASKED),
    "estimator, masked inputs": lambda: ls.TransformerKRR().fit(MASKED[:, None], Y),
    "estimator, masked queries": lambda: ls.TransformerKRR().fit(Y[:, None], Y).predict(MASKED[:, None]),
    **{f"x: {odd!r:.20}": lambda odd=odd: NETWORK.predict(odd, Y, XQ) for odd in ARRAYS},
    **{f"y: {odd!r:.20}": lambda odd=odd: NETWORK.predict(X, odd, XQ) for odd in ARRAYS},
    **{f"xq: {odd!r:.20}": lambda odd=odd: NETWORK.predict(X, Y, odd) for odd in ARRAYS},
    **{f"budget: {odd}": lambda odd=odd: NETWORK.predict(X, Y, XQ, budget=odd) for odd in (None, "a", -1, 0.5)},
    **{f"input_error: {odd}": lambda odd=odd: NETWORK.predict(X, Y, XQ, input_error=odd) for odd in (None, "a", -1, 2)},
    **{f"prompts: {odd!r:.20}": lambda odd=odd: NETWORK.path(odd) for odd in (None, "a", X, NETWORK)},
    **{f"stages: {odd}": lambda odd=odd: NETWORK.path(PROMPTS, stages=odd) for odd in ("a", 5, [None], [0.5], [[1]])},
    **{f"contexts: {odd}": lambda odd=odd: NETWORK.path(PROMPTS, contexts=odd) for odd in ("a", 5, [None], [10**30])},
    **{
        f"Z: {odd!r:.20}": lambda odd=odd: NETWORK(odd, torch.ones(1, 3)) for odd in (None, "a", X, torch.ones(1, 3, 2))
    },
    "kinds": lambda: NETWORK(torch.ones(1, 3, 13), torch.ones(1, 3)),
    "convergence": lambda: convergence_data(None, PROMPTS),
    "convergence, prompts": lambda: convergence_data(NETWORK, X),
    **{f"save: {odd!r}": lambda odd=odd: NETWORK.save(odd) for odd in (None, 3, "", b"a", "a" * 300)},
    **{f"load: {odd!r}": lambda odd=odd: ls.Construction.load(odd) for odd in (None, 3, "", b"a", "a" * 300)},
    **{f"export: {odd!r}": lambda odd=odd: NETWORK.export(odd) for odd in (None, 3, "", b"a", "a" * 300)},
    **{
        f"estimator, {name}: {odd!r}": lambda name=name, odd=odd: ls.TransformerKRR(**{name: odd}).fit(X, Y)
        for name in ("v", "lam", "scheme", "error", "B_x")
        for odd in ("a", -1, np.ones(5), math.nan)
    },
}
PROMPTS = ls.Prompts(np.ones((1, 4, 2)), np.ones((1, 4)))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_sentence(mistake):
    with pytest.raises(InputError) as raised:
        MISTAKES[mistake]()
    assert len(str(raised.value)) < 600


def test_a_directory_where_a_file_is_stays_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="is a file, not a directory"):
        NETWORK.export(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
