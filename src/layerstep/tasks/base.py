"""What a task is: a protocol that code of the user's can follow, and the base of tasks with a kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from layerstep.errors import require, require_count, require_kind
from layerstep.memory import require_memory
from layerstep.tasks.posterior import posterior_means
from layerstep.tasks.prompts import BLOCK, Prompts, normals
from layerstep.threads import one_thread

#: The step of `normals` at which new labels are drawn: no prompts are.
RELABEL = 2**63


@runtime_checkable
class TaskProtocol(Protocol):
    """A distribution of prompts. `d`, `N` and `sample` make a task; each of the others is asked for where it is needed.

    exact(prompts) [B, N] is the best prediction there is; relabel(prompts, seed) has other labels at the same inputs;
    features(prompts, contexts) [F, B, C] are numbers of this domain that may explain a model's error; to_dict() goes
    into files. A task with `lam` and `gram(x, z)` has kernel systems, which solvers solve.
    """

    @property
    def d(self) -> int: ...

    @property
    def N(self) -> int: ...

    def sample(self, B: int, seed: int, step: int = 0) -> Prompts: ...


#: What a task needs beyond d, N and sample: why, and what works without.
NEEDED = {
    "sample": "that draws prompts",
    "exact": "that gives the best prediction [B, N]",
    "relabel": "that draws other labels at the same inputs; identify works without it (interventions=False)",
    "features": "of this domain, [F, B, C]",
    "to_dict": "with what names the task in files",
    "gram": "with kernel values K(x, z), which solvers of kernel systems need; ls.match and ls.probe work without it",
    "lam": "the ridge, which solvers of kernel systems need; ls.match and ls.probe work without it",
}


def require_task(task: object, *needs: str, remedy: str = "") -> None:
    """Raise InputError unless `task` has d and N, and each of `needs`: the words say what that is for."""
    if isinstance(task, KernelTask):
        return
    shaped = not isinstance(task, type) and all(isinstance(getattr(task, name, None), int) for name in ("d", "N"))
    if not shaped:
        remedy = remedy or "Make one with ls.Task() or ls.LinearRegression()."
        require_kind("task", task, KernelTask, remedy, "a Task")
    require_count(d=getattr(task, "d", None), N=getattr(task, "N", None))
    for need in needs:
        there = getattr(task, need, None)
        given = there is not None and (need == "lam" or callable(there))
        name = need if need == "lam" else f"{need}(...)"
        require(given, "task", f"a {type(task).__name__} without {name}", f"a task with {name}, {NEEDED[need]}")


class KernelTask(ABC):
    """y_i = f(x_i) + sigma ε_i, f a random function with covariance K.

    A new one is a frozen dataclass with d, N and sigma that says how inputs come from normals, what K is, and how f is
    drawn, where it is not a Gaussian process.
    """

    d: int
    N: int
    sigma: float
    #: What tells it apart in files; the task of the paper, first of all, has none.
    type: ClassVar[str] = ""

    @property
    def lam(self) -> float:
        """The ridge: lam = sigma², which makes kernel ridge regression the posterior mean."""
        return self.sigma**2

    @abstractmethod
    def gram(self, x: Float[Tensor, "*batch n d"], z: Float[Tensor, "*batch m d"]) -> Float[Tensor, "*batch n m"]:
        """Kernel values between two sets of points."""

    def log_gram(self, x: Float[Tensor, "*batch n d"], z: Float[Tensor, "*batch m d"]) -> Float[Tensor, "*batch n m"]:
        """log K of a kernel without values below 0."""
        return self.gram(x, z).clamp_min(torch.finfo(x.dtype).tiny).log()

    @abstractmethod
    def draw_inputs(self, normals: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Inputs x from standard normals."""

    def draw_function(self, x: Float[Tensor, "B M d"], seed: int, step: int) -> Float[Tensor, "B M"]:
        """f at these points: the symmetric root of K, a continuous function of it, times normals of (seed, step)."""
        g = normals(seed, step, 1, (*x.shape[:2], 1))
        block = max(1, BLOCK // x.shape[1] ** 2)
        with one_thread():
            roots = (_root(self.gram(part, part)) for part in x.split(block))
            return torch.cat([root @ part for root, part in zip(roots, g.split(block), strict=True)]).squeeze(-1)

    def sample(self, B: int, seed: int, step: int = 0) -> Prompts:
        """B prompts in float64; (seed, step) decides, whatever was drawn before; prompt b does not depend on B."""
        x = self.draw_inputs(normals(seed, step, 0, (B, self.N + 1, self.d)))
        f = self.draw_function(x, seed, step)
        return Prompts(x, f + self.sigma * normals(seed, step, 2, (B, self.N + 1)), f)

    def relabel(self, prompts: Prompts, seed: int) -> Prompts:
        """The same inputs with another function and other noise, of (seed), unlike those of any `sample`."""
        require_fits(prompts, self)
        x = prompts.x.to("cpu", torch.float64)
        f = self.draw_function(x, seed, RELABEL)
        return Prompts(prompts.x, f + self.sigma * normals(seed, RELABEL, 2, (prompts.B, prompts.N + 1)), f)

    @property
    def normals_shape(self) -> tuple[int, int]:
        """The standard normals that one training prompt is made of; the first d columns of N + 1 rows become x."""
        return self.N + 1, self.d + 1

    def draw(
        self, z: Float[Tensor, "B R C"], seen: Float[Tensor, "B 1 d"] | None = None
    ) -> tuple[Float[Tensor, "B M d"], Float[Tensor, "B M"]]:
        """Training prompts from normals of `normals_shape`, on any device: y = L g, L Lᵀ = K + lam I.

        seen: 1 for the coordinates that the inputs have, 0 for those that a curriculum still leaves out.
        """
        x = self.draw_inputs(z[..., :-1])
        x = x if seen is None else x * seen
        K = self.gram(x, x)
        K.diagonal(dim1=-2, dim2=-1).add_(self.lam)
        # A Run refuses a sigma too small for this to be safe: nothing to check here, so the host does not wait.
        L = torch.linalg.cholesky_ex(K, check_errors=False).L
        return x, (L @ z[..., -1:]).squeeze(-1)

    def least_sigma(self, dtype: torch.dtype) -> float:
        """What `draw` needs: sigma² >= 4 (N+1) eps E K(x, x), for less is lost in K, whose factor makes the labels.

        Rounding moves the eigenvalues of K by a fraction of eps trace K = (N+1) eps E K(x, x), so the smallest stays
        above 0.
        """
        x = self.draw_inputs(normals(0, 0, 0, (256, 1, self.d)))
        return (4 * (self.N + 1) * torch.finfo(dtype).eps * float(self.gram(x, x).mean())) ** 0.5

    def ridge_regression(
        self, x: Float[Tensor, "B M d"], y: Float[Tensor, "B M"], gram: Float[Tensor, "B M M"] | None = None
    ) -> Float[Tensor, "B M"]:
        """k_n · (K_n + lam I)⁻¹ y at x_{n+1}, n = 0..N: what every solver converges to. gram: K where it is known."""
        return posterior_means(self.gram(x, x) if gram is None else gram, y, self.lam)

    def posterior_mean(self, x: Float[Tensor, "B M d"], y: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
        """E[f(x_{n+1}) | x, y_1..y_n], n = 0..N: the best prediction. Ridge regression where f is Gaussian."""
        return self.ridge_regression(x, y)

    def exact(self, prompts: Prompts) -> Float[Tensor, "B N"]:
        """The posterior mean, for n = 1..N."""
        require_fits(prompts, self)
        block = max(1, BLOCK // (prompts.N + 1) ** 2)
        parts = zip(prompts.x.split(block), prompts.y.split(block), strict=True)
        with one_thread():
            return torch.cat([self.posterior_mean(x, y)[:, 1:] for x, y in parts])

    def features(self, prompts: Prompts, contexts: Sequence[int]) -> Float[Tensor, "F B C"]:
        """Numbers of this domain that may explain what a model leaves of the labels; none that every task has."""
        return prompts.y.new_zeros(0, prompts.B, len(contexts))

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """What names the task in files: `task_from_dict` makes it again."""


def require_fits(prompts: object, task: Any) -> None:
    """Raise InputError unless these are prompts of the task's dimension, in a precision that solvers know."""
    require_kind("prompts", prompts, Prompts, "They come before the task.")
    assert isinstance(prompts, Prompts)
    require(prompts.d == task.d, "prompts.d", prompts.d, f"{task.d}, the dimension of the task")
    dtype = prompts.x.dtype
    ok = dtype in (torch.float32, torch.float64)
    require(ok, "prompts.x.dtype", dtype, "torch.float32 or torch.float64", "Use prompts.to(torch.float64).")


def sample(
    task: TaskProtocol,
    B: int,
    seed: int,
    step: int = 0,
    *,
    dtype: torch.dtype | str = torch.float64,
    device: str | torch.device = "cpu",
) -> Prompts:
    """B prompts of `task`. (seed, step) decides, whatever was drawn before; prompt b does not depend on B.

    Drawn in float64 on the CPU and then moved, so every device and dtype sees the same prompts.
    """
    require_task(task, "sample", remedy="Make one with ls.Task(inputs='sphere') or ls.LinearRegression().")
    require_count(B=B)
    points = task.N + 1
    require_memory("B", B, 8 * (B * points * (task.d + 3) + points**2), "Draw fewer prompts, or shorter ones.")
    if isinstance(task, KernelTask):
        return task.sample(B, seed, step).to(dtype, device)
    name = f"{type(task).__name__}.sample"
    given = task.sample(B, seed, step)
    require_kind(name, given, Prompts, "Such as ls.Prompts(x, y).")
    shape, wanted = [given.B, given.N + 1, given.d], [B, points, task.d]
    require(shape == wanted, name, f"prompts of shape {shape}", f"of B, N + 1, d = {wanted}")
    return given.to(dtype, device)


def _root(K: Float[Tensor, "B n n"]) -> Float[Tensor, "B n n"]:
    """The symmetric root: it exists when K is singular (duplicate points)."""
    eigenvalues, vectors = torch.linalg.eigh(K)
    return (vectors * eigenvalues.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT
