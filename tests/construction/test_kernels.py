"""Other kernels: sums of Gaussians within a proved distance, and networks that compute them, against scikit-learn."""

import importlib.util
import math

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import kernels as oracle

import layerstep as ls
from construction.cases import KINDS, system
from layerstep.construction import GaussianMixture, Matern, RationalQuadratic, calibrate_interval
from layerstep.construction.certificate import certify
from layerstep.construction.fits import certified_error
from layerstep.construction.kernels import PROFILES, Mixture
from layerstep.errors import InputError

SKLEARN = {
    "matern12": oracle.Matern(length_scale=0.8, nu=0.5),
    "matern32": oracle.Matern(length_scale=0.8, nu=1.5),
    "matern52": oracle.Matern(length_scale=0.8, nu=2.5),
    "exponential": oracle.Matern(length_scale=0.8, nu=0.5),
    "rational-quadratic": oracle.RationalQuadratic(length_scale=0.8, alpha=1.0),
    "inverse-multiquadric": oracle.RationalQuadratic(length_scale=0.8, alpha=0.5),
}
SETTING = {"d": 3, "N": 20, "v": 0.8, "lam": 0.1}


def exact(kernel, x, y, xq, lam):
    return kernel(xq, x) @ np.linalg.solve(kernel(x) + lam * np.eye(len(x)), y)


@pytest.fixture(scope="module")
def networks():
    return {name: ls.construct(**SETTING, B_x=1.0, B_y=1.0, kernel=name, error=0.02) for name in SKLEARN}


# ---------------------------------------------------------------- the sums


@pytest.mark.parametrize("name", SKLEARN)
def test_a_profile_is_scikit_learns(name):
    r = np.concatenate([[0], np.geomspace(1e-6, 50, 300)])
    expected = SKLEARN[name](0.8 * r[:, None], np.zeros((1, 1)))[:, 0]
    np.testing.assert_allclose(PROFILES[name](torch.tensor(r)).numpy(), expected, rtol=1e-12, atol=1e-15)
    t = torch.tensor(r[1:] ** 2, requires_grad=True)
    PROFILES[name](t.sqrt()).sum().backward()
    np.testing.assert_allclose(PROFILES[name].slope(t.detach()).numpy(), t.grad.numpy(), rtol=1e-7)


@pytest.mark.parametrize("reach", [math.inf, 3.0])
@pytest.mark.parametrize("name", sorted({*SKLEARN} - {"exponential"}))
def test_the_proved_error_is_above_a_dense_grid_and_near_it(name, reach):
    mixture = GaussianMixture.fit(name, 1e-3, reach)
    last = min(reach, 1e5)
    r = torch.cat([torch.logspace(-9, math.log10(last), 200_001), torch.linspace(0, min(last, 10), 100_001)]).double()
    seen = float((mixture(r) - mixture.target(r)).abs().max())
    assert seen <= mixture.error <= 1.1 * seen
    assert mixture.error <= 1e-3
    assert min(mixture.weights) > 0
    assert math.fsum(mixture.weights) == pytest.approx(1, abs=1e-14)
    assert len(mixture.widths) <= 12


def enclosed(mixture, name, cell):
    """sup |profile - sum| by interval arithmetic: both fall, so on [a, b] each is between its values at the ends.

    The profile is scikit-learn's, values are widened by 1e-14, cells are cut until both intervals together are at most
    `cell` long; the last reaches to infinity.
    """

    def values(r):
        K = SKLEARN[name](0.8 * r[:, None], np.zeros((1, 1)))[:, 0]
        parts = zip(mixture.weights, mixture.widths, strict=True)
        return K, sum(weight * np.exp(-((r / width) ** 2) / 2) for weight, width in parts)

    finite = mixture.reach < math.inf
    r = np.concatenate([[0.0], np.geomspace(1e-9, mixture.reach if finite else 1e7, 2000)])
    K, G = values(r)
    while True:
        wide = np.flatnonzero((K[:-1] - K[1:]) + (G[:-1] - G[1:]) > cell)
        if not len(wide):
            break
        middle = (r[wide] + r[wide + 1]) / 2
        more = values(middle)
        r, K, G = (np.insert(old, wide + 1, new) for old, new in ((r, middle), (K, more[0]), (G, more[1])))
    highest, lowest = (K[:-1] - G[1:]).max(), (K[1:] - G[:-1]).min()
    return max(highest, -lowest, 0.0 if finite else max(K[-1], G[-1])) + 2e-14


@pytest.mark.parametrize("reach", [math.inf, 3.0])
@pytest.mark.parametrize("error", [1e-2, 1e-3])
@pytest.mark.parametrize("name", sorted({*SKLEARN} - {"exponential"}))
def test_interval_arithmetic_finds_no_distance_where_more_is_missed(name, error, reach):
    """Everywhere between nodes, too: what is proved by convexity is above an enclosure that knows monotony alone."""
    mixture = GaussianMixture.fit(name, error, reach)
    assert enclosed(mixture, name, cell=mixture.error / 60) <= mixture.error


def test_an_error_that_is_not_proved_is_refused():
    mixture = GaussianMixture.fit("matern32", 1e-3)
    fields = {"widths": mixture.widths, "target": mixture.target}
    with pytest.raises(InputError, match=r"error = 0.0001: must be at least .*, the certified one"):
        GaussianMixture(weights=mixture.weights, error=1e-4, **fields)
    moved = np.array(mixture.weights) + np.eye(len(mixture.weights))[0] * 0.01
    assert certified_error(tuple(moved / moved.sum()), mixture.widths, mixture.target, math.inf) > 2e-3
    with pytest.raises(InputError, match="must be at least"):
        GaussianMixture(weights=tuple(moved / moved.sum()), error=1e-3, **fields)


def test_one_gaussian_is_known_exactly():
    """A rational quadratic of large alpha is nearly a Gaussian: the difference in closed form, at its maximum."""
    r = torch.linspace(0, 6, 100_001, dtype=torch.float64)
    profile = RationalQuadratic(alpha=100.0)
    seen = float((profile(r) - torch.exp(-r * r / 2)).abs().max())
    assert seen <= certified_error((1.0,), (1.0,), profile, 6.0) <= 1.03 * seen


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianMixture(weights=(0.5, 0.6), widths=(1.0, 2.0)), "weights = of sum 1.1: must be of sum 1"),
        (lambda: GaussianMixture(weights=(1.5, -0.5), widths=(1.0, 2.0)), r"weights\[1\] = -0.5"),
        (lambda: GaussianMixture(weights=(1.0,), widths=(1.0, 2.0)), "1 and 2 numbers: must be as many"),
        (lambda: GaussianMixture(weights=(), widths=()), "0 and 0 numbers"),
        (lambda: GaussianMixture.fit("matern12", 1e-9), "64 Gaussians come within .* Ask for a larger error"),
        (lambda: Matern(nu=2.0), "nu = 2.0: must be 0.5, 1.5 or 2.5"),
        (lambda: RationalQuadratic(alpha=-1), "alpha = -1: must be from 0.1 to 100"),
        (lambda: ls.construct(**SETTING, L=3, kernel="matern12", kernel_error=1e-9), "^kernel_error = 1e-09: 64 Gauss"),
        (lambda: ls.construct(**SETTING, L=3, kernel="periodic"), r"not a mixture .*cos 2πx/p, sin 2πx/p"),
        (lambda: ls.construct(**SETTING, L=3, kernel="arc-cosine"), '"matern32" on inputs divided by'),
        (lambda: ls.construct(**SETTING, L=3, kernel="linear"), "nearly linear"),
        (lambda: ls.construct(**SETTING, L=3, kernel=len), "kernel = .*len.*: must be one of"),
        (lambda: ls.construct(**SETTING, L=3, kernel="matern", scheme="exact"), "divides by the row sums of one Gauss"),
        (lambda: ls.construct(**SETTING, L=3, kernel="matern", scheme="adaptive", B_x=1.0), "hi = None"),
        (lambda: ls.construct(**SETTING | {"lam": 1e-4}, B_y=1.0, error=1e-4, kernel="matern12"), "Or give L instead"),
        (lambda: ls.construct(3, 5, [1.0, 2.0], 0.1, L=3), "v = 2 numbers: must be 1 or d = 3"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.usefixtures("as_for_a_user")
def test_a_reach_beyond_every_float_is_infinite():
    assert GaussianMixture.fit("matern52", 0.01, reach=10**400).reach == math.inf
    assert GaussianMixture(weights=[1], widths=[1], reach=10**400).reach == math.inf


# ---------------------------------------------------------------- the networks


@pytest.mark.parametrize("name", SKLEARN)
@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_within_their_bound_and_the_guarantee_of_scikit_learns_kernel(networks, name, kind):
    network, problem = networks[name], system(20, 3, 0.8, 0.1, kind=kind, M=5)
    answer = network.predict(*problem.tensors())
    error = np.abs(answer.value.numpy() - exact(SKLEARN[name], problem.x, problem.y, problem.xq, 0.1))
    assert (error <= answer.bound.numpy() + 1e-12).all()
    assert answer.bound.max() <= answer.promised <= network.certificate.bound * 1.001
    assert network.certificate.bound <= 0.02
    assert network.certificate["kernel_bound"] > 0


def test_the_trajectory_is_the_recursion_of_the_sum(networks):
    network, problem = networks["matern32"], system(20, 3, 0.8, 0.1)
    K = sum(
        weight * np.exp(-((problem.x[:, None] - problem.x[None]) ** 2).sum(-1) / (2 * part.v**2))
        for weight, part in network.problem.kernel.parts
    )
    expected = problem.recursion(K + 0.1 * np.eye(20), problem.y, *network.scheme.steps.coefficients(network.L))
    x, y, xq = problem.tensors()
    [(_, run)] = network.pieces(x[None], y[None], xq[None])
    row, size = network.stream.row("w"), np.abs(expected).max()
    for stage in run.iterate():
        np.testing.assert_allclose(run.Z[row, 0, 1:21].numpy(), expected[stage], atol=1e-10 * size)


@pytest.mark.parametrize("heads", [None, 1, 3])
def test_heads_in_one_block_or_one_after_the_other_are_the_definition(heads):
    problem = system(20, 3, 0.8, 0.1)
    asked = {"B_x": 1.0, "L": 6, "kernel": "matern52", "kernel_error": 1e-2}
    network = ls.construct(**SETTING, **asked, heads=heads)
    parts = len(network.problem.kernel.parts)
    reads = 1 if heads is None else math.ceil(parts / heads)
    assert network.depth == 1 + 6 * reads
    assert network.certificate.heads == min(parts, heads or parts)
    x, y, xq = problem.tensors()
    centre = x.mean(0)
    Z, kinds = network.stream.embed((x - centre)[None], y[None], (xq - centre)[None])
    by_definition = network(Z, kinds)[0, -3:, network.stream.row("y")]
    torch.testing.assert_close(network.predict(x, y, xq).value, by_definition, atol=1e-12, rtol=0)
    torch.testing.assert_close(network.predict(x, y, xq, budget=0).value, by_definition, atol=1e-12, rtol=0)


def test_a_length_scale_for_each_coordinate(tmp_path):
    problem, scales = system(20, 3, 0.8, 0.1), [0.5, 1.0, 2.0]
    network = ls.construct(3, 20, scales, 0.1, B_x=2.0, B_y=1.0, kernel="matern52", error=0.02)
    x, y, xq = problem.tensors()
    answer = network.predict(x, y, xq)
    kernel = oracle.Matern(length_scale=scales, nu=2.5)
    assert (
        np.abs(answer.value.numpy() - exact(kernel, problem.x, problem.y, problem.xq, 0.1)) <= answer.bound.numpy()
    ).all()
    assert answer.bound.max() < 0.02
    path = network.path(ls.Prompts(torch.cat([x, xq[:1]])[None], torch.cat([y, y[:1]])[None]), contexts=[20])
    assert float(path.values[-1, 0, 0]) == pytest.approx(float(answer.value[0]), abs=1e-12)
    again = ls.Construction.load(network.save(tmp_path / "network"))
    torch.testing.assert_close(again.predict(x, y, xq).value, answer.value, atol=0, rtol=0)
    assert again.problem == network.problem
    network.export(tmp_path)
    spec = importlib.util.spec_from_file_location("alone", tmp_path / "model.py")
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    alone = alone.load(tmp_path / "weights.safetensors")
    torch.testing.assert_close(alone.predict(x, y, xq), answer.value, atol=1e-11, rtol=0)


def test_distances_outside_the_fit_are_said_and_the_bound_holds():
    network = ls.construct(**SETTING, B_x=0.4, B_y=1.0, kernel="matern12", error=0.1)
    problem = system(20, 3, 0.8, 0.1)
    with pytest.warns(UserWarning, match=r"points .* apart: the kernel was fitted for distances up to 0.8"):
        answer = network.predict(*problem.tensors())
    assert answer.promised is None
    error = np.abs(answer.value.numpy() - exact(SKLEARN["matern12"], problem.x, problem.y, problem.xq, 0.1))
    assert (error <= answer.bound.numpy()).all()


def test_a_kernel_known_by_its_distance_from_a_mixture():
    """The bound grows by what the mixture may miss, and covers a kernel at that distance; beyond the reach: refused."""
    fitted = GaussianMixture.fit("matern32", 1e-3)
    known = GaussianMixture(weights=fitted.weights, widths=fitted.widths, error=1e-3, reach=4.0)
    problem = system(20, 3, 0.8, 0.1)
    network, plain = (ls.construct(**SETTING, L=100, kernel=each) for each in (known, fitted))
    answer, other = (each.predict(*problem.tensors()) for each in (network, plain))
    error = np.abs(answer.value.numpy() - exact(SKLEARN["matern32"], problem.x, problem.y, problem.xq, 0.1))
    assert (error <= answer.bound.numpy()).all()
    assert (answer.fit > 0).all()
    assert (other.fit == 0).all()
    assert (other.bound < answer.bound).all()
    with pytest.raises(InputError, match=r"nothing is known of the kernel beyond"):
        network.predict(10 * problem.x, problem.y, problem.xq)


def test_the_perturbation_bound_holds_for_random_kernels_at_that_distance():
    """|f - f'| <= kernel_bound |y| / √lam, the two kernels a mixture and what it was fitted to, on random prompts."""
    rng = np.random.default_rng(0)
    for name in ("matern12", "matern52", "rational-quadratic"):
        mixture = GaussianMixture.fit(name, 0.03)
        for lam in (1.0, 0.01):
            network = ls.construct(2, 15, 0.8, lam, L=1, kernel=mixture)
            kernel = Mixture(v=0.8, mixture=GaussianMixture(weights=mixture.weights, widths=mixture.widths))
            for _ in range(20):
                x, xq, y = (
                    rng.normal(size=(15, 2)) * rng.choice([0.01, 1]),
                    rng.normal(size=(4, 2)),
                    rng.normal(size=15),
                )
                a, b = torch.tensor(x), torch.tensor(xq)
                of_sum = kernel(b, a).numpy() @ np.linalg.solve(kernel(a, a).numpy() + lam * np.eye(15), y)
                apart = np.abs(of_sum - exact(SKLEARN[name], x, y, xq, lam)).max()
                assert apart <= network.problem.kernel_bound * np.linalg.norm(y) / math.sqrt(lam)


def test_the_adaptive_network_of_another_kernel():
    task = ls.Task(d=3, N=20)
    prompts = ls.sample(task, 10, seed=3)
    interval = calibrate_interval(prompts, 0.8, 0.01, kernel="matern32")
    options = {"hi": interval.hi, "least": interval.least, "kernel": "matern32", "kernel_error": 1e-6}
    network = ls.construct(3, 20, 0.8, 0.01, scheme="adaptive", L=80, **options)
    x, y, xq = prompts.x[0, :20].numpy(), prompts.y[0, :20].numpy(), prompts.x[0, 20:].numpy()
    answer = network.predict(x, y, xq)
    error = np.abs(answer.value.numpy() - exact(SKLEARN["matern32"], x, y, xq, 0.01))
    assert (error <= answer.bound.numpy()).all()
    assert answer.bound.max() < 1e-3
    assert interval.hi < 5  # 20.01 without deflation


def test_what_is_certified_is_the_kernel_that_was_meant():
    """With the mixture in place of the kernel the bound is too small: here by more than the whole of it."""
    coarse = GaussianMixture.fit("matern12", 0.3)
    network, problem = ls.construct(**SETTING, L=200, kernel=coarse), system(20, 3, 0.8, 0.1)
    x, y, xq = problem.tensors()
    answer = network.predict(x, y, xq)
    error = np.abs(answer.value.numpy() - exact(SKLEARN["matern12"], problem.x, problem.y, problem.xq, 0.1))
    assert (error <= answer.bound.numpy()).all()
    of_mixture = Mixture(v=0.8, mixture=GaussianMixture(weights=coarse.weights, widths=coarse.widths))
    [(_, run)] = network.pieces(x[None], y[None], xq[None])
    for _ in run.iterate():
        pass
    w = run.Z[network.stream.row("w"), 0, 1:21]
    wrong = certify(x, y, xq, w, answer.value, of_mixture, 0.1).bound.numpy()
    assert (error > wrong).all()
