"""A constructed transformer behind scikit-learn's interface."""

from __future__ import annotations

import math

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from layerstep.construction.build import construct
from layerstep.errors import as_float, quoted, require
from layerstep.tasks.prompts import as_float_tensor


class TransformerKRR(RegressorMixin, BaseEstimator):
    """Kernel ridge regression, computed by a transformer whose weights are constructed, not learned.

    `fit` stores the examples and constructs the network for them; `predict` runs its forward pass.

    v       bandwidth of the Gaussian kernel, in units of the scaled inputs
    lam     ridge
    scheme  "compact", "exact" or "paper"
    error   guaranteed distance to exact kernel ridge regression, in units of the largest |y - mean y|
    scale   centre the inputs and divide each by its standard deviation times √d, so that v = 1 suits any d. Labels are
            always centred, and divided by the largest: the network never sees more than |y| = 1.
    B_x     largest norm of a scaled input, example or query, that the paper's scheme has to take; None: the examples'
    """

    def __init__(self, v=1.0, lam=0.1, scheme="compact", error=0.01, scale=True, B_x=None):
        # scikit-learn's contract: whatever is given is stored as it is, and looked at in `fit`.
        self.v, self.lam, self.scheme, self.error, self.scale, self.B_x = v, lam, scheme, error, scale, B_x

    def fit(self, X, y) -> TransformerKRR:
        _refuse_masked(X=X, y=y)
        X, y = map(np.asarray, validate_data(self, X, y, y_numeric=True, dtype=np.float64))
        n, d = X.shape
        # The deviation of a constant 0.1 is 1e-17, by rounding: a constant is known by its range. In units of a power
        # of two near that, which changes no digit, squares of deviations neither vanish nor overflow.
        extent = np.ptp(X, axis=0)
        unit = np.ldexp(1.0, np.frexp(extent)[1])
        spread = np.where(extent > 0, unit * (X / unit).std(axis=0), 1.0)
        self.x_mean_ = X.mean(axis=0) if self.scale else np.zeros(d)
        self.x_scale_ = spread * math.sqrt(d) if self.scale else np.ones(d)
        # The mean of the labels, and how far that is from it by rounding: the sums of `fsum` are exact.
        size = float(np.ldexp(1.0, np.frexp(np.abs(y).max())[1] - 1))
        labels = (y / size).tolist()
        mean = math.fsum(labels) / n
        self.y_mean_, self.y_mean_error_ = size * mean, size * abs(math.fsum([*labels, *[-mean] * n])) / n
        self.y_scale_ = float(np.abs(y - self.y_mean_).max()) or 1.0
        self.x_, self.y_ = self._scaled(X), (y - self.y_mean_) / self.y_scale_
        largest = float(np.linalg.norm(self.x_, axis=1).max()) or 1.0
        B_x = largest if self.B_x is None else self.B_x
        require(as_float(B_x) >= largest, "B_x", quoted(B_x), f"at least {largest}, as the scaled examples have")
        self.network_ = construct(
            d,
            len(X),
            self.v,
            self.lam,
            B_x=B_x,
            B_y=1.0,
            scheme=self.scheme,
            error=self.error,
        )
        return self

    def predict(self, X, return_bound: bool = False):
        """Predictions; with return_bound also how far each can be from exact kernel ridge regression."""
        check_is_fitted(self)
        _refuse_masked(X=X)
        X = np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        # Scaled inputs and labels are off by two roundings.
        prediction = self.network_.predict(self.x_, self.y_, self._scaled(X), input_error=np.finfo(float).eps)
        centred = self.y_scale_ * prediction.value.numpy()
        value = self.y_mean_ + centred
        if not return_bound:
            return value
        # The last product and sum round too: to the digits of the mean, where labels are far from 0. An error of the
        # mean moves all labels, and so a prediction by at most √n / (2 √lam) times as much, and is added to each.
        rounding = 2 * np.spacing(np.abs(centred) + abs(self.y_mean_))
        mean = self.y_mean_error_ * (1 + math.sqrt(len(self.y_) / self.network_.problem.lam) / 2)
        return value, self.y_scale_ * prediction.bound.numpy() + rounding + mean

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        return (X - self.x_mean_) / self.x_scale_


def _refuse_masked(**arrays) -> None:
    """scikit-learn takes hidden values for data."""
    for name, array in arrays.items():
        if isinstance(array, np.ma.MaskedArray):
            as_float_tensor(name, array, array.ndim)
