"""One prompt, iteration by iteration: against predictions, the recursion and kernel values by NumPy; the figure."""

import numpy as np
import pytest
import torch

import layerstep as ls
from construction.cases import system
from layerstep.construction import construct
from layerstep.errors import InputError

NETWORKS = {
    "compact": {"L": 12},
    "exact": {"scheme": "exact", "heads": 1, "L": 8},
    "mixture": {"kernel": "matern52", "kernel_error": 1e-2, "heads": 2, "L": 5},
    "adaptive": {"scheme": "adaptive", "hi": 4.0, "L": 9},
    "paper": {"scheme": "paper", "eps": 0.1, "L": 3, "B_x": 3.0, "B_y": 3.0},  # of a gentle problem
}


@pytest.fixture(scope="module", params=NETWORKS)
def seen(request):
    v, lam = (6.0, 9.0) if request.param == "paper" else (0.9, 0.3)
    problem = system(9, 2, v, lam, M=4)
    network = construct(2, 9, v, lam, **NETWORKS[request.param])
    return network, problem, network.iterates(*problem.tensors())


@pytest.mark.filterwarnings("ignore")
def test_the_last_iterate_is_the_prediction_and_the_path_has_the_others(seen):
    network, problem, found = seen
    answer = network.predict(*problem.tensors())
    assert torch.equal(found.value[-1], answer.value)
    assert torch.equal(found.bound[-1], answer.bound)
    assert found.stages.tolist() == list(range(network.L + 1))
    assert found.value[0].abs().max() < 1e-12
    x, y, xq = problem.tensors()
    prompts = ls.Prompts(torch.cat([x, xq[:1]])[None], torch.cat([y, y[:1]])[None])
    path = network.path(prompts, contexts=[9])
    torch.testing.assert_close(found.value[:, 0], path.values[:, 0, 0], rtol=1e-6, atol=1e-7)


def test_every_iterate_has_its_own_residual_and_a_bound_that_holds(seen):
    network, problem, found = seen
    M = problem.M
    if network.problem.kernel.error > 0:
        M = network.problem.kernel(*2 * (torch.tensor(problem.x),)).numpy() + 0.3 * np.eye(9)
    residual = [np.linalg.norm(problem.y - M @ w) for w in found.w.numpy()]
    np.testing.assert_allclose(found.residual.numpy(), residual, rtol=1e-9, atol=1e-12)
    assert len({round(float(each), 12) for each in found.residual}) == len(found.stages)
    assert (found.error <= found.bound).all()
    if network.problem.kernel.error == 0:
        np.testing.assert_allclose(found.exact.numpy(), problem.exact, atol=1e-12)


def test_blocks_are_those_before_the_read_out_and_its_own(seen):
    network, _, found = seen
    assert found.blocks[-1] == network.depth
    first, *more = np.diff(found.blocks.numpy()).tolist()
    assert [first, *more] == list(network.iterations)


def test_what_a_query_reads_is_the_kernel_row(seen):
    network, problem, found = seen
    k_q = problem.k_q
    if network.problem.kernel.error > 0:
        k_q = sum(c * part(*(torch.tensor(z) for z in (problem.xq, problem.x))) for c, part in parts(network)).numpy()
    expected = k_q / k_q.sum(1, keepdims=True)
    np.testing.assert_allclose(found.reads.numpy(), expected, rtol=1e-8)


def parts(network):
    return network.problem.kernel.parts


def test_some_stages_are_those_stages():
    problem = system(9, 2, 0.9, 0.3, M=2)
    network = construct(2, 9, 0.9, 0.3, L=12)
    every, some = (network.iterates(*problem.tensors(), stages=s) for s in (None, [0, 5, 12]))
    for name in ("value", "bound", "w", "residual", "blocks"):
        assert torch.equal(getattr(some, name), getattr(every, name)[[0, 5, 12]])
    assert repr(some).startswith("Iterates(compact: S=3, M=2 queries, n=9 examples, last bound at most ")
    with pytest.raises(InputError, match=r"stages = .*increasing whole numbers from 0 to L = 12"):
        network.iterates(*problem.tensors(), stages=[13])


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines()}


def test_a_figure_on_a_line_shows_the_answer_its_bound_and_what_is_read():
    x = np.linspace(-1, 1, 7)[:, None]
    y = np.sin(3 * x[:, 0])
    network = construct(1, 7, 0.5, 0.1, L=30)
    answer, errors, reads = network.plot(x, y)
    drawn = lines(answer)
    queries = drawn["exact KRR"].get_xdata()
    assert (len(queries), queries.min(), queries.max()) == (121, pytest.approx(-1.2), pytest.approx(1.2))
    expected = network.predict(x, y, queries[:, None])
    np.testing.assert_allclose(drawn["after 31 blocks, and its bound"].get_ydata(), expected.value, atol=1e-12)
    np.testing.assert_array_equal(drawn["examples"].get_ydata(), y)
    band = answer.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(float((expected.value + expected.bound).max()))
    bound = lines(errors)["bound of the prediction"].get_ydata()
    assert bound[-1] == pytest.approx(float(expected.bound.max()))
    assert reads.collections[0].get_array().shape == (121, 7)


@pytest.mark.parametrize("queries", [0, 1, 7])
def test_a_figure_in_more_dimensions_shows_queries_one_by_one(queries):
    problem = system(9, 2, 0.9, 0.3, M=queries or 1)
    network = construct(2, 9, 0.9, 0.3, L=250)
    x, y, xq = problem.tensors()
    answer, errors, reads = network.plot(x, y, xq if queries else None)
    assert sum(label.startswith("query") for label in lines(answer)) == {0: 5, 1: 1, 7: 5}[queries]
    assert len(lines(errors)["residual |y − (K + λI)w|"].get_xdata()) <= 201
    assert (len(reads.patches) == 9) is (queries == 1)


@pytest.mark.filterwarnings("ignore")
def test_what_diverges_is_drawn_too():
    problem = system(12, 2, 0.9, 0.01)
    network = construct(2, 12, 0.9, 0.01, hi=0.02, L=400, scheme="adaptive", degree=1)
    found = network.iterates(*problem.tensors())
    assert found.bound[-1].max() > 1e6
    found.plot()[0].figure.canvas.draw()
    with pytest.raises(InputError, match="axes = 1 axes: must be 3"):
        found.plot([None])
    with pytest.raises(InputError, match="one example or more where xq is left out"):
        network.plot(np.zeros((0, 2)), np.zeros(0))
