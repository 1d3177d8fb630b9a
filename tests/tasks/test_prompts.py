"""Prompts: what is drawn has the stated distribution, (seed, step) decides it, and bad arrays are refused in words."""

import json

import numpy as np
import pytest
import torch

import layerstep as ls
from layerstep.errors import require_choice

TASKS = [
    ls.Task(),
    ls.Task(inputs="uniform"),
    ls.Task(inputs="gaussian"),
    ls.Task(kernel="arccos1"),
    ls.Task(inputs="gaussian", d=1, N=1, v=2.0),
]


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_seed_and_step_decide_whatever_was_drawn_before(task):
    first = ls.sample(task, 5, seed=3, step=7)
    ls.sample(task, 2, seed=0)
    again = ls.sample(task, 5, seed=3, step=7)
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)
    assert not torch.equal(first.x, ls.sample(task, 5, seed=3, step=8).x)
    assert not torch.equal(first.x, ls.sample(task, 5, seed=4, step=7).x)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_a_prompt_does_not_depend_on_the_batch(task):
    many, few = ls.sample(task, 9, seed=1), ls.sample(task, 4, seed=1)
    assert torch.equal(many.x[:4], few.x)
    torch.testing.assert_close(many.y[:4], few.y, rtol=0, atol=1e-12)


def test_large_seeds_are_all_different():
    firsts = {ls.sample(TASKS[4], 1, seed=s, step=t).x[0, 0, 0].item() for s in (0, 2**32, 2**63) for t in (0, 2**32)}
    assert len(firsts) == 6


def test_sphere_and_cube_hold_their_points():
    assert torch.allclose(ls.sample(TASKS[0], 50, seed=0).x.norm(dim=-1), torch.ones(50, 41, dtype=torch.float64))
    x = ls.sample(TASKS[1], 200, seed=0).x
    assert x.abs().max() < 1
    # Uniform on [-1, 1]: variance 1/3, fourth moment 1/5; 41,000 draws, five standard errors.
    assert abs(x.square().mean() - 1 / 3) < 5 * (4 / 45 / x.numel()) ** 0.5
    assert abs(x.pow(4).mean() - 1 / 5) < 5 * (16 / 225 / x.numel()) ** 0.5
    assert abs(ls.sample(TASKS[2], 200, seed=0).x.std() - 0.6) < 0.01


@pytest.mark.parametrize("task", TASKS[:4], ids=str)
def test_labels_are_the_gaussian_process_they_claim_to_be(task):
    """Whitened by the Cholesky factor of K + sigma² I, labels are standard normal; so is f by that of K."""
    prompts = ls.sample(task, 400, seed=5)
    K = task.gram(prompts.x, prompts.x)
    eye = torch.eye(task.N + 1, dtype=torch.float64)
    white = torch.linalg.solve_triangular(
        torch.linalg.cholesky(K + task.lam * eye), prompts.y.unsqueeze(-1), upper=False
    )
    count = white.numel()
    assert abs(white.mean()) < 4 / count**0.5
    assert abs(white.square().mean() - 1) < 4 * (2 / count) ** 0.5
    covariance = white.squeeze(-1).T @ white.squeeze(-1) / len(white)
    assert (covariance - eye).abs().max() < 6 / len(white) ** 0.5
    noise = (prompts.y - prompts.f) / task.sigma
    assert abs(noise.std() - 1) < 4 / (2 * count) ** 0.5


def test_many_prompts_are_drawn_in_blocks_of_bounded_memory(monkeypatch):
    whole = ls.sample(TASKS[0], 7, seed=1)
    monkeypatch.setattr("layerstep.tasks.base.BLOCK", 2 * 41**2)
    torch.testing.assert_close(ls.sample(TASKS[0], 7, seed=1).f, whole.f, rtol=0, atol=1e-12)


def test_dtype_is_kept_and_prompts_are_the_same_in_both():
    double, single = ls.sample(TASKS[0], 3, seed=2), ls.sample(TASKS[0], 3, seed=2, dtype=torch.float32)
    assert single.x.dtype == torch.float32
    assert torch.equal(double.y.float(), single.y)


def test_noise_is_rescaled_along_a_line():
    prompts = ls.sample(TASKS[0], 3, seed=2)
    louder = prompts.scale_noise(20.0)
    torch.testing.assert_close(louder.y - louder.f, 20 * (prompts.y - prompts.f))
    assert torch.equal(louder.f, prompts.f)
    with pytest.raises(ls.InputError, match="no noiseless function"):
        ls.Prompts(prompts.x, prompts.y).scale_noise(2.0)


def test_users_arrays_lists_and_integers_become_prompts():
    from_numpy = ls.Prompts(np.zeros((2, 3, 1), dtype=np.float32), np.ones((2, 3)))
    assert (from_numpy.B, from_numpy.N, from_numpy.d) == (2, 2, 1)
    assert from_numpy.y.dtype == torch.float32
    assert ls.Prompts([[[0], [1]]], [[1, 2]]).x.dtype == torch.float64
    assert from_numpy[0].B == 1
    assert from_numpy[torch.tensor([True, False])].B == 1


X, Y = torch.zeros(2, 4, 3), torch.zeros(2, 4)


@pytest.mark.parametrize(
    ("x", "y", "f", "words"),
    [
        (X[0], Y, None, r"x\.shape = \[4, 3\]: must be \[B, N\+1, d\]"),
        (X, Y[:, :3], None, r"y\.shape = \[2, 3\]: must be \[2, 4\]"),
        (X, Y, Y[:1], r"f\.shape = \[1, 4\]: must be \[2, 4\]"),
        (X[:, :1], Y[:, :1], None, "at least two points"),
        (X[:0], Y[:0], None, "one sequence"),
        (X / 0, Y, None, "x = 24 values that are NaN or infinite"),
        (X, Y + float("inf"), None, "y = 8 values that are NaN or infinite"),
        (X + 1j, Y, None, "real numbers"),
        ([["a"]], Y, None, "x is not an array of numbers"),
    ],
)
def test_bad_arrays_are_refused_in_words(x, y, f, words):
    with pytest.raises(ls.InputError, match=words):
        ls.Prompts(x, y, f)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"v": 0.0}, "v = 0.0: must be a finite number above 0"),
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": float("nan")}, "sigma"),
        ({"sigma": 1e200}, "sigma = 1e\\+200: must be from 1e-150 to 1e150"),
        ({"sigma": 1e100}, "sigma = 1e\\+100: must be at most 1e\\+75"),
        ({"sigma": 1e-200}, "sigma = 1e-200: must be from 1e-150 to 1e150"),
        ({"inputs": "gaussian", "input_std": 1e308}, "input_std = 1e\\+308: must be from 1e-150 to 1e150"),
        (
            {"v": 1e-149, "kernel": "arccos1"},
            r"kernel values = of size 1e\+298 where v = 1e-149: must be at most 1e\+150",
        ),
        ({"v": 1e-170}, "v = 1e-170: must be from 1e-150 to 1e150"),
        ({"v": 10**400}, "v = 10+\\.\\.\\.0+ .401 characters.: must be a finite number above 0"),
        ({"N": 0}, "N = 0: must be an integer of at least 1"),
        ({"d": -3}, "d = -3"),
        ({"inputs": "cube"}, "inputs = 'cube': must be one of sphere, uniform, gaussian"),
        ({"kernel": "rbf"}, "kernel = 'rbf': must be one of gaussian, arccos1"),
    ],
)
def test_bad_tasks_are_refused_in_words(change, words):
    with pytest.raises(ls.InputError, match=words):
        ls.Task(**change)


@pytest.mark.parametrize("change", [{"B": 0}, {"seed": -1}, {"step": -1}])
def test_bad_draws_are_refused_in_words(change):
    with pytest.raises(ls.InputError, match=next(iter(change))):
        ls.sample(ls.Task(), **{"B": 1, "seed": 0, **change})


def test_arrays_that_run_backwards_are_arrays():
    x, y = np.arange(12.0).reshape(2, 3, 2), np.arange(6.0).reshape(2, 3)
    assert torch.equal(ls.Prompts(x[:, ::-1], y[:, ::-1]).x, torch.tensor(x).flip(1))
    assert torch.equal(ls.Trajectory(x[::-1], [0, 1]).values, torch.tensor(x).flip(0))
    assert ls.Prompts(x, y)[np.int64(1)].B == 1


def test_prompts_and_paths_are_data_without_gradients():
    learned = torch.ones(2, 3, 4, requires_grad=True)
    assert not ls.Prompts(learned, learned[..., 0]).y.requires_grad
    assert not ls.Trajectory(learned, [0, 1]).values.requires_grad


HIDDEN = np.ma.masked_array([[1.0, 2.0, 1e6]], mask=[[0, 0, 1]])


@pytest.mark.parametrize("y", [HIDDEN, [HIDDEN[0]], (HIDDEN[0],)], ids=["array", "list", "tuple"])
def test_masked_values_are_not_taken_for_data(y, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as for a user
    with pytest.raises(ls.InputError, match=r"y = 1 masked values: must be an array without a mask\. Remove or impute"):
        ls.Prompts(np.zeros((1, 3, 2)), y)
    shown = ls.Prompts(np.zeros((1, 3, 2)), np.ma.masked_array([[1.0, 2.0, 3.0]], mask=False))
    assert shown.y.tolist() == [[1, 2, 3]]


def test_a_sphere_in_one_dimension_is_said_to_be_two_points():
    with pytest.warns(UserWarning, match=r"two points, -1 and 1, .* Take uniform or gaussian inputs"):
        ls.sample(ls.Task(d=1, N=4), 3, seed=0)
    with pytest.warns(UserWarning, match="two points"):
        ls.Run(task=ls.Task(d=1))


def test_too_many_prompts_for_the_memory_are_refused_in_words():
    with pytest.raises(ls.InputError, match=r"needs .* GiB of memory or more, and there are .* Draw fewer prompts"):
        ls.sample(ls.Task(), 10**12, seed=0)


def test_precision_and_device_have_names():
    assert ls.sample(ls.Task(), 1, seed=0, dtype="float32").x.dtype == torch.float32
    with pytest.raises(ls.InputError, match="device = 'tpu': must be one of"):
        ls.sample(ls.Task(), 1, seed=0, device="tpu")


@pytest.mark.parametrize("table", ["KERNELS", "INPUTS"])
def test_a_task_knows_the_users_functions_by_their_values(table, monkeypatch):
    def make(scale):
        if table == "INPUTS":
            return lambda z, input_std: scale * torch.tanh(z)
        return lambda x, z, v: torch.exp(-scale * torch.cdist(x, z) / v)

    name = {"KERNELS": "kernel", "INPUTS": "inputs"}[table]
    described = []
    for scale in (1.0, 1.0, 1.0001):
        monkeypatch.setitem(getattr(ls, table), "mine", make(scale))
        described.append(ls.Task(**{name: "mine"}).to_dict())
    assert described[0] == described[1] != described[2]
    assert ls.Task.from_dict(json.loads(json.dumps(described[2]))) == ls.Task(**{name: "mine"})
    with pytest.raises(
        ls.InputError, match=rf"{name} = 'mine': must be the function .* Register that one in ls\.{table}"
    ):
        ls.Task.from_dict(described[0])
    built_in = next(iter(getattr(ls, table)))
    assert "fingerprints" not in ls.Task(**{name: built_in}).to_dict()
    monkeypatch.setitem(getattr(ls, table), built_in, make(1.0))  # under a name of ours
    assert ls.Task(**{name: built_in}).to_dict()["fingerprints"] == described[0]["fingerprints"]


def test_integer_types_are_refused_as_precision_of_prompts():
    with pytest.raises(ls.InputError, match="dtype = 'int32': must be one of float64"):
        ls.sample(ls.Task(), 1, seed=0, dtype=torch.int32)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("abc", [0, 1]), "values is not an array of numbers"),
        (([[1], [1, 2]], [0, 1]), "values is not an array of numbers"),
        ((X[0], [0, 1]), r"values\.shape = \[4, 3\]: must be \[S, B, N\]"),
        ((X, [0]), "stages = 1 numbers: must be 2 numbers"),
        ((X, [1, 1]), "increasing"),
        ((X, [0, 1], "model", [1, 2]), "contexts = 2 numbers: must be 3 numbers"),
        ((X, [0, 1], "model", [0, 1, 2]), r"contexts = \[0, 1, 2\]: must be 1 or more"),
        ((X, [0, 1], "model", [1, 3, 2]), "increasing whole numbers"),
        ((X, [0, 1], "model", [1, 2.5, 3]), r"contexts = \[1\.0, 2\.5, 3\.0\]: must be increasing whole numbers"),
        ((X, [0, 1], "model", "abc"), "contexts is not an array of numbers"),
    ],
)
def test_bad_paths_are_refused_in_words(arguments, words):
    with pytest.raises(ls.InputError, match=words):
        ls.Trajectory(*arguments)


def test_a_choice_that_cannot_be_hashed_is_refused_in_words():
    with pytest.raises(ls.InputError, match=r"inputs = \['sphere'\]: must be one of sphere, uniform, gaussian"):
        require_choice("inputs", ["sphere"], ls.INPUTS)


KERNELS_THAT_ARE_NONE = {
    "one argument": (lambda x: x, "It raised TypeError"),
    "a number": (lambda x, z, v: 1.0, "gives float for n = 7, m = 5"),
    "a diagonal": (lambda x, z, v: (x * x).sum(-1), r"gives \[7\] for n = 7, m = 5 and \[2, 7\]"),
    "no batches": (lambda x, z, v: x[..., :7, :] @ z.reshape(-1, z.shape[-1]).T, "two batches"),
    "nan": (lambda x, z, v: torch.cdist(x, z).log(), "NaN or infinite"),
    "not symmetric": (lambda x, z, v: x[..., :1] + 0 * torch.cdist(x, z), "not symmetric"),
    "always double": (lambda x, z, v: torch.exp(-torch.cdist(x, z).double()), "torch.float64 for float32"),
    "always single": (lambda x, z, v: torch.exp(-torch.cdist(x, z).float()), "torch.float32 for float64"),
    "indefinite": (lambda x, z, v: torch.cdist(x, z), "has an eigenvalue -"),
}


@pytest.mark.parametrize("name", KERNELS_THAT_ARE_NONE)
def test_a_function_that_is_not_a_kernel_is_refused_in_words(name, monkeypatch):
    kernel, words = KERNELS_THAT_ARE_NONE[name]
    monkeypatch.setitem(ls.KERNELS, "mine", kernel)
    with pytest.raises(ls.InputError, match=f"kernel = 'mine'.*{words}"):
        ls.Task(kernel="mine")


DISTRIBUTIONS_THAT_ARE_NONE = {
    "one argument": (lambda z: z, "It raised TypeError"),
    "numpy": (lambda z, s: z.numpy(), r"gives ndarray for z of shape \[2, 7, 5\]"),
    "norms": (lambda z, s: z.norm(dim=-1), r"gives \[2, 7\] for z of shape \[2, 7, 5\] and \[7\] for \[7, 5\]"),
    "no batches": (lambda z, s: z.reshape(-1, 5), r"gives \[14, 5\]"),
    "infinite": (lambda z, s: z / 0, "NaN or infinite"),
    "nan in the tails": (lambda z, s: torch.atanh(z / 3), "NaN or infinite"),
    "whole numbers": (lambda z, s: z.long(), "torch.int64 for float64"),
    "always double": (lambda z, s: z.double(), "torch.float64 for float32"),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS_THAT_ARE_NONE)
def test_a_function_that_is_not_an_input_distribution_is_refused_in_words(name, monkeypatch):
    function, words = DISTRIBUTIONS_THAT_ARE_NONE[name]
    monkeypatch.setitem(ls.INPUTS, "mine", function)
    with pytest.raises(ls.InputError, match=f"inputs = 'mine'.*{words}"):
        ls.Task(inputs="mine")


def test_an_input_distribution_of_ones_own_is_sampled(monkeypatch):
    monkeypatch.setitem(ls.INPUTS, "mine", lambda z, s: z.sign().add_(s * z))
    x = ls.sample(ls.Task(inputs="mine", input_std=0.1, d=1, N=3), 20, seed=0).x
    assert ((x.abs() > 1) & (x.abs() < 1.5)).all()


def test_prompts_and_paths_are_shown_in_a_line():
    prompts = ls.sample(ls.Task(N=4), 3, seed=0)
    assert repr(prompts) == "Prompts(B=3, N=4, d=5, torch.float64, cpu, f known)"
    path = ls.solve(ls.Richardson(), prompts, ls.Task(N=4), steps=50)
    assert repr(path).startswith("Trajectory('Preconditioned Richardson', S=51, B=3, N=4, stages [0")
    assert len(repr(path)) < 120
