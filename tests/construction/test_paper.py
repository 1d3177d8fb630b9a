"""The theorem's network: constants, every block against its formula, the inexact recursion, and the paper's slips."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch

from construction.cases import KINDS, system, worked_example
from layerstep.construction import construct
from layerstep.construction.blocks import MLP, Mask
from layerstep.construction.gadgets import splines
from layerstep.construction.network import tally
from layerstep.errors import InputError
from layerstep.tasks import Prompts

CONSTANTS = [  # N, v, lam_0, eps, c, B_y, eta / eta_max; eta_max, B_alpha, B_w, B_w_tilde, C_sys; L; units; W
    (
        (7, 1.2, 0.5, 0.05, 0.2, 1.5, 0.99),
        (0.330012, 0.715770, 16.2076, 47.3866, 88.0305),
        22,
        (7, 27, 530, 38, 228),
        1064,
    ),
    (
        (10, 1, 1, 0.02, 0.04, 1, 0.99),
        (0.118919, 0.838906, 6.39626, 21.5943, 41.6886),
        33,
        (15, 42, 512, 71, 211),
        1028,
    ),
    (
        (40, 2, 0.1, 0.001, 0.002, 1, 0.999),
        (0.858390, 0.066218, 20.3994, 164.058, 286.994),
        78,
        (9, 214, 25888, 608, 4680),
        51780,
    ),
    (
        (40, 1, 0.2, 0.02, 0.1, 2, 0.99),
        (0.402932, 0.209726, 31.1266, 224.106, 416.352),
        53,
        (8, 99, 8864, 136, 1527),
        17732,
    ),
    (
        (200, 2, 0.3, 0.001, 0.002, 1, 0.999),
        (0.668934, 0.013244, 2.24442, 40.4941, 72.069),
        31,
        (4, 454, 14279, 1345, 2346),
        28562,
    ),
    (
        (40, 1, 6.25e-5, 0.01, 0.02, 3, 0.999),
        (0.999538, 0.209726, 5.46001e6, 3.96841e7, 7.32487e7),
        75295,
        (12, 204, 2184004877, 193, 345321668),
        4368009758,
    ),
]

pytestmark = pytest.mark.filterwarnings("ignore:the bound .* says nothing")


def network(N=10, lam_0=0.2, eps=0.02, c=0.1, B_y=2.0, d=2, v=1.0, **other):
    return construct(d, N, v, lam_0 * N, B_x=1.0, B_y=B_y, scheme="paper", eps=eps, c=c, **other)


@pytest.mark.parametrize(("given", "constants", "L", "units", "W"), CONSTANTS)
def test_constants_of_the_theorem(given, constants, L, units, W):
    N, v, lam_0, eps, c, B_y, fraction = given
    eta = fraction / (lam_0 * eps + 1 + lam_0 / math.exp(-2 / v**2))
    built = network(N=N, v=float(v), lam_0=lam_0, eps=eps, c=c, B_y=float(B_y), eta=eta)
    certificate = built.certificate
    names = ("eta_max", "B_alpha", "B_w", "B_w_tilde", "C_sys")
    assert [certificate[name] for name in names] == pytest.approx(constants, rel=1e-4)
    assert certificate.L == L
    assert built.depth == 2 * L + 5
    assert tuple(certificate[f"n_{name}"] for name in ("flip", "sq", "sq_tilde", "inv", "sq_hat")) == units
    assert built.width == W
    assert certificate.bound == pytest.approx(constants[-1] * eps, rel=1e-5)


@pytest.mark.parametrize(("error", "blocks", "width"), [(0.1, 653_237, 1.2e13), (0.01, 726_959, 3.7e13)])
def test_at_the_papers_own_setting_the_network_is_certified_and_not_built(error, blocks, width):
    built = construct(5, 40, 1.0, 0.0025, B_x=1.0, B_y=3.0, scheme="paper", error=error, c=None)
    assert built.depth == blocks
    assert built.width == pytest.approx(width, rel=0.03)
    assert built.certificate.bound == pytest.approx(error)
    assert f"{blocks:,}" in str(built.certificate)
    for use in (lambda: built.blocks, lambda: built.predict(np.zeros((40, 5)), np.zeros(40), np.zeros((1, 5)))):
        with pytest.raises(InputError, match="certified, not built"):
            use()


def test_counted_is_built():
    built = network()
    assert built.scheme.counts() == tally(list(built.blocks))
    assert sum(p.numel() for p in built.parameters()) == built.certificate.stored
    assert len(built.blocks) == built.depth


def interp(spline, knots, f):
    """The same spline by NumPy's interpolation, without the lemma's constant."""

    def phi(x):
        assert spline.lo <= x.min()
        assert x.max() <= spline.hi
        return np.interp(x, knots, f(knots)) - spline.constant

    return phi


def inexact_recursion(scheme, problem):
    """Section by section what the network computes, with NumPy's interpolation for its splines."""
    theorem, lam = scheme.theorem, scheme.problem.lam
    N, n, eta = theorem.N, theorem.units, theorem.eta

    def squared(name, delta):
        return interp(splines.square(delta, n[name]), np.linspace(-delta, delta, n[name] + 1), np.square)

    delta = 1 / (1 + N * theorem.kappa)
    y = 1 + np.arange(n["flip"] + 1) / n["flip"] * ((1 - delta) ** -0.5 - 1)
    k, k_query = 1 / (1 + problem.D), 1 / (1 + problem.D_q)
    alpha = np.interp(k, 1 - y**-2, y**2 - 1)
    sq = squared("sq", theorem.B_y + theorem.B_alpha)
    beta = eta / 4 * (sq(problem.y + alpha) - sq(problem.y - alpha))
    sq_tilde = squared("sq_tilde", theorem.B_w + theorem.B_alpha)
    w, iterates = np.zeros(N), [np.zeros(N)]
    for _ in range(scheme.L):
        p = -(problem.K @ w) / problem.D
        w = w - eta * lam / 4 * (sq_tilde(w + alpha) - sq_tilde(w - alpha)) + beta + eta * p
        iterates.append(w)
    y = (N + 1) ** 0.5 - np.arange(n["inv"] + 1) / n["inv"] * ((N + 1) ** 0.5 - 1)
    k_hat = np.interp(k_query, y**-2, y**2)
    sq_hat = squared("sq_hat", theorem.B_w + 3)
    p = problem.k_q @ w * k_query
    out = N / 4 * (sq_hat(k_hat / N + p) - sq_hat(k_hat / N - p))
    return {"alpha": alpha, "beta": beta, "w": np.array(iterates), "k_hat": k_hat, "p": p, "out": out}


def stages(built, problem):
    """The stream after every block of the plain forward, one query."""
    x, y, xq = problem.tensors()
    Z, kinds = built.stream.embed(x[None], y[None], xq[None, :1])
    after = [Z[0]]
    for block in built.blocks:
        Z = block(Z, kinds)
        after.append(Z[0])
    return after


@pytest.mark.parametrize("kind", KINDS)
def test_the_network_is_the_inexact_recursion(kind):
    built = network()
    for seed in range(3):
        problem = system(10, 2, 1.0, 2.0, B_y=2.0, seed=seed, kind=kind)
        expected = inexact_recursion(built.scheme, problem)
        prediction = built.predict(*problem.tensors())
        np.testing.assert_allclose(prediction.value, expected["out"], atol=1e-10)
        after = stages(built, problem)
        w = torch.stack([Z[1:11, built.stream.row("w")] for Z in after[3:-2:2]])
        np.testing.assert_allclose(w, expected["w"], atol=1e-10)
        assert np.abs(expected["w"]).max() <= built.certificate["B_w"]
        assert (prediction.value - torch.tensor(problem.exact)).abs().max() <= prediction.bound.max()
        assert prediction.bound.max() < built.certificate.bound / 100


@pytest.mark.parametrize("kind", KINDS)
def test_every_block_keeps_its_own_tolerance(kind):
    """The formulas each block has to meet, from the kernel matrix, and what it must not touch."""
    built = network()
    scheme, stream, N = built.scheme, built.stream, 10
    problem = system(10, 2, 1.0, 2.0, B_y=2.0, kind=kind)
    after = stages(built, problem)
    train, query = slice(1, N + 1), N + 1

    def get(index, name):
        return after[index][:, stream.row(name)].numpy()

    rounding = 1e-12
    K, D, lam, eta, eps = problem.K, problem.D, scheme.problem.lam, scheme.theorem.eta, scheme.theorem.eps
    np.testing.assert_allclose(get(1, "k")[train], 1 / (1 + D), atol=rounding)
    np.testing.assert_allclose(get(1, "k")[query], 1 / (1 + problem.D_q[0]), atol=rounding)
    np.testing.assert_allclose(get(1, "k")[0], 1 / (1 + N), atol=rounding)
    np.testing.assert_allclose(get(1, "alpha")[train], 1 / D, atol=eps / N)
    assert abs(get(2, "alpha")[query]) <= rounding
    alpha = get(2, "alpha")[train]
    assert np.array_equal(alpha, get(1, "alpha")[train])
    np.testing.assert_allclose(get(3, "beta")[train], eta * problem.y * alpha, atol=eta * eps / (2 * N) + rounding)
    assert abs(get(3, "beta")[query]) <= rounding
    for step in range(built.L):
        read, update = 4 + 2 * step, 5 + 2 * step
        w = get(read - 1, "w")[train]
        np.testing.assert_allclose(get(read, "p")[train], -(K @ w) / D, atol=rounding)
        assert abs(get(read, "p")[query]) <= 1e-11
        increment = get(update, "w")[train] - w
        exact = eta * (alpha * problem.y - lam * alpha * w - K @ w / D)
        tolerance = eta * lam * eps / (2 * N**2) + eta * eps / (2 * N) + 1e-11
        np.testing.assert_allclose(increment, exact, atol=tolerance)
        assert not get(update, "p").any()
        assert abs(get(update, "w")[query]) <= 1e-10
    w = get(-3, "w")[train]
    normaliser = 1 + problem.D_q[0]
    np.testing.assert_allclose(get(-2, "p")[query], problem.k_q[0] @ w / normaliser, atol=1e-11)
    np.testing.assert_allclose(get(-2, "k_hat")[query], normaliser, atol=eps)
    readout = eps / 2 + eps * np.abs(w).max()
    np.testing.assert_allclose(get(-1, "y")[query], problem.k_q[0] @ w, atol=readout)
    writes = [{"k", "alpha"}, {"alpha"}, {"beta"}, *[{"p"}, {"w", "p"}] * built.L, {"p", "k_hat"}, {"y"}]
    for index, written in enumerate(writes):
        for name in set(stream) - written:
            assert torch.equal(after[index + 1][:, stream[name]], after[index][:, stream[name]])


def test_worked_example_of_the_read_in():
    problem = worked_example()
    built = construct(1, 3, 1.0, 0.3, B_x=1.0, B_y=1.0, scheme="paper", eps=1e-4, c=0.1)
    after = stages(built, problem)
    k = after[1][1:, built.stream.row("k")]
    np.testing.assert_allclose(k, [0.3647151323, 0.3112296656, 0.3647151323, 0.3142770207], atol=1e-10)
    alpha = after[2][1:4, built.stream.row("alpha")]
    np.testing.assert_allclose(alpha, [0.5740969930, 0.4518627619, 0.5740969930], atol=1e-4 / 3)


def test_the_path_has_the_one_context_that_the_network_knows():
    built = network(eps=0.05)
    problem = system(11, 2, 1.0, 2.0, B_y=2.0)
    x, y, _ = problem.tensors()
    path = built.path(Prompts(x[None], y[None]))
    assert path.contexts.tolist() == [10]
    assert path.values.shape == (built.L + 1, 1, 1)
    assert path.values[0].abs().max() <= 1e-10
    torch.testing.assert_close(path.values[-1, 0], built.predict(x[:10], y[:10], x[10:]).value)


@pytest.mark.parametrize("queries", [1, 16])
def test_queries_do_not_see_each_other(queries):
    built = network(N=6, eps=0.05)
    problem = system(6, 2, 1.0, 1.2, B_y=2.0, M=queries)
    x, y, xq = problem.tensors()
    together = built.predict(x, y, xq).value
    torch.testing.assert_close(together[-1:], built.predict(x, y, xq[-1:]).value, rtol=0, atol=1e-12)


# ---------------------------------------------------------------- the slips, each taken literally


def p_in_row_of_beta(built):
    """Erratum 1: the iteration writes p to row d + 6."""
    attention = built.blocks[3].attention
    attention.W_V[0, built.stream.row("beta")] = attention.W_V[0, built.stream.row("p")]
    attention.W_V[0, built.stream.row("p")] = 0


def clears_row_of_beta(built):
    """Erratum 2: the step clears row d + 6."""
    W_out = built.blocks[4].mlp.W_out
    W_out[built.stream.row("beta")] = W_out[built.stream.row("p")]
    W_out[built.stream.row("p")] = 0


def inverse_without_its_constant(built):
    """Erratum 3: the spline of 1 / x without d = N + 1."""
    scheme, stream = built.scheme, built.stream
    spline = splines.inverse(1 / (scheme.problem.N + 1), scheme.theorem.units["inv"])
    W_in = spline.a[:, None] * stream.form(k=1.0) + spline.b[:, None] * stream.form(one=1.0)
    built.blocks[-2].mlp = MLP(W_in, stream.write(k_hat=spline.c))


def softmax_over_queries(built):
    """Erratum 5: the matrix formula, row-wise softmax of (W_K Z)^T (W_Q Z)."""

    def literal(attention, Z, kinds):
        [W_Q], [W_K], [W_V] = attention.W_Q, attention.W_K, attention.W_V
        logits = (Z @ W_Q.T) @ (Z @ W_K.T).mT + attention.masks[0].matrix(kinds, Z.dtype)
        return Z + torch.softmax(logits, dim=-2).nan_to_num() @ (Z @ W_V.T)

    for attention in {id(b.attention): b.attention for b in built.blocks if b.attention is not None}.values():
        attention.forward = literal.__get__(attention)


def query_is_a_key_of_the_iteration(built):
    seen = Mask(dummy=("train",), train=("train", "query"), query=("train",))
    built.blocks[3].attention.masks = (seen,)


SLIPS = [
    p_in_row_of_beta,
    clears_row_of_beta,
    inverse_without_its_constant,
    softmax_over_queries,
    query_is_a_key_of_the_iteration,
]


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: slip.__name__)
def test_a_slip_is_seen_although_the_theorems_bound_does_not_see_it(slip):
    built = network()
    problem = system(10, 2, 1.0, 2.0, B_y=2.0)
    expected = inexact_recursion(built.scheme, problem)["out"][0]
    wrong = copy.deepcopy(built)
    slip(wrong)
    outputs = [stages(which, problem)[-1][-1, built.stream.row("y")].item() for which in (built, wrong)]
    assert outputs[0] == pytest.approx(expected, abs=1e-10)
    assert abs(outputs[1] - expected) > 1e-4
    if slip is not clears_row_of_beta:  # which explodes
        assert abs(outputs[1] - problem.exact[0]) <= built.certificate.bound


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": 2.5}, r"largest \|y_i\| = 2.5: must be at most B_y = 2.*divide the labels by 1.25"),
        ({"x": 1.5}, r"largest \|x\| = 1.5: must be at most B_x = 1"),
        ({"xq": 1.5}, r"largest \|x\| = 1.5"),
        ({"n": 9}, r"n = 9 training tokens: must be exactly 10"),
        ({"n": 11}, r"n = 11 training tokens: must be exactly 10"),
        ({"y": 2.5, "x": 1.5, "n": 9}, r"(?s)3 reasons.*n = 9.*y_i.*\|x\|"),
    ],
)
def test_prompts_outside_the_theorem_are_refused(change, message):
    problem = system(11, 2, 1.0, 2.0, B_y=2.0)
    x, y, xq = problem.tensors()
    n = change.get("n", 10)
    x, y = x[:n].clone(), y[:n].clone()
    if "y" in change:
        y[0] = change["y"]
    if "x" in change:
        x[0] = torch.tensor([0, change["x"]])
    if "xq" in change:
        xq[0] = torch.tensor([change["xq"], 0])
    with pytest.raises(InputError, match=message):
        network(eps=0.05).predict(x, y, xq)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eps": 0.3, "c": 0.2}, "eps < c < 1"),
        ({"eps": 0.6, "c": None}, "eps < c < 1"),
        ({"c": 1.0}, "c = 1.0"),
        ({"eta": 0.9}, r"eta = 0.9: must be below 0.40"),
        ({"eps": None}, "none of eps, error, L"),
        ({"error": 0.1}, "one of eps, error, L"),
        ({"eps": 0.3, "c": 0.2, "eta": 5.0}, r"(?s)2 reasons.*eps < c < 1.*eta = 5"),
        ({"eps": -1.0}, "eps = -1.0"),
    ],
)
def test_arguments_outside_the_theorem_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        network(**arguments)


@pytest.mark.parametrize("v", [0.2, 0.1])
def test_a_narrow_kernel_is_certified_although_its_least_value_is_lost_beside_1(v):
    network = construct(2, 4, v, 1.0, B_x=1.0, B_y=1.0, eps=0.1)
    kappa = math.exp(-2 / v**2)
    assert network.certificate["n_flip"] == pytest.approx(2 * (4 * kappa) ** -0.5 * 40**0.5, rel=1e-6)
    assert not network.is_built


def test_missing_ranges_are_named_together():
    with pytest.raises(InputError, match=r"(?s)2 reasons.*B_x.*B_y"):
        construct(2, 10, 1.0, 2.0, scheme="paper", eps=0.1)


def test_a_bound_that_says_nothing_warns():
    with pytest.warns(UserWarning, match="says nothing: predicting 0 has error at most"):
        network()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network(eps=None, error=0.4, N=5, lam_0=1.0, B_y=1.0, c=0.5)


@pytest.mark.parametrize("L", [1, 5, 200])
def test_a_number_of_iterations_alone_is_enough(L):
    built = construct(2, 5, 2.0, 5.0, B_x=1.0, B_y=1.0, scheme="paper", L=L)
    assert built.L == L
    assert built.depth == 2 * L + 5
    problem = system(5, 2, 2.0, 5.0)
    prediction = built.predict(*problem.tensors())
    assert (prediction.value - torch.tensor(problem.exact)).abs().max() <= min(
        prediction.bound.max(), built.certificate.bound
    )


def test_fewer_iterations_than_the_theorem_asks_for_have_the_propositions_bound():
    few, enough = network(L=5), network()
    assert few.certificate.bound > enough.certificate.bound
    assert few.certificate["n_sq"] == enough.certificate["n_sq"]
