"""Blocks: the module, the slow interpreter and the fast executor compute the same thing, on any weights."""

import pytest
import torch

from layerstep.construction.blocks import MLP, Attention, Block, Mask
from layerstep.construction.executor import Cut, Pass, Program
from layerstep.construction.interpreter import interpret
from layerstep.construction.stream import DUMMY, PADDING, QUERY, TRAIN, Stream
from layerstep.errors import InputError

MASKS = {
    "sink": Mask(train=("dummy", "train"), query=("dummy", "train")),
    "others": Mask(train=("dummy", "others")),
    "no dummy": Mask(train=("train",), query=("train", "itself")),
    "everybody": Mask(dummy=("dummy", "train"), train=("dummy", "train", "query"), query=("train", "query")),
    "idle": Mask(),
}


def random_block(d, H, mask, seed=0, sparse=True):
    """Random weights; `sparse` leaves x, x2, s, t and one unwritten, as constructed networks do."""
    generator = torch.Generator().manual_seed(seed)
    D = Stream(d).width

    def normal(*shape):
        return 0.5 * torch.randn(*shape, generator=generator, dtype=torch.float64)

    W_Q, W_K, W_V = normal(H, d + 3, D), normal(H, d + 3, D), normal(H, D, D)
    W_in, W_out = normal(7, D), normal(D, 7)
    if sparse:
        stream = Stream(d)
        written = [stream.row(name) for name in ("y", "w", "p")]
        W_Q[..., written] = W_K[..., written] = 0
        unwritten = [row for row in range(D) if row not in written]
        W_V[:, unwritten] = 0
        W_out[unwritten] = 0
        W_in[2] = 0  # a unit that reads nothing
        W_out[:, 4] = 0  # and one that nothing reads
    return Block(Attention(W_Q, W_K, W_V, (mask,) * H), MLP(W_in, W_out))


def tokens(d=2, n=4, M=2, counts=None, B=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x, xq = (torch.randn(B, m, d, generator=generator, dtype=torch.float64) for m in (n, M))
    y = torch.randn(B, n, generator=generator, dtype=torch.float64)
    return Stream(d).embed(x, y, xq, None if counts is None else torch.tensor(counts))


@pytest.mark.parametrize("counts", [None, [1, 4, 3]], ids=["full", "padded"])
@pytest.mark.parametrize("H", [1, 2])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_module_interpreter_and_executor_agree(mask, H, counts):
    block = random_block(2, H, mask)
    Z, kinds = tokens(counts=counts)
    plain = block(block(Z, kinds), kinds)
    for b in range(len(Z)):
        slow = Z[b].tolist()
        for _ in range(2):
            slow = interpret(block, slow, kinds[b].tolist())
        torch.testing.assert_close(plain[b], torch.tensor(slow, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    for budget in (2**30, 40):  # stored attention weights, and recomputed ones in rows
        run = Pass(Program([block, block], [1, 1]), Z, kinds, 4, budget)
        assert list(run.iterate()) == [0, 1, 2]
        torch.testing.assert_close(run.Z.permute(1, 2, 0), plain, rtol=1e-12, atol=1e-12)


def test_weights_of_an_attention_whose_logits_change_are_not_reused():
    block = random_block(2, 2, MASKS["sink"], sparse=False)
    Z, kinds = tokens()
    run = Pass(Program([block, block], [1, 1]), Z, kinds, 4)
    assert list(run.iterate()) == [0, 1, 2]
    torch.testing.assert_close(run.Z.permute(1, 2, 0), block(block(Z, kinds), kinds), rtol=1e-11, atol=1e-11)
    assert not run.weights


def test_the_mask_is_indexed_query_then_key_and_softmax_runs_over_keys():
    """Rows of weights sum to one; a key that is masked gets none, whoever asks."""
    stream = Stream(1)
    copy_one = stream.copy("one", "p", 1.0)[None]
    copy_t = stream.copy("t", "k", 1.0)[None]
    Z, kinds = tokens(d=1)
    zeros = torch.zeros(1, 1, stream.width, dtype=torch.float64)
    attention = Attention(zeros, zeros, copy_one, (MASKS["sink"],))
    assert torch.equal(attention(Z, kinds)[..., stream.row("p")], torch.ones(3, 7, dtype=torch.float64))
    assert not Attention(zeros, zeros, copy_t, (MASKS["sink"],))(Z, kinds)[..., stream.row("k")].any()


def test_mask_matrices_are_zero_or_minus_infinity_and_every_row_has_a_key():
    _, kinds = tokens(counts=[1, 4, 3])
    assert set(kinds.unique().tolist()) == {DUMMY, TRAIN, QUERY, PADDING}
    for mask in MASKS.values():
        matrix = mask.matrix(kinds, torch.float64)
        assert set(matrix.unique().tolist()) <= {0.0, -torch.inf}
        assert (matrix == 0).any(-1).all()
        assert (matrix[:, :, 1:5] == 0)[(kinds[:, 1:5] == PADDING)[:, None].expand(-1, 7, -1)].sum() == 0


def test_a_cut_keeps_what_is_not_zero():
    W = torch.tensor([[0.0, 0, 0], [0, 2, 3], [0, 0, 0]])
    cut = Cut.of(W)
    assert cut.rows.tolist() == [1]
    assert cut.columns.tolist() == [1, 2]
    assert cut.read(torch.tensor([[5.0], [1], [1]])).tolist() == [[5]]


def test_the_stream_is_named_as_in_the_paper():
    stream = Stream(3)
    assert list(stream) == ["x", "y", "w", "x2", "k", "alpha", "beta", "p", "k_hat", "s", "t", "one"]
    assert stream["x"] == slice(0, 3)
    # The paper's rows d+1, d+2, .. d+11, counted from 0.
    assert [stream.row(name) for name in list(stream)[1:]] == list(range(3, 14))
    assert stream.width == 14
    with pytest.raises(KeyError):
        stream["q"]


SPOILED = {
    "x2": lambda Z, s: Z[0, 1, s["x2"]].add_(1e-3),
    "x of the dummy": lambda Z, s: (Z[0, 0, s["x"]].add_(1), Z[0, 0, s["x2"]].add_(2)),
    "y of dummy": lambda Z, s: Z[0, -1, s["y"]].add_(1),
    "w, k": lambda Z, s: Z[0, 1, s["beta"]].add_(1),
    "s:": lambda Z, s: Z[0, 1, s["s"]].add_(1),
    "t:": lambda Z, s: Z[0, 1, s["t"]].add_(1),
    "one:": lambda Z, s: Z[0, 1, s["one"]].add_(1),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_stream_that_is_not_an_input_is_refused(name):
    Z, kinds = tokens()
    stream = Stream(2)
    stream.check(Z, kinds)
    SPOILED[name](Z, stream)
    with pytest.raises(InputError, match=name):
        stream.check(Z, kinds)


def test_all_that_is_wrong_with_a_stream_is_said_at_once():
    Z, kinds = tokens()
    with pytest.raises(InputError, match=r"(?s)reasons.*x2.*one"):
        Stream(2).check(Z + 1, kinds)
