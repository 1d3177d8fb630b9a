"""The adaptive network: block by block, against plain recursions, its certificate from inside, and how it fails."""

import math
import warnings

import numpy as np
import pytest
import torch

from construction.cases import KINDS, kernel, system
from layerstep.construction import Construction, TransformerKRR, calibrate_interval, construct
from layerstep.construction.schemes.deflation import features, newton_schulz, poisson_tail
from layerstep.construction.standalone import load
from layerstep.errors import InputError
from layerstep.tasks import Prompts, Task, sample

PAPER = {"d": 5, "N": 40, "v": 1.0, "lam": 0.0025, "scheme": "adaptive"}


def polynomials(x, degree):
    """1, x, .. of x minus its mean, damped, scaled so that their Gram matrix is the Taylor part of the kernel."""
    z = x - x.mean(0)
    columns = [np.ones(len(z)), *z.T]
    d = z.shape[1]
    if degree >= 2:
        columns += [z[:, i] * z[:, j] / (math.sqrt(2) if i == j else 1) for i in range(d) for j in range(i, d)]
    if degree == 3:
        triples = [(i, j, k) for i in range(d) for j in range(i, d) for k in range(j, d)]
        size = {1: math.sqrt(6), 2: math.sqrt(2), 3: 1}  # by how many are different
        columns += [z[:, i] * z[:, j] * z[:, k] / size[len({i, j, k})] for i, j, k in triples]
    return np.stack(columns, 1) * np.exp(-(z**2).sum(1) / 2)[:, None]


def deflated(problem, degree):
    """Z with ZᵀMZ = 1 that spans the polynomials, by an eigendecomposition; V = MZ."""
    values, Q = np.linalg.eigh(problem.M)
    root, inverse = (Q * np.sqrt(values)) @ Q.T, (Q / np.sqrt(values)) @ Q.T
    U, s, _ = np.linalg.svd(root @ polynomials(problem.x, degree), full_matrices=False)
    Z = inverse @ U[:, s > 1e-9 * s[0]]
    return Z, problem.M @ Z


def ideal(network, problem):
    """w_1, .., w_L of exact arithmetic and an exact projection, each with its coarse correction."""
    scheme, y, M = network.scheme, problem.y, problem.M
    Z, V = deflated(problem, scheme.degree)
    coefficients = scheme.steps.coefficients(network.L)
    if scheme.refresh:
        project = np.eye(len(y)) - (1 - scheme.gains.shrink) * Z @ V.T
        w = previous = Z @ (Z.T @ y)
        iterates = []
        for a, b in zip(*coefficients, strict=True):
            w, previous = w + a * project @ (y - M @ w) + b * (w - previous), w
            iterates.append(w)
    else:
        iterates = problem.recursion(M - V @ V.T, y - V @ (Z.T @ y), *coefficients)[1:]
    return [w + Z @ (Z.T @ (y - M @ w)) for w in iterates]


def prompt(n=40, d=5, inputs="sphere", seed=1):
    """A prompt of the paper's setting, as the tests' plain arithmetic has it."""
    drawn = sample(Task(inputs=inputs, N=n, d=d), 1, seed)
    made = system(n, d, 1.0, 0.0025, M=3)
    return type(made)(drawn.x[0, :n].numpy(), drawn.y[0, :n].numpy(), drawn.x[0, n:].numpy(), 1.0, 0.0025)


def run(network, problem):
    """The pass, before its first block."""
    x, y, xq = problem.tensors()
    [(_, passed)] = network.pieces(x[None], y[None], xq[None])
    return passed


# ---------------------------------------------------------------- the mathematics


def test_newton_schulz_needs_the_published_steps_and_brings_singular_values_to_one():
    for least, steps in ((0.05, 8), (0.02, 9), (0.01, 10), (0.003, 11), (0.001, 12), (0.0003, 13)):
        coefficients = newton_schulz(least)
        assert len(coefficients) in (steps, steps + 1)
        s = np.append(np.geomspace(least, 1, 1000), 0.0)
        for a, b in coefficients:
            s = s * (a - b * s * s)
        assert s[-1] == 0
        assert np.abs(s[:-1] - 1).max() < 1e-12


def test_features_leave_the_rest_of_the_taylor_series():
    """K - ΦΦᵀ has no negative eigenvalue, and its diagonal is Q_p(|x|²)."""
    problem = system(30, 3, 1.3, 0.1)
    x = problem.x - problem.x.mean(0)
    for degree in (1, 2, 3):
        Phi = features(torch.tensor(problem.x), 1.3, degree).numpy()
        np.testing.assert_allclose(Phi, polynomials(problem.x / 1.3, degree), atol=1e-14)
        rest = problem.K - Phi @ Phi.T
        assert np.linalg.eigvalsh(rest)[0] > -1e-14
        tails = [poisson_tail((z**2).sum() / 1.3**2, degree) for z in x]
        np.testing.assert_allclose(np.diag(rest), tails, atol=1e-14)
    assert poisson_tail(0.0, 1) == 0
    assert poisson_tail(1e6, 2) == 1


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_theorem_bounds_the_deflated_spectrum(degree, kind):
    problem = system(25, 3, 0.9, 0.01, kind=kind)
    B_x = np.linalg.norm(problem.x - problem.x.mean(0), axis=1).max()
    network = construct(3, 25, 0.9, 0.01, B_x=max(B_x, 1e-9), L=1, scheme="adaptive", degree=degree)
    _, V = deflated(type(problem)(problem.x / 0.9, problem.y, problem.xq / 0.9, 1.0, 0.01), degree)
    spectrum = np.linalg.eigvalsh(problem.M - V @ V.T)
    assert spectrum[-1] <= network.certificate["hi"] * (1 + 1e-9)


def test_calibration_is_the_largest_eigenvalue_that_exact_deflation_leaves():
    task = Task()
    prompts = sample(task, 6, seed=2)
    interval = calibrate_interval(prompts, task.v, task.lam, margin=1.0)
    largest = 0.0
    for x, y in zip(prompts.x[:, :40], prompts.y[:, :40], strict=True):
        problem = type(prompt())(x.numpy(), y.numpy(), x.numpy(), 1.0, task.lam)
        _, V = deflated(problem, 2)
        largest = max(largest, np.linalg.eigvalsh(problem.M - V @ V.T)[-1])
    assert interval.hi == pytest.approx(largest, rel=1e-6)
    assert calibrate_interval(prompts, task.v, task.lam).hi == pytest.approx(1.3 * largest, rel=1e-6)
    assert 1e-4 < interval.least < 0.01


def test_features_lost_beside_distant_inputs_do_not_set_the_interval():
    """Far from their mean all are 1e-20, or 0: what would bring these to 1 brings rounding there."""
    rng = np.random.default_rng(0)
    x, y = 1e3 * rng.normal(size=(12, 2)), rng.normal(size=12)
    for distance, v in ((9.0, 110.0), (1.0, 1.0), (1e100, 1e-140)):
        assert calibrate_interval(Prompts(distance * x[None], y[None]), v, 0.1).least == 0.5
    value, bound = TransformerKRR(scheme="adaptive", scale=False).fit(x, y).predict(x, return_bound=True)
    exact = y.mean() + (y - y.mean()) / 1.1  # K is the identity
    assert (np.abs(value - exact) <= bound).all()
    assert (bound < 0.01 * np.abs(y - y.mean()).max()).all()


# ---------------------------------------------------------------- the network


@pytest.mark.parametrize(
    ("degree", "d", "hi", "refresh", "tolerance"),
    [(1, 5, 2.6, False, 2e-5), (2, 5, 1.22, False, 5e-5), (2, 5, 1.22, True, 1e-3), (3, 3, 0.2, False, 1e-3)],
)
def test_the_trajectory_is_the_plain_recursion_with_an_exact_projection(degree, d, hi, refresh, tolerance):
    problem = prompt(d=d)
    network = construct(**PAPER | {"d": d}, degree=degree, hi=hi, L=60, refresh=refresh)
    passed, stream = run(network, problem), network.stream
    expected = ideal(network, problem)
    for stage in passed.iterate():
        passed.read_out()
        if stage > 0:
            w = passed.closed[stream.row("w"), 0, passed.spans["train"]].numpy()
            apart = np.abs(w - expected[stage - 1]).max()
            assert apart <= tolerance * max(1, np.abs(expected[stage - 1]).max()), stage
    Z = passed.Z[stream["Z"], 0, passed.spans["train"]].T.numpy()
    projection = Z.T @ problem.M @ Z  # on the sphere 1, x and |x|² depend on each other
    np.testing.assert_allclose(projection @ projection, projection, atol=tolerance)
    dependent = {1: 0, 2: 1, 3: 1 + d}[degree]  # 1 and |x|², and those times x
    assert np.trace(projection) == pytest.approx(Z.shape[1] - dependent, abs=10 * tolerance)


@pytest.mark.parametrize("heads", [None, 1])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_the_features_are_the_polynomials(degree, heads):
    problem = system(7, 3, 0.8, 0.3)
    network = construct(3, 9, 0.8, 0.3, hi=1.5, L=1, scheme="adaptive", degree=degree, heads=heads)
    x, y, xq = problem.tensors()
    Z, kinds = network.stream.embed(x[None] + 0.4, y[None], xq[None])
    after = {(1, None): 2, (2, None): 4, (3, None): 7, (1, 1): 2, (2, 1): 8, (3, 1): 20}[degree, heads]
    for block in network.blocks[:after]:
        Z = block(Z, kinds)
    expected = polynomials(problem.x / 0.8, degree) / math.sqrt(9 * 9.3)
    np.testing.assert_allclose(Z[0, 1:8, network.stream["Z"]].numpy(), expected, atol=1e-7)
    assert not Z[0, [0, 8], network.stream["Z"]].any()


@pytest.mark.parametrize(
    ("heads", "options"),
    [
        (1, {}),
        (1, {"degree": 1, "kernel": "matern52", "kernel_error": 1e-2}),
        (2, {"degree": 3}),
        (3, {}),
        (2, {"refresh": True}),
    ],
)
def test_heads_one_after_the_other_compute_the_same(heads, options):
    problem = system(12, 2, 1.0, 0.1, M=4)
    wide, narrow = (
        construct(2, 12, 1.0, 0.1, hi=2.0, L=25, scheme="adaptive", heads=each, **options) for each in (None, heads)
    )
    assert narrow.certificate.heads == heads < wide.certificate.heads
    assert narrow.depth > wide.depth
    a, b = (network.predict(*problem.tensors()) for network in (wide, narrow))
    torch.testing.assert_close(a.value, b.value, rtol=0, atol=1e-6)
    torch.testing.assert_close(a.inside, b.inside, rtol=1e-3, atol=1e-6)


def test_degree_3_certifies_in_38_blocks_where_its_features_are_more_than_the_examples():
    network = construct(**PAPER, degree=3, hi=0.02, L=1)
    assert (network.depth, network.certificate.heads, network.certificate["m"]) == (38, 4, 56)
    for inputs in ("sphere", "uniform", "gaussian"):
        problem = prompt(inputs=inputs, seed=1000)
        prediction = network.predict(*problem.tensors())
        assert (np.abs(prediction.value.numpy() - problem.exact) <= prediction.bound.numpy()).all()
        assert prediction.bound.max() <= 0.01


def attention_of(block, Z, kinds):
    """The block's attention by NumPy, its softmax with 64 bits of mantissa."""
    Z, new = Z.astype(np.longdouble), Z.astype(np.longdouble).copy()
    attention = block.attention
    for W_Q, W_K, W_V, mask in zip(attention.W_Q, attention.W_K, attention.W_V, attention.masks, strict=True):
        W_Q, W_K, W_V = (W.numpy().astype(np.longdouble) for W in (W_Q, W_K, W_V))
        logits = (Z @ W_Q.T) @ (Z @ W_K.T).T + mask.matrix(kinds, torch.float64)[0].numpy()
        weights = np.exp(logits - logits.max(1, keepdims=True))
        new += (weights / weights.sum(1, keepdims=True)) @ (Z @ W_V.T)
    return new


@pytest.mark.parametrize("refresh", [False, True])
def test_every_block_writes_what_its_formula_says_and_nothing_else(refresh):
    """Each block's input is what the block before left; formulas are sums over examples, without softmax or pairs."""
    problem = system(7, 2, 0.8, 0.3, M=2)
    network = construct(2, 9, 0.8, 0.3, hi=1.5, L=3, least=0.05, scheme="adaptive", refresh=refresh)
    stream, scheme, lam = network.stream, network.scheme, 0.3
    x, y, xq = problem.tensors()
    padded = torch.cat([x, torch.full((2, 2), 7.0)]), torch.cat([y, torch.full((2,), 9.0)])
    Z, kinds = stream.embed(padded[0][None], padded[1][None], xq[None], torch.tensor([7]))
    before = {name: Z[0, :, stream[name]].clone() for name in stream}
    K, k_q, train, query = torch.tensor(problem.K), torch.tensor(problem.k_q), slice(1, 8), slice(10, 12)
    unit, steps = 1 / math.sqrt(9 * 9.3), newton_schulz(0.05)
    a, b = scheme.steps.coefficients(3)

    def state(name):
        return before[name][train]

    def expected(index):
        """What changes on the examples, and on the queries."""
        z = (x - x.mean(0)) / 0.8
        damped = unit * torch.exp(-z.square().sum(1)) ** 0.5
        first = 1 + 2 + 1 + len(steps)  # centre, two blocks of features, image
        if index == 0:
            return {"mu": x.mean(0).expand(7, 2)}, {}
        if index == 1:
            some = torch.stack([z[:, 0] ** 2 / math.sqrt(2), z[:, 0] * z[:, 1], 0 * z[:, 0]], 1)
            return {"Z": damped[:, None] * torch.cat([torch.ones(7, 1), z, some], 1)}, {}
        if index == 2:
            return {"Z": state("Z") + damped[:, None] * (z[:, 1:] ** 2 / math.sqrt(2)) * torch.eye(6)[5]}, {}
        if index == 3 or index == first:
            return {"V": K @ state("Z") + lam * state("Z")}, {}
        if index < first:
            s, (alpha, beta) = state("Z"), steps[index - 4]
            V = state("V")
            last = index == first - 1
            return {"Z": alpha * s - beta * s @ V.T @ s, "V": 0 * V if last else alpha * V - beta * V @ s.T @ V}, {}
        return after(index - first - 1)

    def moved(u, w=None):
        return {"w": (state("w") if w is None else w) + u, "k_hat": u, "p": 0 * state("p")}, {}

    def after(index):
        w, y_, c, V, s = (state(name) for name in ("w", "y", "k_hat", "V", "Z"))
        if refresh:
            if index == 0:
                return {"w": s @ s.T @ y_}, {}
            step, part = divmod(index - 1, 2)
            if step < 3:
                g = y_ + state("p") - lam * w
                if part == 0:
                    return {"p": -K @ w}, {}
                return moved(a[step] * (g - (1 - scheme.gains.shrink) * s @ V.T @ g) + b[step] * c)
            index = index - 7
        else:
            if index == 0:
                return {"beta": -V @ s.T @ y_} | moved(a[0] * (y_ - V @ s.T @ y_))[0], {}
            if index < 3:
                g = y_ + state("beta") - lam * w - K @ w + V @ V.T @ w
                return moved(a[index] * g + b[index] * c)
            index -= 3
        if index == 0:
            return {"k_hat": y_ - lam * w - K @ w, "p": 0 * w}, {}
        if index == 1:
            return {"w": w + s @ s.T @ c, "k_hat": 0 * c}, {}
        if index == 2:
            out = k_q @ w
            return {"p": -K @ w, "k_hat": y_ - lam * w - K @ w}, {"y": out, "k_hat": out}
        return {}, {"cert": (c.square().sum() / 4 / lam).expand(2, 1)}

    # Pairs of size eps err by eps², sinks of weight a by n / a: both are large in the form that is made for float32.
    exact = {"rtol": 1e-7, "atol": 1e-7} if not refresh else {"rtol": 2e-3, "atol": 2e-3}
    for index, block in enumerate(network.blocks):
        change, on_queries = expected(index)
        literal = attention_of(block, Z[0].numpy(), kinds)
        Z = block(Z, kinds)
        if block.mlp is None:
            np.testing.assert_allclose(Z[0].numpy(), literal.astype(float), rtol=1e-9, atol=1e-9)
        for name in stream:
            want, got = before[name].clone(), Z[0, :, stream[name]]
            if name in change:
                want[train] = change[name]
            if name in on_queries:
                want[query] = on_queries[name]
            if name in change or name in on_queries:
                torch.testing.assert_close(got, want, **exact, msg=lambda text, i=index, n=name: f"{i} {n}: {text}")
            else:
                assert torch.equal(got, want), (index, name)
            before[name] = got.clone()


@pytest.mark.parametrize("inputs", ["sphere", "uniform", "gaussian"])
def test_the_papers_setting_is_certified_in_120_blocks(inputs):
    """Fresh prompts of three input distributions, one network."""
    network = construct(**PAPER, hi=1.22, L=96)
    assert (network.depth, network.certificate.heads, network.width) == (120, 4, 84)
    for seed in range(3):
        problem = prompt(inputs=inputs, seed=1000 + seed)
        prediction = network.predict(*problem.tensors())
        error = np.abs(prediction.value.numpy() - problem.exact)
        assert (error <= prediction.bound.numpy()).all()
        assert prediction.bound.max() <= 0.01
        assert (error <= prediction.inside.numpy()).all()
        # The same residual, from inside and outside.
        torch.testing.assert_close(prediction.inside, prediction.iteration, rtol=1e-3, atol=1e-6)


def test_float32_works_in_two_blocks_per_step():
    network = construct(**PAPER, hi=1.22, L=72, dtype="float32")
    assert network.scheme.refresh
    assert network.depth == 169
    for seed in range(3):
        problem = prompt(inputs="gaussian", seed=seed)
        prediction = network.predict(*problem.tensors())
        error = np.abs(prediction.value.numpy() - problem.exact)
        assert (error <= prediction.bound.numpy()).all()
        assert error.max() < 5e-3
        assert prediction.bound.max() < 0.1


def test_a_shift_of_the_inputs_changes_nothing_inside_either():
    """`predict` centres before it embeds; the network centres what its features need by itself."""
    problem = system(12, 2, 1.0, 0.1, M=4)
    network = construct(2, 12, 1.0, 0.1, hi=1.0, L=40, scheme="adaptive")
    x, y, xq = problem.tensors()
    values = [network(*network.stream.embed((x + s)[None], y[None], (xq + s)[None]))[0, -4:] for s in (0.0, 3.0, 1e3)]
    for value in values[1:]:
        row = network.stream.row("y")
        torch.testing.assert_close(value[:, row], values[0][:, row], rtol=0, atol=1e-7)
        assert (value[:, network.stream.row("cert")] < 1e-8).all()
    for shift in (1e3, 1e8):
        prediction = network.predict(x + shift, y, xq + shift)
        # The shifted numbers are rounded: this is another prompt, by as much.
        moved = np.abs(prediction.value.numpy() - problem.exact) - prediction.bound.numpy()
        assert moved.max() <= 1e-13 * shift


@pytest.mark.parametrize("refresh", [False, True])
def test_executor_definition_and_export_agree(refresh, tmp_path):
    problem = system(12, 2, 1.0, 0.1, M=4)
    network = construct(2, 12, 1.0, 0.1, hi=1.0, L=12, scheme="adaptive", refresh=refresh)
    x, y, xq = problem.tensors()
    centre = x.mean(0)
    plain = network(*network.stream.embed((x - centre)[None], y[None], (xq - centre)[None]))
    fast = network.predict(x, y, xq)
    row = network.stream.row
    torch.testing.assert_close(fast.value, plain[0, -4:, row("y")], rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(fast.inside.square(), plain[0, -4:, row("cert")], rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(network.predict(x, y, xq, budget=200).value, fast.value, rtol=1e-7, atol=1e-7)
    again = Construction.load(network.save(tmp_path / "network.safetensors"))
    torch.testing.assert_close(again.predict(x, y, xq).value, fast.value, rtol=0, atol=0)
    exported = load(str(network.export(tmp_path / "model") / "weights.safetensors"))
    torch.testing.assert_close(exported.predict(x, y, xq), fast.value, rtol=1e-7, atol=1e-7)


def test_a_path_is_the_prediction_of_every_prefix():
    prompts = sample(Task(N=6, d=2), 2, seed=1)
    network = construct(2, 10, 1.0, 0.0025, hi=5.0, L=9, scheme="adaptive", degree=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = network.path(prompts)
        assert not path.at(0).any()
        for n in (1, 4, 6):
            one = network.predict(prompts.x[1, :n], prompts.y[1, :n], prompts.x[1, n : n + 1])
            torch.testing.assert_close(path.at(9)[1, n - 1], one.value[0], rtol=1e-6, atol=1e-6)
    assert network.predict(np.zeros((0, 2)), np.zeros(0), np.ones((2, 2))).value.tolist() == [0, 0]


# ---------------------------------------------------------------- certificates and failures


@pytest.mark.parametrize("refresh", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_bounds_hold_on_nasty_prompts_and_failures_are_seen(refresh):
    made = 0
    for N, lam in [(1, 0.1), (12, 1e-4), (12, 0.1), (12, 10.0)]:
        network = construct(3, N, 1.0, lam, hi=min(lam + 1.2, lam + N), L=10, scheme="adaptive", refresh=refresh)
        for kind in KINDS:
            problem = system(N, 3, 1.0, lam, M=10, kind=kind)
            prediction = network.predict(*problem.tensors())
            error = torch.tensor(np.abs(prediction.value.numpy() - problem.exact))
            assert (error <= prediction.bound).all()
            made += len(error)
    assert made == 240


def test_too_narrow_an_interval_is_flagged():
    problem = prompt(inputs="gaussian", seed=3)
    network = construct(**PAPER, hi=0.05, L=40)
    with pytest.warns(UserWarning, match=r"1 of 1 predictions have a bound above .*The steps diverge"):
        prediction = network.predict(*problem.tensors())
    assert prediction.bound > 1e3
    assert prediction.inside > 1e3
    prompts = Prompts(torch.tensor(np.concatenate([problem.x, problem.xq]))[None], torch.zeros(1, 41).double() + 1.0)
    with pytest.warns(UserWarning, match=r"1 of 1 predictions have a certificate, from inside, above"):
        network.path(prompts, contexts=[40], stages=[40])
    hopeless = construct(**PAPER, hi=0.01, L=500)
    with pytest.raises(InputError, match="give a larger hi"):
        hopeless.predict(*problem.tensors())


def test_labels_of_zero_do_not_fail():
    network = construct(**PAPER, hi=1.22, L=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = network.predict(np.random.default_rng(0).normal(size=(9, 5)), np.zeros(9), np.ones((2, 5)))
    assert answer.value.tolist() == [0, 0]
    assert answer.bound.max() < 1e-300


def test_what_a_guarantee_rests_on_is_said():
    network = construct(**PAPER, B_x=1.0, B_y=3.0, error=0.01)
    certificate = network.certificate
    assert certificate["hi"] == pytest.approx(0.0025 + 40 * (1 - math.exp(-1) * 2.5))
    assert certificate.bound <= 0.01
    assert "sinks exact. A posteriori: the bound of each prediction" in certificate.assumptions
    prediction = network.predict(*prompt().tensors())
    assert prediction.promised is None
    assert prediction.bound.max() < 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hi": None}, r"hi = None: must be the upper end of the spectrum. B_x, the largest distance"),
        ({"hi": 1e-4}, r"hi = 0.0001: must be above lam = 0.0025"),
        ({"hi": 41.0}, r"hi = 41.0: must be above lam = 0.0025, at most 40.0025"),
        ({"degree": 4}, "degree = 4: must be 1, 2 or 3"),
        ({"heads": 1, "refresh": True}, "heads = 1: must be 2 or more with refresh"),
        ({"least": 0.9}, "least = 0.9: must be from 1e-12 to 0.5"),
        ({"least": 1e-20}, "least = 1e-20: must be from"),  # the next value of Newton-Schulz rounds to 0, for ever
        ({"d": 2000}, r"d = 2000: needs .* GiB of memory or more, .* Take degree=1"),
        ({"rho": 0.1}, 'rho = 0.1: must be left out: for scheme="exact"'),
        ({"scheme": "compact"}, r'hi = 1.22: must be left out: for scheme="adaptive"'),
    ],
)
def test_arguments_are_refused_in_words(change, message):
    with pytest.raises(InputError, match=message):
        construct(**PAPER | {"hi": 1.22, "L": 5} | change)


def test_kernel_values_of_the_tests_are_the_librarys():
    x = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_allclose(kernel(x, x, 1.3), np.exp(-((x[:, None] - x) ** 2).sum(-1) / 2 / 1.69))
