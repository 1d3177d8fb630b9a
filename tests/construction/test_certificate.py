"""Certificates: the bound holds on every prompt we can think of, its parts add up, and it is not idle."""

import json
import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from construction.cases import KINDS, kernel, system, worked_example
from layerstep.construction import certificate, construct, convergence_data
from layerstep.construction.certificate import certify
from layerstep.construction.kernels import Gaussian
from layerstep.errors import InputError
from layerstep.tasks import Prompts, Task, sample

NETWORKS = {
    "compact": {"scheme": "compact"},
    "exact": {"scheme": "exact"},
    "exact, one head, paper's preconditioner": {"scheme": "exact", "rho": 0.0, "heads": 1},
}


def violations(network, problem):
    """Predictions farther from exact KRR than their bound allows, and how many were made."""
    prediction = network.predict(*problem.tensors())
    parts = prediction.iteration + prediction.readout + prediction.arithmetic
    torch.testing.assert_close(prediction.bound, parts)
    return int(((prediction.value - torch.tensor(problem.exact)).abs() > prediction.bound).sum()), len(parts)


def search(seeds, sizes, lams, depths, M, rng):
    """Every scheme, kind of prompt and ridge, with a random bandwidth, depth and number n <= N of examples."""
    made, broken = 0, 0
    for arguments in NETWORKS.values():
        for lam in lams:
            for N in sizes:
                v = float(rng.uniform(0.3, 3))
                network = construct(3, N, v, lam, L=int(rng.choice(depths)), **arguments)
                for kind in KINDS:
                    for seed in range(seeds):
                        n = int(rng.integers(max(1, N // 2), N + 1))
                        some = violations(network, system(n, 3, v, lam, M=M, seed=seed, B_y=2.0, kind=kind))
                        broken, made = broken + some[0], made + some[1]
    return made, broken


@pytest.mark.parametrize("scale", [2.0**-600, 2.0**600])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_bound_has_the_unit_of_the_labels(name, scale):
    """Squares of labels of size 1e-180 are 0 and those of 1e180 infinite; their bounds are neither."""
    network = construct(3, 8, 1.0, 0.1, L=5, **NETWORKS[name])
    x, y, xq = system(8, 3, 1.0, 0.1, M=3).tensors()
    here, scaled = network.predict(x, y, xq), network.predict(x, scale * y, xq)
    torch.testing.assert_close(scaled.bound / scale, here.bound, rtol=1e-12, atol=0)
    assert scaled.promised == pytest.approx(scale * here.promised, rel=1e-12)


def test_no_bound_is_violated():
    made, broken = search(1, [1, 2, 40], [1e-4, 0.1, 10.0], [1, 5, 30], 20, np.random.default_rng(0))
    assert made >= 3000
    assert broken == 0


@pytest.mark.slow
def test_no_bound_is_violated_in_a_hundred_thousand_predictions():
    sizes, lams = [1, 2, 7, 40, 200], [1e-4, 2.5e-3, 0.1, 1.0, 10.0]
    made, broken = search(5, sizes, lams, [1, 3, 30, 300], 50, np.random.default_rng(1))
    assert made >= 100_000
    assert broken == 0


@settings(deadline=None, max_examples=200)
@given(
    st.integers(1, 30),
    st.floats(-4, 1),
    st.floats(-1, 1),
    st.sampled_from(KINDS),
    st.integers(0, 10**6),
    st.floats(0, 3),
)
def test_the_bound_holds_for_any_coefficients_and_any_value(n, log_lam, log_v, kind, seed, spread):
    """No network: w and the read-out are anything at all."""
    problem = system(n, 2, 10**log_v, 10**log_lam, seed=seed, kind=kind)
    rng = np.random.default_rng(seed)
    w_exact = np.linalg.solve(problem.M, problem.y)
    w = torch.tensor(w_exact + spread * rng.normal(size=n))
    value = torch.tensor(problem.k_q @ w.numpy() + spread * rng.normal(size=3))
    x, y, xq = problem.tensors()
    bound = certify(x, y, xq, w, value, Gaussian(v=problem.v), problem.lam).bound
    assert ((value - torch.tensor(problem.exact)).abs() <= bound).all()


def test_the_bound_is_attained():
    """N examples at the query and lam = N: |(K + lam I)^-1 k_q| is 1 / (2 √lam), and w = 0 errs by the bound."""
    x, xq, y = torch.zeros(9, 1).double(), torch.zeros(1, 1).double(), torch.ones(9).double()
    prediction = certify(x, y, xq, torch.zeros(9).double(), torch.zeros(1).double(), Gaussian(v=1.0), 9.0)
    assert prediction.bound.item() == pytest.approx(0.5, rel=1e-12)  # f* = 9 / (9 + 9)


def test_the_bound_is_the_same_in_pieces(monkeypatch):
    problem = system(20, 2, 1.0, 0.1, M=7)
    arguments = (*problem.tensors(), torch.ones(20).double(), torch.zeros(7).double(), Gaussian(v=1.0), 0.1)
    whole = certify(*arguments)
    monkeypatch.setattr(certificate, "_ENTRIES", 50)
    torch.testing.assert_close(certify(*arguments).bound, whole.bound, rtol=1e-12, atol=0)


def test_worked_example():
    problem = worked_example()
    x, y, xq = problem.tensors()
    zero = torch.zeros(3, dtype=torch.float64)
    prediction = certify(x, y, xq, zero, zero[:1], Gaussian(v=problem.v), problem.lam)
    assert prediction.iteration.item() == pytest.approx(0.9128709292 * math.sqrt(2.25), abs=1e-9)


def test_perturbed_coefficients_raise_the_bound():
    problem = system(20, 2, 1.0, 0.1)
    x, y, xq = problem.tensors()
    w = torch.tensor(np.linalg.solve(problem.M, problem.y))
    push = torch.ones(20, dtype=torch.float64)
    bounds = [
        certify(x, y, xq, w + size * push, torch.tensor(problem.exact), Gaussian(v=1.0), 0.1).bound
        for size in (0, 1e-6, 1e-3, 1)
    ]
    assert all((later > 10 * earlier).all() for earlier, later in pairwise(bounds))


@pytest.mark.parametrize("arguments", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("N", [1, 20])
@pytest.mark.parametrize("lam", [0.02, 10.0])
@pytest.mark.parametrize("kind", ["ball", "two clusters", "antipodes"])
def test_the_guarantee_holds_for_the_worst_labels(arguments, N, lam, kind):
    """The networks are linear in y: N unit label vectors give the worst error over all |y_i| <= B_y exactly."""
    B_y, error = 2.0, 0.05
    network = construct(3, N, 1.0, lam, B_y=B_y, error=error, **arguments)
    problem = system(N, 3, 1.0, lam, M=1, kind=kind)
    x = torch.tensor(np.concatenate([problem.x, problem.xq])).expand(N, -1, -1)
    y = torch.eye(N, N + 1, dtype=torch.float64)
    out = network.path(Prompts(x, y), stages=[network.L], contexts=[N]).values[0, :, 0].numpy()
    exact = np.linalg.solve(problem.M, problem.k_q[0])
    assert B_y * np.abs(out - exact).sum() <= network.certificate.bound <= error


@pytest.mark.parametrize("scheme", ["compact", "exact"])
def test_labels_beyond_the_stated_range_scale_the_promise(scheme):
    network = construct(2, 10, 1.0, 0.5, B_y=1.0, error=0.01, scheme=scheme)
    problem = system(10, 2, 1.0, 0.5, B_y=50.0)
    prediction = network.predict(*problem.tensors())
    assert prediction.promised > 0.01
    assert (prediction.value - torch.tensor(problem.exact)).abs().max() <= prediction.promised
    assert violations(network, problem)[0] == 0


def test_predicting_zero_is_as_good_as_the_trivial_bound():
    for kind in KINDS:
        problem = system(12, 2, 1.0, 0.2, kind=kind)
        B = np.linalg.norm(problem.y) / math.sqrt(0.2)
        assert (np.abs(problem.exact) <= B / 2).all()


# ---------------------------------------------------------------- low precision


@pytest.mark.filterwarnings("ignore:rounding at u")
@pytest.mark.parametrize(("scheme", "most"), [("compact", 5e-4), ("exact", 2e-2)])
def test_float32_errs_a_little_and_its_bound_says_how_much(scheme, most):
    """The exact scheme takes differences of reads and amplifies their rounding by N / lam; the compact does not."""
    task = Task()
    prompts = sample(task, 2, seed=0)
    network = construct(5, 40, 1.0, task.lam, B_y=3.0, error=0.01, scheme=scheme, dtype=torch.float32)
    assert network.dtype == torch.float32
    x, y, xq = prompts.x[0, :40], prompts.y[0, :40], torch.cat([prompts.x[0, 40:], prompts.x[1, :7]])
    prediction = network.predict(x, y, xq)
    K = kernel(x.numpy(), x.numpy(), 1.0) + task.lam * np.eye(40)
    exact = kernel(xq.numpy(), x.numpy(), 1.0) @ np.linalg.solve(K, y.numpy())
    error = abs(prediction.value.numpy() - exact)
    assert (error <= prediction.bound.numpy()).all()
    assert (error < most).all()


@pytest.mark.filterwarnings("ignore:rounding at u")
@pytest.mark.parametrize("scheme", ["compact", "exact"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("lam", [40.0, 4.0])
def test_bounds_hold_in_every_precision(lam, dtype, scheme):
    network = construct(5, 40, 2.0, lam, B_y=1.0, error=0.01, scheme=scheme, dtype=dtype)
    assert violations(network, system(40, 5, 2.0, lam, M=8)) == (0, 8)


def test_a_guarantee_that_rounding_exceeds_warns():
    setting = {"B_x": 1.0, "B_y": 3.0, "error": 0.01}
    with pytest.warns(UserWarning, match=r"rounding at u = 6e-08 may add 0\.0\d+, more than the guaranteed 0\.0099"):
        construct(5, 40, 1.0, 0.0025, **setting, scheme="exact", dtype=torch.float32)
    with pytest.warns(UserWarning, match="rounding at u = 6e-08"):
        construct(2, 10, 1.0, 2.0, **setting | {"error": 0.5}, scheme="paper", dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        construct(5, 40, 1.0, 0.0025, **setting, scheme="compact", dtype=torch.float32)
        for scheme in ("compact", "exact"):
            construct(5, 40, 1.0, 0.0025, **setting, scheme=scheme)
        construct(2, 10, 1.0, 2.0, **setting | {"error": 0.5}, scheme="paper")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_precision_too_low_for_the_ridge_is_refused(dtype):
    lam = 40 * torch.finfo(dtype).eps
    with pytest.raises(InputError, match=r"dtype = .*precise enough"):
        construct(2, 40, 1.0, lam, L=3, scheme="compact", dtype=dtype)
    network = construct(2, 40, 1.0, lam, L=3, scheme="compact")
    with pytest.raises(InputError, match=r"dtype = .*precise enough"):
        network.to(dtype).predict(np.zeros((2, 2)), np.zeros(2), np.zeros((1, 2)))


def test_a_sink_too_large_for_the_type_is_refused():
    with pytest.raises(InputError, match="large enough for the sink weight"):
        construct(2, 40, 1.0, 40.0, B_y=1.0, error=1e-4, scheme="compact", dtype=torch.float16)


# ---------------------------------------------------------------- what is said


def test_a_certificate_prints_itself_and_is_json():
    network = construct(5, 40, 1.0, 0.0025, B_y=3.0, error=0.01, scheme="compact")
    assert repr(network) == "Construction(compact: 712 blocks of width 6)"
    text = str(network.certificate)
    for words in ("712", "width", "0.009927", "weight of the sink", "n <= N training tokens"):
        assert words in text
    assert json.loads(json.dumps(network.certificate.to_dict()))["constants"]["a"] == network.certificate["a"]
    with pytest.raises(KeyError, match="this certificate has a, delta"):
        network.certificate["kappa"]


def test_a_depth_without_a_label_range_promises_nothing_but_bounds_every_prediction():
    network = construct(2, 5, 1.0, 0.1, L=4, scheme="exact")
    assert network.certificate.bound is None
    assert "none" in str(network.certificate)
    assert network.predict(*system(5, 2, 1.0, 0.1).tensors()).promised is not None
    diverging = construct(2, 5, 1.0, 0.1, L=4, scheme="exact", eta=5.0)
    assert diverging.predict(*system(5, 2, 1.0, 0.1).tensors()).promised is None


REFUSED = [
    ({"lam": 0.0}, "lam = 0.0"),
    ({"v": -1.0}, "v = -1.0"),
    ({"lam": math.nan}, "lam = nan"),
    ({"N": 0}, "N = 0"),
    ({"scheme": "compcat"}, "one of paper, exact, compact"),
    ({"L": None}, "one of the two"),
    ({"error": 0.1}, "one of the two"),
    ({"eps": 0.1}, "eps = 0.1: must be left out"),
    ({"L": None, "error": 0.1, "B_y": None}, "B_y = None"),
    ({"heads": 3}, "heads = 3"),
    ({"rho": 0.1}, 'for scheme="exact"'),
    ({"scheme": "exact", "rho": math.nan}, "rho = nan: must be a finite number"),
    ({"L": 0}, "L = 0"),
    ({"eta": 100.0, "L": None, "error": 0.1}, "eta = 100.0: must be below 2 /"),
    ({"eta": 1e-9, "L": None, "error": 0.1}, "iterations: must be at most 1,000,000"),
    ({"eta": 1e-20, "L": None, "error": 0.1}, "iterations: must be at most 1,000,000"),
    ({"dtype": torch.int64}, "dtype = 'int64': must be one of float64"),
    ({"v": 1e-170}, "v = 1e-170: must be from 1e-150"),
    ({"L": None, "error": 0.1, "B_y": None, "heads": 7, "eps": 0.2}, "(?s)3 reasons.*B_y.*heads.*eps"),
    ({"c": 0.3}, 'c = 0.3: must be left out: for scheme="paper"'),
    ({"heads": 1}, 'heads = 1: must be left out: for scheme="exact"'),
    ({"scheme": "exact", "c": 0.3}, "c = 0.3: must be left out"),
    ({"scheme": "exact", "heads": 3}, "heads = 3: must be 1 or 2"),
    ({"scheme": "paper", "rho": 0.1, "heads": 1}, "(?s)3 reasons.*B_x.*rho = 0.1.*heads = 1"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_arguments_are_refused_in_words(change, message):
    arguments = {"d": 2, "N": 5, "v": 1.0, "lam": 0.1, "B_y": 1.0, "scheme": "compact", "L": 3} | change
    with pytest.raises(InputError, match=message):
        construct(**arguments)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ((np.zeros((6, 2)), np.zeros(6), np.zeros((1, 2))), "n = 6 training tokens: must be at most 5"),
        ((np.zeros((3, 1)), np.zeros(3), np.zeros((1, 2))), r"x.shape = \[3, 1\]"),
        ((np.zeros((3, 2)), np.zeros(4), np.zeros((1, 2))), r"y.shape = \[4\]"),
        ((np.zeros((3, 2)), np.zeros(3), np.zeros((1, 3))), r"xq.shape = \[1, 3\]"),
        ((np.zeros((3, 2)), np.zeros(3), np.zeros((0, 2))), "one query or more"),
        ((np.full((3, 2), np.nan), np.zeros(3), np.zeros((1, 2))), "NaN"),
        ((np.zeros((3, 2)), np.array([1, 2, np.inf]), np.zeros((1, 2))), "y = 1 values"),
    ],
)
def test_prompts_are_refused_in_words(prompt, message):
    with pytest.raises(InputError, match=message):
        construct(2, 5, 1.0, 0.1, L=3, scheme="compact").predict(*prompt)


@pytest.mark.parametrize("scheme", ["compact", "exact"])
def test_a_ridge_that_swallows_the_number_of_examples_is_solved(scheme):
    """In float64 lam + N = lam: all eigenvalues are one."""
    s = system(5, 2, 1.0, 1e20)
    for asked in ({"L": 3}, {"error": 1e-12}):
        prediction = construct(2, 5, 1.0, 1e20, B_y=1.0, scheme=scheme, **asked).predict(*s.tensors())
        assert (np.abs(prediction.value.numpy() - s.exact) <= prediction.bound.numpy()).all()


def test_a_step_that_diverges_beyond_all_numbers_promises_nothing():
    network = construct(2, 5, 1.0, 0.1, L=400, scheme="compact", eta=100.0)
    assert network.certificate.bound is None
    assert network.certificate["phi"] == math.inf


def test_paths_are_refused_in_words():
    network = construct(2, 5, 1.0, 0.1, L=3, scheme="compact")
    prompts = sample(Task(d=2, N=7), 1, seed=0)
    with pytest.raises(InputError, match=r"contexts = .*from 1 to 5"):
        network.path(prompts)
    with pytest.raises(InputError, match=r"stages = \[4\]: must be increasing whole numbers from 0 to L = 3"):
        network.path(prompts, contexts=[5], stages=[4])
    with pytest.raises(InputError, match=r"stages = \[2, 1\]: must be increasing"):
        network.path(prompts, contexts=[5], stages=[2, 1])
    with pytest.raises(InputError, match=r"contexts = \[3, 3\]: must be increasing"):
        network.path(prompts, contexts=[3, 3])
    with pytest.raises(InputError, match=r"prompts.d = 1"):
        network.path(sample(Task(d=1, N=5), 1, seed=0))


def test_convergence_data_is_json_and_every_bound_holds():
    task = Task(N=15)
    network = construct(5, 15, 1.0, task.lam, B_y=3.0, error=0.1, scheme="compact")
    data = convergence_data(network, sample(task, 6, seed=2), stages=[0, 10, 50, network.L])
    assert json.loads(json.dumps(data)) == data
    for wrong in ({"stages": [0, network.L + 1]}, {"prompts": sample(Task(N=15, d=2), 1, seed=2)}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            convergence_data(network, **{"prompts": sample(task, 1, seed=2)} | wrong)
    assert data["violations"] == 0
    assert data["largest_error"][-1] <= 0.1
    assert all(error <= bound for error, bound in zip(data["median_error"], data["median_bound"], strict=True))
