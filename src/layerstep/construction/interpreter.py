"""The definition, read aloud: loops over tokens and heads in Python floats. Slow, obvious, used by tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

from layerstep.construction.blocks import Block, Mask
from layerstep.construction.stream import DUMMY, PADDING, QUERY, TRAIN

Vector = list[float]


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(p * q for p, q in zip(a, b, strict=True))


def times(matrix: list[Vector], z: Vector) -> Vector:
    return [dot(row, z) for row in matrix]


def plus(a: Vector, b: Vector, factor: float = 1.0) -> Vector:
    return [p + factor * q for p, q in zip(a, b, strict=True)]


def sees(mask: Mask, kinds: Sequence[int], i: int, j: int) -> bool:
    """May token i attend to token j?"""
    if kinds[i] == PADDING:
        return kinds[j] == DUMMY
    names = {DUMMY: mask.dummy, TRAIN: mask.train, QUERY: mask.query}[kinds[i]]
    return any(
        (name == "dummy" and kinds[j] == DUMMY)
        or (name == "train" and kinds[j] == TRAIN)
        or (name == "others" and kinds[j] == TRAIN and i != j)
        or (name == "query" and kinds[j] == QUERY)
        or (name == "itself" and i == j)
        for name in names
    )


def interpret(block: Block, tokens: list[Vector], kinds: Sequence[int]) -> list[Vector]:
    """One block applied to one prompt, token by token."""
    if block.attention is not None:
        attention = block.attention
        updated = []
        for i, z_i in enumerate(tokens):
            new = z_i
            heads = zip(
                attention.W_Q.tolist(),
                attention.W_K.tolist(),
                attention.W_V.tolist(),
                attention.masks,
                strict=True,
            )
            for W_Q, W_K, W_V, mask in heads:
                keys = [j for j in range(len(tokens)) if sees(mask, kinds, i, j)]
                logits = [dot(times(W_Q, z_i), times(W_K, tokens[j])) for j in keys]
                weights = [math.exp(logit - max(logits)) for logit in logits]
                for j, weight in zip(keys, weights, strict=True):
                    new = plus(new, times(W_V, tokens[j]), weight / math.fsum(weights))
            updated.append(new)
        tokens = updated
    if block.mlp is not None:
        W_in, W_out = block.mlp.W_in.tolist(), block.mlp.W_out.tolist()
        tokens = [plus(z, times(W_out, [max(h, 0.0) for h in times(W_in, z)])) for z in tokens]
    return tokens
