"""The compact and the exact network: worked example, published parameters, trajectories, invariances, mutations."""

import copy

import numpy as np
import pytest
import torch

from construction.cases import system, worked_example
from layerstep.construction import construct
from layerstep.construction.blocks import Mask
from layerstep.construction.executor import Pass, Program
from layerstep.construction.gadgets.kernel_attention import kernel_logits
from layerstep.construction.kernels import Gaussian
from layerstep.tasks import Prompts, Task, sample

# Every way to build a network without splines; what holds for one holds for all.
VARIANTS = {
    "compact": {"scheme": "compact"},
    "compact, constant step": {"scheme": "compact", "eta": 0.02},
    "exact": {"scheme": "exact"},
    "exact, one head": {"scheme": "exact", "heads": 1},
    "exact, the paper's preconditioner": {"scheme": "exact", "rho": 0.0},
    "exact, the paper's iteration": {"scheme": "exact", "eta": 0.7},
    "exact, the paper's iteration, one head": {"scheme": "exact", "eta": 0.7, "heads": 1},
}
variants = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


def run(network, problem):
    """w [L + 1, n] after every iteration and out [L + 1, M], from the fast executor."""
    x, y, xq = problem.tensors()
    [(_, passed)] = network.pieces(x[None], y[None], xq[None])
    w, out = [], []
    for _ in passed.iterate():
        w.append(passed.Z[network.stream.row("w"), 0, passed.spans["train"]].clone())
        out.append(passed.read_out()[network.stream.row("y"), 0].clone())
    return torch.stack(w).numpy(), torch.stack(out).numpy()


def reference(network, problem):
    """The same by plain matrix arithmetic: w_l of the recursion and k_q·w_l through the sink."""
    scheme = network.scheme
    coefficients = scheme.steps.coefficients(network.L)
    if network.certificate.scheme == "compact":
        G2 = scheme.a / (scheme.a + problem.D)
        matrix, right = G2[:, None] * problem.K + problem.lam * np.eye(len(problem.y)), problem.y
    else:
        P = problem.D + scheme.rho
        matrix, right = problem.M / P[:, None], problem.y / P
    w = problem.recursion(matrix, right, *coefficients)
    return w, w @ problem.k_q.T * (scheme.a / (scheme.a + problem.D_q))


# ---------------------------------------------------------------- published numbers

EXAMPLE = {
    "compact": (
        {"scheme": "compact"},
        {
            1: [0.5555555556, -0.5555555556, 0.2777777778],
            2: [1.3422520180, -1.5176340376, 0.7665226366],
            5: [1.7088546052, -2.2381059362, 1.3106835137],
        },
        -0.3975201852,
    ),
    "exact": (
        {"scheme": "exact"},
        {
            1: [0.8978715472, -0.7295219258, 0.4489357736],
            2: [1.6704824457, -2.0881727402, 1.0141936536],
            5: [1.7138797843, -2.2112042818, 1.2742321889],
        },
        -0.3966604165,
    ),
    "the paper's iteration": (
        {"scheme": "exact", "eta": 0.5},
        {1: [0.2870484965, -0.2259313809, 0.1435242482], 2: [0.5007409946, -0.4445075151, 0.2616748438]},
        None,
    ),
}


@pytest.mark.parametrize("name", EXAMPLE)
def test_worked_example(name):
    arguments, iterates, final = EXAMPLE[name]
    w, out = run(construct(1, 3, 1.0, 0.3, L=5, **arguments), worked_example())
    assert out[0] == 0
    for step, expected in iterates.items():
        np.testing.assert_allclose(w[step], expected, atol=2e-10)
    if final is not None:
        np.testing.assert_allclose(out[5], final, atol=2e-10)


def test_worked_example_of_the_read_in():
    """Sink weight lam: k = lam / (lam + D) in the softmax, beta = y / (D + lam) after the first block."""
    problem = worked_example()
    np.testing.assert_allclose(problem.D, [1.7418659429, 2.2130613194, 1.7418659429], atol=1e-10)
    np.testing.assert_allclose(problem.exact, -0.3779519005, atol=1e-10)
    network = construct(1, 3, 1.0, 0.3, L=5, scheme="exact")
    Z, kinds = network.stream.embed(*(tensor[None] for tensor in problem.tensors()))
    after = network.blocks[0](Z, kinds)[0]
    np.testing.assert_allclose(
        after[1:4, network.stream.row("beta")], [0.4897481166, -0.3979210504, 0.2448740583], atol=1e-10
    )
    W_Q, W_K = kernel_logits(network.stream, Gaussian(v=1.0), sink=0.3)
    allowed = Mask(train=("dummy", "train"), query=("dummy", "train")).allowed(kinds, kinds)
    weights = torch.softmax(((Z @ W_Q.T) @ (Z @ W_K.T).mT).masked_fill(~allowed, -torch.inf), -1)
    expected = [0.1469244350, 0.1193763151, 0.1469244350, 0.1208748341]
    np.testing.assert_allclose(weights[0, 1:, 0], expected, atol=1e-10)


PARAMETERS = [  # N, lam, B_y, error; exact: L, a, bound; compact: L, a, bound
    (5, 0.5, 1.0, 0.01, (11, 3.23e3, 0.009188), (11, 3.19e3, 0.008327)),
    (40, 4.0, 1.0, 0.01, (11, 2.58e4, 0.009188), (11, 2.56e4, 0.008327)),
    (40, 0.0025, 3.0, 0.1, (584, 3.10e5, 0.09865), (566, 3.07e5, 0.09879)),
    (40, 0.0025, 3.0, 0.01, (729, 3.10e6, 0.009938), (711, 3.07e6, 0.009927)),
    (40, 0.0025, 3.0, 0.001, (875, 3.10e7, 0.0009894), (857, 3.07e7, 0.0009898)),
    (200, 0.0025, 3.0, 0.01, (1744, 3.46e7, 0.009932), (1703, 3.43e7, 0.009949)),
]


@pytest.mark.parametrize(("N", "lam", "B_y", "error", "exact", "compact"), PARAMETERS)
def test_parameters_for_a_guaranteed_error(N, lam, B_y, error, exact, compact):
    for scheme, (L, a, bound) in {"exact": exact, "compact": compact}.items():
        network = construct(5, N, 1.0, lam, B_y=B_y, error=error, scheme=scheme)
        certificate = network.certificate
        assert certificate.L == L
        assert certificate["a"] == pytest.approx(a, rel=2e-3)
        assert certificate.bound == pytest.approx(bound, rel=2e-4)
        assert certificate.bound <= error
        assert network.depth == len(network.blocks) == L + 1
        assert network.width == max(block.mlp.width for block in network.blocks if block.mlp) == 6
        assert certificate.heads == (2 if scheme == "exact" else 1)


# ---------------------------------------------------------------- the network is the recursion


@variants
@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_the_trajectory_is_the_recursion(variant, n):
    """The strongest test there is: every iterate of every step, against matrix arithmetic."""
    problem = system(n, 3, 1.0, 0.05)
    network = construct(3, 30, 1.0, 0.05, L=60, **variant)
    for ours, theirs in zip(run(network, problem), reference(network, problem), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11 * max(1, np.abs(theirs).max()))


@variants
def test_every_block_writes_what_its_formula_says_and_nothing_else(variant):
    """After each block of the plain forward, every coordinate of every token, padding and queries included."""
    problem = system(6, 2, 0.8, 0.2)
    network = construct(2, 9, 0.8, 0.2, L=4, **variant)
    scheme, stream = network.scheme, network.stream
    x, y, xq = problem.tensors()
    padded = torch.cat([x, torch.full((2, 2), 7.0)]), torch.cat([y, torch.full((2,), 9.0)])
    Z, kinds = stream.embed(padded[0][None], padded[1][None], xq[None], torch.tensor([6]))
    w_all, out_all = reference(network, problem)
    expected = {name: Z[0, :, stream[name]].clone() for name in stream}
    train = slice(1, 7)
    beta = problem.y / (problem.D + getattr(scheme, "rho", 0.0))
    halves = list(network.blocks)[:-1]
    per_step = len(halves) // network.L
    for index, block in enumerate(halves):
        Z = block(Z, kinds)
        step, part = divmod(index, per_step)
        if part == per_step - 1:
            if network.certificate.scheme == "exact":
                expected["beta"][train, 0] = torch.tensor(beta)
            expected["w"][train, 0] = torch.tensor(w_all[step + 1])
            expected["k_hat"][train, 0] = torch.tensor(w_all[step + 1] - w_all[step])
            expected["p"][:] = 0
            for name in stream:
                torch.testing.assert_close(Z[0, :, stream[name]], expected[name], rtol=1e-12, atol=1e-12)
            for name in ("x", "y", "x2", "k", "alpha", "s", "t", "one"):
                assert torch.equal(Z[0, :, stream[name]], expected[name])
    Z = network.blocks[-1](Z, kinds)
    expected["y"][-3:, 0] = torch.tensor(out_all[-1])
    for name in stream:
        torch.testing.assert_close(Z[0, :, stream[name]], expected[name], rtol=1e-12, atol=1e-12)


@variants
def test_executor_and_definition_agree(variant):
    problem = system(12, 2, 1.0, 0.1, M=4)
    network = construct(2, 12, 1.0, 0.1, L=25, **variant)
    x, y, xq = problem.tensors()
    centre = x.mean(0)
    plain = network(*network.stream.embed((x - centre)[None], y[None], (xq - centre)[None]))
    fast = network.predict(x, y, xq)
    torch.testing.assert_close(fast.value, plain[0, -4:, network.stream.row("y")], rtol=1e-12, atol=1e-12)
    # Attention weights recomputed for every block instead of stored: the same numbers.
    torch.testing.assert_close(network.predict(x, y, xq, budget=200).value, fast.value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2])
def test_the_path_of_the_exact_network_is_preconditioned_richardson(heads):
    """Every step on every prefix of every sequence: the positive control of the measurement."""
    task = Task(N=12)
    prompts = sample(task, 5, seed=3)
    network = construct(5, 12, task.v, task.lam, scheme="exact", eta=1.0, rho=0.0, heads=heads, L=40)
    path = network.path(prompts)
    assert path.values.shape == (41, 5, 12)
    assert path.stages.tolist() == list(range(41))
    assert not path.at(0).any()
    for n in range(1, 13):
        x, y, q = prompts.x[:, :n], prompts.y[:, :n], prompts.x[:, n : n + 1]
        K, k_q = task.gram(x, x), task.gram(q, x)[:, 0]
        w = torch.zeros_like(y)
        for step in range(41):
            torch.testing.assert_close(path.values[step, :, n - 1], (k_q * w).sum(-1), rtol=1e-12, atol=1e-12)
            w = w + (y - task.lam * w - (K @ w[..., None])[..., 0]) / K.sum(-1)


@variants
def test_a_path_is_the_prediction_of_every_prefix(variant, monkeypatch):
    prompts = sample(Task(N=6, d=2), 3, seed=1)
    network = construct(2, 10, 1.0, 0.0025, L=9, **variant)
    path = network.path(prompts)
    for n in (1, 4, 6):
        for b in range(3):
            one = network.predict(prompts.x[b, :n], prompts.y[b, :n], prompts.x[b, n : n + 1])
            torch.testing.assert_close(path.at(9)[b, n - 1], one.value[0], rtol=1e-12, atol=1e-12)
    monkeypatch.setattr("layerstep.construction.network._EXPANDED", 1)  # one sequence at a time
    some = network.path(prompts, stages=[2, 9], contexts=[3, 6])
    assert some.contexts.tolist() == [3, 6]
    torch.testing.assert_close(some.values, path.values[[2, 9]][..., [2, 5]], rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- invariances


@variants
def test_what_must_not_matter_does_not_matter(variant):
    problem = system(11, 3, 0.9, 0.1, M=5)
    network = construct(3, 11, 0.9, 0.1, L=30, **variant)
    x, y, xq = problem.tensors()
    value = network.predict(x, y, xq).value
    order, queries = torch.randperm(11), torch.randperm(5)
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    same = {
        "order of the examples": network.predict(x[order], y[order], xq).value,
        "order of the queries": network.predict(x, y, xq[queries]).value[queries.argsort()],
        "other queries": torch.cat([network.predict(x, y, q[None]).value for q in xq]),
        "a shift": network.predict(x + 100, y, xq + 100).value,
        "a rotation": network.predict(x @ rotation, y, xq @ rotation).value,
        "scale of the labels": network.predict(x, -1e6 * y, xq).value / -1e6,
        "padding": construct(3, 40, 0.9, 0.1, L=30, **variant)
        .path(Prompts(torch.cat([x, xq[:1]])[None], torch.cat([y, y[:1]])[None]), contexts=[11])
        .values[-1, 0]
        if "eta" in variant
        else value[:1],
    }
    for what, other in same.items():
        torch.testing.assert_close(other, value[: len(other)], rtol=1e-9, atol=1e-9, msg=what)


@variants
def test_no_examples_predict_zero(variant):
    network = construct(2, 5, 1.0, 0.1, L=3, **variant)
    prediction = network.predict(np.zeros((0, 2)), np.zeros(0), np.ones((2, 2)))
    assert prediction.value.tolist() == prediction.bound.tolist() == [0, 0]


def test_blocks_that_differ_in_coefficients_share_their_storage():
    network = construct(5, 40, 1.0, 0.0025, B_y=3.0, error=0.01, scheme="compact")
    assert len({id(block.attention) for block in network.blocks}) == 3  # none, the read, the read-out
    assert len({id(block.mlp.W_out) for block in network.blocks if block.mlp}) == 2
    assert sum(p.numel() for p in network.parameters()) == network.certificate.stored
    richardson = construct(5, 40, 1.0, 0.0025, scheme="exact", eta=1.0, L=500)
    assert len({id(block.mlp) for block in richardson.blocks}) == 3
    assert richardson.certificate.stored == sum(p.numel() for p in richardson.parameters())


# ---------------------------------------------------------------- mutations: each slip is seen


def mutate_masks(network, old, new):
    for block in network.blocks:
        if block.attention is not None:
            block.attention.masks = tuple(new if mask == old else mask for mask in block.attention.masks)


def missing_diagonal_mask(network):
    mutate_masks(network, Mask(train=("dummy", "others")), Mask(train=("dummy", "train")))


def rho_instead_of_one_plus_rho(network):
    for block in network.blocks[:-1]:
        attention = block.attention
        attention.W_K[1, -1, network.stream.row("s")] = attention.W_K[0, -1, network.stream.row("s")]


def a_query_is_a_key(network):
    mutate_masks(network, Mask(train=("dummy", "train")), Mask(train=("dummy", "train", "query")))


def queries_see_each_other(network):
    old = Mask(query=("dummy", "train"))
    mutate_masks(network, old, Mask(query=("dummy", "train", "query")))
    network.blocks[-1].attention.W_V[0, network.stream.row("y"), network.stream.row("t")] = 1.0


def momentum_one_layer_late(network):
    mlps = [block.mlp for block in network.blocks[1:-1]]
    shifted = [mlp.W_in[0, network.stream.row("k_hat")].item() for mlp in mlps]
    for mlp, b in zip(mlps[1:], shifted[:-1], strict=True):
        mlp.W_in[0, network.stream.row("k_hat")] = b
        mlp.W_in[1, network.stream.row("k_hat")] = -b


def p_in_the_row_of_beta(network):
    stream = network.stream
    for block in network.blocks[1:-1]:
        W_V = block.attention.W_V
        if W_V[0, stream.row("p")].any():
            W_V[:, stream.row("beta")] = W_V[:, stream.row("p")]
            W_V[:, stream.row("p")] = 0


def p_is_not_cleared(network):
    for block in network.blocks[1:-1]:
        block.mlp.W_out[network.stream.row("p")] = 0


def value_has_the_wrong_sign(network):
    network.blocks[1].attention.W_V.neg_()


MUTATIONS = [
    ("exact", missing_diagonal_mask),
    ("exact", rho_instead_of_one_plus_rho),
    ("exact", a_query_is_a_key),
    ("compact", a_query_is_a_key),
    ("compact", queries_see_each_other),
    ("exact", momentum_one_layer_late),
    ("compact", momentum_one_layer_late),
    ("exact", p_in_the_row_of_beta),
    ("compact", p_in_the_row_of_beta),
    ("exact", p_is_not_cleared),
    ("compact", value_has_the_wrong_sign),
]


@pytest.mark.parametrize(("scheme", "slip"), MUTATIONS, ids=lambda value: getattr(value, "__name__", value))
def test_a_slip_leaves_the_trajectory(scheme, slip):
    problem = system(8, 2, 1.0, 0.3)
    network = construct(2, 8, 1.0, 0.3, B_y=1.0, error=0.1, scheme=scheme)  # a sink that leaks, and shows it
    wrong = copy.deepcopy(network)
    slip(wrong)
    w, out = reference(network, problem)
    for built, is_right in ((network, True), (wrong, False)):
        ours = run(built, problem)
        close = np.allclose(ours[0], w, atol=1e-9) and np.allclose(ours[1], out, atol=1e-9)
        assert close == is_right


def test_softmax_over_the_wrong_axis_is_seen():
    """The paper's matrix formula, read literally, normalises over queries."""
    problem = system(8, 2, 1.0, 0.3)
    network = construct(2, 8, 1.0, 0.3, L=6, scheme="compact")
    x, y, xq = problem.tensors()
    Z, kinds = network.stream.embed(x[None], y[None], xq[None])
    passed = Pass(Program(list(network.blocks), network._lengths), Z, kinds, 8)
    literal = copy.deepcopy(Z)
    for block in network.blocks:
        if block.attention is not None:
            [W_Q], [W_K], [W_V] = block.attention.W_Q, block.attention.W_K, block.attention.W_V
            logits = (literal @ W_Q.T) @ (literal @ W_K.T).mT + block.attention.masks[0].matrix(kinds, Z.dtype)
            literal = literal + torch.softmax(logits, dim=-2).nan_to_num() @ (literal @ W_V.T)
        if block.mlp is not None:
            literal = block.mlp(literal)
    assert list(passed.iterate())[-1] == 6
    right = passed.read_out()[network.stream.row("y"), 0]
    np.testing.assert_allclose(right, reference(network, problem)[1][-1], atol=1e-11)
    assert (literal[0, -3:, network.stream.row("y")] - right).abs().max() > 0.05
