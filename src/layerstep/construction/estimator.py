"""A constructed transformer behind scikit-learn's interface."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from layerstep.construction.build import SCHEMES, construct
from layerstep.construction.kernels import Matern, RationalQuadratic
from layerstep.construction.schemes.deflation import calibrate_interval
from layerstep.errors import InputError, as_float, quoted, require, require_choice, require_flag, require_positive
from layerstep.tasks.prompts import Prompts, as_float_tensor, is_single


class TransformerKRR(RegressorMixin, BaseEstimator):
    """Kernel ridge regression, computed by a transformer whose weights are constructed, not learned.

    `fit` stores the examples and constructs the network for them; `predict` runs its forward pass.

    kernel  "rbf", "matern" (with nu), "rational-quadratic", "exponential", "inverse-multiquadric", a value of this
            package (RationalQuadratic(alpha=2), GaussianMixture(..)), or RBF, Matern or RationalQuadratic of
            sklearn.gaussian_process.kernels
    v, length_scale   the length scale, or one for each coordinate, in units of the scaled inputs: two names of one
            number, as gamma = 1 / 2v² is for the Gaussian kernel
    lam, alpha   the ridge, two names of one number: alpha of KernelRidge and of GaussianProcessRegressor
    scheme  "compact", "exact", "paper" or "adaptive", whose interval is then taken from the examples
    error   guaranteed distance to exact kernel ridge regression, in units of the largest |y - mean y|
    L       a number of iterations instead of a guarantee; each prediction has its bound
    scale   centre the inputs and divide each by its standard deviation times √d, so that v = 1 suits any d. False for
            the inputs as they are, as scikit-learn takes them
    normalize_y   centre the labels, as GaussianProcessRegressor(normalize_y=True) does. They are always divided by the
            largest: the network never sees more than |y| = 1.
    B_x     largest norm of a scaled input, example or query, that the paper's scheme has to take; None: the examples'
    kernel_error   how near Gaussians have to come to another kernel; None: as near as the error needs
    """

    def __init__(
        self,
        v=1.0,
        lam=0.1,
        scheme="compact",
        error=0.01,
        scale=True,
        B_x=None,
        *,
        kernel="rbf",
        alpha=None,
        gamma=None,
        length_scale=None,
        nu=1.5,
        normalize_y=True,
        L=None,
        kernel_error=None,
    ):
        # scikit-learn's contract: whatever is given is stored as it is, and looked at in `fit`.
        self.v, self.lam, self.scheme, self.error, self.scale, self.B_x = v, lam, scheme, error, scale, B_x
        self.kernel, self.alpha, self.gamma, self.length_scale, self.nu = kernel, alpha, gamma, length_scale, nu
        self.normalize_y, self.L, self.kernel_error = normalize_y, L, kernel_error

    def fit(self, X, y) -> TransformerKRR:
        _refuse_masked(X=X, y=y)
        require_choice("scheme", self.scheme, SCHEMES)
        require_flag(scale=self.scale, normalize_y=self.normalize_y)
        X, y = self._checked(X, y, y_numeric=True)
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
        if not self.normalize_y:
            self.y_mean_ = self.y_mean_error_ = 0.0
        self.y_scale_ = float(np.abs(y - self.y_mean_).max()) or 1.0
        self.x_, self.y_ = self._scaled(X), (y - self.y_mean_) / self.y_scale_
        kernel, length, lam = self._asked()
        divided = self.x_ if is_single(length) else self.x_ / self._lengths(length, d)
        largest = float(np.linalg.norm(divided, axis=1).max()) or 1.0
        B_x = largest if self.B_x is None else self.B_x
        require(as_float(B_x) >= largest, "B_x", quoted(B_x), f"at least {largest}, as the scaled examples have")
        depth: dict[str, Any] = {"error": self.error} if self.L is None else {"L": self.L}
        if self.scheme == "adaptive":
            depth |= self._interval(length, lam, kernel)
        elif self.scheme != "paper" and self.B_x is None:
            B_x = None  # where nothing needs it, and another kernel is then fitted for queries at any distance
        self.network_ = construct(
            d,
            len(X),
            length,
            lam,
            kernel=kernel,
            kernel_error=self.kernel_error,
            B_x=B_x,
            B_y=1.0,
            scheme=self.scheme,
            **depth,
        )
        return self

    def predict(self, X, return_bound: bool = False):
        """Predictions; with return_bound also how far each can be from exact kernel ridge regression."""
        check_is_fitted(self)
        _refuse_masked(X=X)
        require_flag(return_bound=return_bound)
        X = self._checked(X, reset=False)
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

    def _checked(self, X, *y, **how) -> Any:
        """What scikit-learn makes of X and y; its errors are its own, but for one."""
        data: list[Any] = [each.detach() if isinstance(each, torch.Tensor) else each for each in (X, *y)]
        try:
            found = validate_data(self, *data, dtype=np.float64, **how)
        except OverflowError as error:
            raise InputError(
                f"X or y: must be numbers of float64, up to {np.finfo(float).max:.2g} ({error})."
            ) from error
        return tuple(map(np.asarray, found)) if isinstance(found, tuple) else np.asarray(found)

    def _asked(self) -> tuple[Any, Any, Any]:
        """The kernel, its length scale and the ridge, by whatever name they were given."""
        kernel, length, nu = self.kernel, self.length_scale, self.nu
        if type(kernel).__module__ == "sklearn.gaussian_process.kernels":
            kernel, length, nu = _of_scikit_learn(kernel, length)
        if isinstance(kernel, str) and kernel == "matern":
            kernel = None if as_float(nu) == math.inf else Matern(nu=nu)  # type: ignore[arg-type]
        if self.gamma is not None:
            plain = kernel is None or (isinstance(kernel, str) and kernel in ("rbf", "gaussian"))
            require(plain and length is None, "gamma", quoted(self.gamma), 'left out: for kernel="rbf", v left out')
            require_positive(gamma=self.gamma)
            length = 1 / math.sqrt(2 * self.gamma)
        one = length is None or (is_single(self.v) and self.v == 1.0)
        require(one, "v", quoted(self.v), "left out beside length_scale or gamma: it is the same number")
        one = self.alpha is None or (is_single(self.lam) and self.lam == 0.1)
        require(one, "lam", quoted(self.lam), "left out beside alpha: it is the same number")
        return kernel, self.v if length is None else length, self.lam if self.alpha is None else self.alpha

    def _lengths(self, length, d: int) -> np.ndarray:
        lengths = as_float_tensor("length_scale", length, "d").numpy()
        require(len(lengths) == d, "length_scale", f"{len(lengths)} numbers", f"1 or {d} numbers, as X has columns")
        require_positive(**{f"length_scale[{i}]": float(each) for i, each in enumerate(lengths)})
        return lengths

    def _interval(self, length: Any, lam: Any, kernel: Any) -> dict[str, float]:
        """What the adaptive scheme needs, of these examples."""
        labels = np.append(self.y_, 0.0)
        prompt = Prompts(np.append(self.x_, self.x_[:1], axis=0)[None], labels[None])
        interval = calibrate_interval(prompt, length, lam, margin=1.1, kernel=kernel)
        return {"hi": min(interval.hi, lam + len(self.y_)), "least": interval.least}

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        return (X - self.x_mean_) / self.x_scale_


def _of_scikit_learn(kernel: Any, length: Any) -> tuple[Any, Any, Any]:
    """The name or value, the length scale and nu of a kernel of sklearn.gaussian_process.kernels."""
    name = type(kernel).__name__
    require(length is None, "length_scale", quoted(length), f"left out: {name} has its own")
    known = name in ("RBF", "Matern", "RationalQuadratic")
    remedy = "Of a product with a constant divide alpha by it; a WhiteKernel's noise is alpha."
    require(known, "kernel", quoted(kernel), "RBF, Matern or RationalQuadratic of scikit-learn's", remedy)
    if name == "RationalQuadratic":
        return RationalQuadratic(alpha=kernel.alpha), kernel.length_scale, None
    return ("rbf" if name == "RBF" else "matern"), kernel.length_scale, getattr(kernel, "nu", None)


def _refuse_masked(**arrays) -> None:
    """scikit-learn takes hidden values for data."""
    for name, array in arrays.items():
        if isinstance(array, np.ma.MaskedArray):
            as_float_tensor(name, array, array.ndim)
