"""The same forward pass, fast: what `Block.forward` computes, without the multiplications by zero.

Three facts make 712 blocks cheap, and a test compares the result with the plain forward to 1e-12:
- a block reads a few coordinates of the stream and writes a few: matrices are cut to their non-zero rows and columns;
- no block writes x, x2, s or one, so the softmax weights of an attention that many blocks share are computed once;
- heads that carry the same to the same place, but for a factor, add up: a kernel of ten Gaussians costs what one does;
- a token that may attend to the dummy alone needs no softmax.
Attention weights larger than `budget` bytes are not stored but recomputed, by torch's fused kernel, for each block.

The stream is laid out coordinate first, [D, B, T], so that a coordinate is one contiguous array.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.construction.blocks import Attention, Block, Mask
from layerstep.construction.stream import PADDING
from layerstep.threads import one_thread

BUDGET = 2**30
_SMALL = 2**22  # numbers in the largest array of a pass, below which a second thread costs more than it brings
_HIDDEN = 2**25  # bytes of hidden units held at a time: wide MLPs run over the tokens in pieces


@dataclass(frozen=True)
class Cut:
    """A matrix without its rows and columns of zeros."""

    rows: Int[Tensor, "R"]
    columns: Int[Tensor, "C"]
    entries: Float[Tensor, "R C"]

    @classmethod
    def of(cls, W: Float[Tensor, "rows columns"], keep: str = "") -> Cut:
        """Rows or columns named in `keep` stay, zero or not: the hidden units of an MLP are counted by two."""
        nonzero = W != 0
        rows = (nonzero.any(1) | (keep == "rows")).nonzero()[:, 0]
        columns = (nonzero.any(0) | (keep == "columns")).nonzero()[:, 0]
        return cls(rows, columns, W[rows][:, columns].contiguous())

    def read(self, Z: Float[Tensor, "D *tokens"]) -> Float[Tensor, "R *tokens"]:
        """The non-zero rows of W Z."""
        return torch.tensordot(self.entries, Z[self.columns], dims=1)


@dataclass(frozen=True)
class Head:
    """A head; or several that add up, with the factors that their values have of the first one's.

    constant: its softmax weights are the same in every block, since it reads no row that a block writes.
    """

    mask: Mask
    logits: list[tuple[float, Float[Tensor, "r D"], Float[Tensor, "r D"]]]
    W_V: Cut
    constant: bool


class Program:
    """Blocks, cut to what they read and write. Made anew for each call: weights may have been changed."""

    def __init__(self, blocks: Sequence[Block], lengths: Sequence[int], whole: bool = False) -> None:
        """`lengths`: the number of blocks of each iteration; the blocks after them are the read-out.

        whole: the read-out changes all tokens; otherwise it is computed for the queries alone.
        """
        self.whole = whole
        blocks = list(blocks)
        ends = [0, *accumulate(lengths)]
        self.iterations = [blocks[start:end] for start, end in pairwise(ends)]
        self.readout = blocks[ends[-1] :]
        attentions = {id(b.attention): b.attention for b in blocks if b.attention is not None}
        mlps = {id(b.mlp): b.mlp for b in blocks if b.mlp is not None}
        self.mlps = {
            key: (Cut.of(mlp.W_in, keep="rows"), Cut.of(mlp.W_out, keep="columns")) for key, mlp in mlps.items()
        }
        written = [W_out.rows for _, W_out in self.mlps.values()]
        written += [(W_V != 0).any(1).nonzero()[:, 0] for each in attentions.values() for W_V in each.W_V]
        rows = torch.cat(written).unique()
        self.heads = {key: _heads(each, rows) for key, each in attentions.items()}


def _heads(attention: Attention, written: Int[Tensor, "rows"]) -> list[Head]:
    """The heads of an attention; those of constant weights whose values are multiples of each other as one."""
    made: list[Head] = []
    for mask, W_Q, W_K, W_V in zip(attention.masks, attention.W_Q, attention.W_K, attention.W_V, strict=True):
        constant = not bool(W_Q[:, written].any() or W_K[:, written].any())
        head = Head(mask, [(1.0, W_Q, W_K)], Cut.of(W_V), constant)
        for other in made if constant else ():
            factor = _multiple(head.W_V, other.W_V) if other.constant and other.mask == mask else None
            if factor is not None:
                other.logits.append((factor, W_Q, W_K))
                break
        else:
            made.append(head)
    return made


def _multiple(W: Cut, of: Cut) -> float | None:
    """The number that makes `of` this matrix, to rounding."""
    same = all(a.shape == b.shape and bool((a == b).all()) for a, b in ((W.rows, of.rows), (W.columns, of.columns)))
    if not same or not W.entries.numel():
        return None
    first = of.entries.abs().argmax()
    factor = W.entries.flatten()[first] / of.entries.flatten()[first]
    near = (W.entries - factor * of.entries).abs() <= 2 * torch.finfo(W.entries.dtype).eps * W.entries.abs()
    return float(factor) if bool(near.all()) else None


class Pass:
    """One forward pass of `program` over a batch of prompts with n training slots each."""

    def __init__(
        self,
        program: Program,
        Z: Float[Tensor, "B T D"],
        kinds: Int[Tensor, "B T"],
        n: int,
        budget: int = BUDGET,
    ) -> None:
        self.program, self.kinds, self.budget = program, kinds, budget
        self.Z = self.closed = Z.permute(2, 0, 1).contiguous()
        self.spans = {"dummy": slice(0, 1), "train": slice(1, 1 + n), "query": slice(1 + n, Z.shape[1])}
        self.padded = bool((kinds == PADDING).any())
        self.weights: dict[tuple[int, str], Float[Tensor, "B R K"]] = {}

    def threads(self) -> AbstractContextManager:
        """To run a pass in: thousands of small operations, each split over threads, wait for each other."""
        _, B, T = self.Z.shape
        width = max((len(W_in.entries) for W_in, _ in self.program.mlps.values()), default=0)
        return one_thread() if B * T * max(T, width) < _SMALL else nullcontext()

    def apply(self, block: Block) -> None:
        if block.attention is not None:
            # Every head reads the stream before any of them writes to it.
            updates = [
                (self.Z[:, :, span], head, self._attend(head, kind, values))
                for head in self.program.heads[id(block.attention)]
                for values in (head.W_V.read(self.Z),)
                for kind, span in self.spans.items()
                if span.stop > span.start  # of no tokens there is no softmax
            ]
            for update in updates:
                self._add(*update)
        if block.mlp is not None:
            _mlp(self.program.mlps[id(block.mlp)], self.Z)

    def iterate(self) -> Iterator[int]:
        """Yield 0, 1, .., L, with the stream after that many iterations."""
        yield 0
        for stage, blocks in enumerate(self.program.iterations, start=1):
            for block in blocks:
                self.apply(block)
            yield stage

    def read_out(self) -> Float[Tensor, "D B M"]:
        """The query tokens after the read-out blocks, if these came now. The stream stays as it is.

        `closed` is then the stream in which the training tokens have the coefficients of this prediction.
        """
        if self.program.whole:
            kept, self.Z = self.Z, self.Z.clone()
            for block in self.program.readout:
                self.apply(block)
            self.closed, self.Z = self.Z, kept
            return self.closed[:, :, self.spans["query"]]
        self.closed = self.Z
        Z = self.Z[:, :, self.spans["query"]].clone()
        for block in self.program.readout:
            # Attention is in the first read-out block only, where keys are still what the stream holds.
            if block.attention is not None:
                for head in self.program.heads[id(block.attention)]:
                    self._add(Z, head, self._attend(head, "query", head.W_V.read(self.Z)))
            if block.mlp is not None:
                _mlp(self.program.mlps[id(block.mlp)], Z)
        return Z

    def reads(self, row: int) -> Float[Tensor, "B M n"]:
        """How the read-out spreads the queries' attention over the training tokens, as shares of 1.

        Over all heads that carry coordinate `row` of an example to a query, each with the size of what it carries.
        """
        query, train = self.spans["query"], self.spans["train"]
        total = self.Z.new_zeros(self.Z.shape[1], query.stop - query.start, train.stop - train.start)
        for block in self.program.readout:
            for head in self.program.heads[id(block.attention)] if block.attention is not None else ():
                if "train" in head.mask.query and row in head.W_V.columns.tolist():
                    weights = self._softmax(head, query, slice(0, self.Z.shape[2]))
                    total += head.W_V.entries.abs().sum() * weights[:, :, train]
        return total / total.sum(-1, keepdim=True).clamp_min(torch.finfo(total.dtype).tiny)

    @staticmethod
    def _add(Z: Float[Tensor, "D B R"], head: Head, update: Float[Tensor, "rows B _"]) -> None:
        Z.index_add_(0, head.W_V.rows, update.expand(-1, *Z.shape[1:]))

    def _attend(self, head: Head, kind: str, values: Float[Tensor, "rows B T"]) -> Float[Tensor, "rows B _"]:
        """What one head adds to the tokens of one kind, in the rows that its W_V writes."""
        names = getattr(head.mask, kind)
        if names == ("dummy",):
            return values[:, :, :1]
        first = 0 if "dummy" in names or (self.padded and kind == "train") else 1
        end = self.Z.shape[2] if {"query", "itself"} & set(names) else self.spans["train"].stop
        keys = slice(first, end)
        values = values[:, :, keys].transpose(0, 1)
        rows = self.spans[kind]
        size = self.Z.shape[1] * (rows.stop - rows.start) * (end - first) * self.Z.element_size()
        if size > self.budget:
            everything = not self.padded and set(names) <= {"dummy", "train"}
            return self._fused(head, rows, keys, values, everything).transpose(0, 1)
        weights = self.weights.get((id(head), kind))
        if weights is None:
            weights = self._softmax(head, rows, keys)
            if head.constant:
                self.weights[id(head), kind] = weights
        # values @ weights^T and not weights @ values: a row vector times a matrix is the faster product.
        return torch.bmm(values, weights.mT).transpose(0, 1)

    def _softmax(self, head: Head, rows: slice, keys: slice) -> Float[Tensor, "B R K"]:
        total, forbidden = None, ~self._allowed(head, rows, keys)
        for factor, W_Q, W_K in head.logits:
            q = torch.tensordot(W_Q, self.Z[:, :, rows], dims=1).permute(1, 2, 0)
            k = torch.tensordot(W_K, self.Z[:, :, keys], dims=1).permute(1, 0, 2)
            # In place, so that the largest array there is exists once; twice for a sum.
            weights = torch.bmm(q, k).masked_fill_(forbidden, -torch.inf)
            weights.sub_(weights.amax(-1, keepdim=True)).exp_()
            weights.div_(weights.sum(-1, keepdim=True))
            total = weights if total is None else total.add_(weights, alpha=factor)
        assert total is not None
        return total

    def _allowed(self, head: Head, rows: slice, keys: slice) -> Tensor:
        return head.mask.allowed(self.kinds[:, rows], self.kinds[:, keys], rows.start, keys.start)

    def _fused(
        self, head: Head, rows: slice, keys: slice, values: Float[Tensor, "B v K"], everything: bool
    ) -> Float[Tensor, "B v R"]:
        """Attention without its matrix of weights. A mask, needed unless `everything` is allowed, is made by rows."""
        each = (self._fused_one(head, W_Q, W_K, rows, keys, f * values, everything) for f, W_Q, W_K in head.logits)
        return functools.reduce(torch.add, each)

    def _fused_one(
        self, head: Head, W_Q: Tensor, W_K: Tensor, rows: slice, keys: slice, values: Tensor, everything: bool
    ) -> Float[Tensor, "B v R"]:
        size = max(W_K.shape[0], values.shape[1])  # the fused kernel wants one size, and rows in one piece
        k = torch.tensordot(W_K, self.Z[:, :, keys], dims=1).permute(1, 2, 0)
        k, v = (F.pad(part, (0, size - part.shape[-1])).contiguous()[:, None] for part in (k, values.mT))
        B, K = self.Z.shape[1], keys.stop - keys.start
        step = rows.stop - rows.start if everything else max(1, self.budget // (B * K))
        parts = []
        for start in range(rows.start, rows.stop, step):
            some = slice(start, min(start + step, rows.stop))
            q = torch.tensordot(W_Q, self.Z[:, :, some], dims=1).permute(1, 2, 0)
            mask = None if everything else self._allowed(head, some, keys)[:, None]
            q = F.pad(q, (0, size - q.shape[-1])).contiguous()[:, None]
            parts.append(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)[:, 0])
        return torch.cat(parts, dim=1)[..., : values.shape[1]].mT


def _mlp(matrices: tuple[Cut, Cut], Z: Float[Tensor, "D B T"]) -> None:
    """Z += W_out relu(W_in Z), in place."""
    W_in, W_out = matrices
    read = Z[W_in.columns].flatten(1)
    written = Z.new_empty(len(W_out.rows), read.shape[1])
    width = W_in.entries.shape[0]
    step = max(1, _HIDDEN // (width * Z.element_size()))
    for start in range(0, read.shape[1], step):
        hidden = W_in.entries @ read[:, start : start + step]
        written[:, start : start + step] = W_out.entries @ hidden.relu_()
    Z.index_add_(0, W_out.rows, written.view(-1, *Z.shape[1:]))
