"""The residual stream by name: what every row of a token means, and how a prompt is embedded in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerstep.construction.problem import Precondition, require_all
from layerstep.errors import require, require_kind

# What a token is. The mask of an attention head is a statement about these.
DUMMY, TRAIN, QUERY, PADDING = range(4)

_SCALARS = ("y", "w", "x2", "k", "alpha", "beta", "p", "k_hat", "s", "t", "one")


@dataclass(frozen=True)
class Stream(Mapping[str, slice]):
    """A token is z = [x (d rows); y; w; x2; k; alpha; beta; p; k_hat; s; t; one], d + 11 rows, and `extra` ones.

    x, y and w are input, label and dual coefficient, x2 = |x|², s = 1 on the dummy, t = 1 on queries, one = 1.
    The others are working memory, of a scheme's own after the paper's: names and numbers of rows, 0 on input.
    A name maps to its rows, as a slice; the paper counts rows from 1, we from 0.
    """

    d: int
    extra: tuple[tuple[str, int], ...] = ()

    @property
    def width(self) -> int:
        return self.d + len(_SCALARS) + sum(rows for _, rows in self.extra)

    def __getitem__(self, name: str) -> slice:
        if name == "x":
            return slice(0, self.d)
        if name in _SCALARS:
            row = self.d + _SCALARS.index(name)
            return slice(row, row + 1)
        row = self.d + len(_SCALARS)
        for own, rows in self.extra:
            if own == name:
                return slice(row, row + rows)
            row += rows
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(("x", *_SCALARS, *(name for name, _ in self.extra)))

    def __len__(self) -> int:
        return 1 + len(_SCALARS) + len(self.extra)

    def row(self, name: str) -> int:
        """The one row of a scalar coordinate."""
        return self[name].start

    def form(self, **coefficients: float) -> Float[Tensor, "D"]:
        """The linear form of a token with these coefficients: form(w=1, alpha=-1) @ z = w - alpha."""
        return self.forms(coefficients)[0]

    def forms(self, *forms: dict[str, float]) -> Float[Tensor, "units D"]:
        """Linear forms, one per row: the W_in of an MLP."""
        rows = torch.zeros(len(forms), self.width, dtype=torch.float64)
        for row, form in zip(rows, forms, strict=True):
            for name, coefficient in form.items():
                row[self[name]] = coefficient
        return rows

    def write(self, **outputs: Float[Tensor, "units"]) -> Float[Tensor, "D units"]:
        """W_out that adds the given combination of hidden units to each named coordinate."""
        units = len(next(iter(outputs.values())))
        W_out = torch.zeros(self.width, units, dtype=torch.float64)
        for name, weights in outputs.items():
            W_out[self.row(name)] = weights
        return W_out

    def copy(self, source: str, target: str, factor: float) -> Float[Tensor, "D D"]:
        """W_V that carries `factor` times coordinate `source` of a key to coordinate `target` of the reader."""
        W_V = torch.zeros(self.width, self.width, dtype=torch.float64)
        W_V[self[target], self[source]] = factor * self.rows(source)[:, self[source]]
        return W_V

    def rows(self, name: str) -> Float[Tensor, "rows D"]:
        """The matrix that takes a token to its coordinate `name`."""
        return torch.eye(self.width, dtype=torch.float64)[self[name]]

    def embed(
        self,
        x: Float[Tensor, "B n d"],
        y: Float[Tensor, "B n"],
        xq: Float[Tensor, "B M d"],
        counts: Int[Tensor, "B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Int[Tensor, "B T"]]:
        """Tokens [dummy; training 1..n; queries 1..M] and their kinds; T = 1 + n + M.

        Of prompt b only the first counts[b] training tokens are used; the others are padding, all zero but
        for coordinate one.
        """
        (B, n), M = x.shape[:2], xq.shape[1]
        kinds = torch.full((B, 1 + n + M), TRAIN, device=x.device)
        kinds[:, 0] = DUMMY
        kinds[:, 1 + n :] = QUERY
        if counts is not None:
            unused = torch.arange(n, device=x.device) >= counts[:, None]
            kinds[:, 1 : 1 + n][unused] = PADDING
            x = x.masked_fill(unused[..., None], 0)
            y = y.masked_fill(unused, 0)
        Z = x.new_zeros(B, 1 + n + M, self.width)
        Z[:, 1 : 1 + n, self["x"]] = x
        Z[:, 1 + n :, self["x"]] = xq
        Z[:, 1 : 1 + n, self.row("y")] = y
        Z[..., self.row("x2")] = Z[..., self["x"]].square().sum(-1)
        Z[:, 0, self.row("s")] = 1
        Z[:, 1 + n :, self.row("t")] = 1
        Z[..., self.row("one")] = 1
        return Z, kinds

    def check(self, Z: Float[Tensor, "B T D"], kinds: Int[Tensor, "B T"]) -> None:
        """Refuse, with every reason, a stream that `embed` would not have made."""
        remedy = "Make both with `stream.embed`."
        require_kind("Z", Z, Tensor, remedy)
        require_kind("kinds", kinds, Tensor, remedy)
        shape = Z.ndim == 3 and Z.shape[2] == self.width and Z.is_floating_point()
        require(shape, "Z", f"{list(Z.shape)}, {Z.dtype}", f"numbers [B, T, {self.width}]", remedy)
        fits = kinds.shape == Z.shape[:2] and kinds.dtype == torch.int64
        require(fits, "kinds", f"{list(kinds.shape)}, {kinds.dtype}", f"int64 {list(Z.shape[:2])}", remedy)
        x = Z[..., self["x"]]
        scalar = {name: Z[..., self.row(name)] for name in _SCALARS}
        given = kinds == TRAIN
        squares = x.square().sum(-1)
        slack = 8 * torch.finfo(Z.dtype).eps * squares
        own = [name for name, _ in self.extra]
        memory = torch.cat([Z[..., self[name]] for name in ("w", "k", "alpha", "beta", "p", "k_hat", *own)], dim=-1)
        require_all(
            "this stream is not an input",
            [
                Precondition(bool(ok), given, allowed, "`stream.embed` makes it so.")
                for ok, given, allowed in (
                    (((scalar["x2"] - squares).abs() <= slack).all(), "x2", "|x|²"),
                    ((x[kinds == DUMMY] == 0).all(), "x of the dummy", "0"),
                    ((scalar["y"][~given] == 0).all(), "y of dummy, queries and padding", "0"),
                    ((memory == 0).all(), ", ".join(["w, k, alpha, beta, p, k_hat", *own]), "0 on input"),
                    ((scalar["s"] == (kinds == DUMMY)).all(), "s", "1 on the dummy, 0 elsewhere"),
                    ((scalar["t"] == (kinds == QUERY)).all(), "t", "1 on queries, 0 elsewhere"),
                    ((scalar["one"] == 1).all(), "one", "1"),
                    (((kinds == DUMMY).sum(1) == 1).all(), "dummies", "one in every prompt"),
                )
            ],
        )
