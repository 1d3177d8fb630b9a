"""Kernels: values against scikit-learn, parameters in names, functions of the user's in another process."""

import subprocess
import sys
import textwrap

import pytest
import torch
from sklearn.gaussian_process import kernels as theirs

import layerstep as ls
from layerstep.tasks.kernels import Polynomial, RationalQuadratic

X = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Z = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
V = 0.7


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("linear", theirs.ConstantKernel(V**-2) * theirs.DotProduct(sigma_0=0)),
        ("polynomial", (theirs.ConstantKernel(V**-2) * theirs.DotProduct(sigma_0=V)) ** 2),
        ("polynomial:3,0.25", (theirs.ConstantKernel(V**-2) * theirs.DotProduct(sigma_0=V / 2)) ** 3),
        ("matern12", theirs.Matern(length_scale=V, nu=0.5)),
        ("matern32", theirs.Matern(length_scale=V, nu=1.5)),
        ("matern52", theirs.Matern(length_scale=V, nu=2.5)),
        ("rational-quadratic", theirs.RationalQuadratic(length_scale=V, alpha=1.0)),
        ("rational-quadratic:0.5", theirs.RationalQuadratic(length_scale=V, alpha=0.5)),
        ("gaussian", theirs.RBF(length_scale=V)),
    ],
)
def test_values_are_those_of_scikit_learn(name, kernel):
    ours = ls.Task(kernel=name, d=3, v=V).gram(X, Z)
    torch.testing.assert_close(ours, torch.from_numpy(kernel(X.numpy(), Z.numpy())), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", [*ls.KERNELS, "polynomial:3", "rational-quadratic:2.5"])
def test_every_kernel_makes_prompts_solves_and_is_kept_in_files(name):
    task = ls.Task(kernel=name, d=2, N=6, inputs="gaussian", sigma=0.3)
    again = ls.Task.from_dict(task.to_dict())
    assert again == task
    assert ls.Run(task=again).identity == ls.Run(task=task).identity
    prompts = ls.sample(task, 3, seed=0)
    ends = ls.solve(ls.SOLVERS["cg"], prompts, task, [200]).values[0]
    torch.testing.assert_close(ends, ls.exact(prompts, task), rtol=0, atol=1e-7)


def test_a_kernel_with_parameters_is_a_value_with_one_name():
    assert ls.Task(kernel=Polynomial(degree=3)).kernel == "polynomial:3"
    assert ls.Task(kernel="polynomial:3,1.0") == ls.Task(kernel=Polynomial(degree=3))
    assert ls.Task(kernel="polynomial:2") == ls.Task(kernel="polynomial")
    assert ls.Task(kernel=RationalQuadratic(alpha=0.5)).kernel == "rational-quadratic:0.5"
    assert ls.KERNELS["polynomial:3"] == Polynomial(degree=3)
    assert ls.Task(kernel=ls.KERNELS["matern32"]).kernel == "matern32"


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("polynomial:x", "kernel = 'polynomial:x': must be polynomial:DEGREE,OFFSET, such as polynomial:3"),
        ("polynomial:1,2,3", "must be polynomial:DEGREE,OFFSET"),
        ("polynomial:0", "degree = 0: must be an integer from 1 to 20"),
        ("polynomial:3,-1", "offset = -1.0: must be a number from 0"),
        ("rational-quadratic:0", "alpha = 0.0: must be a finite number above 0"),
        ("laplace", "one of gaussian, arccos1, linear.* ls.KERNELS takes a function.* --import MODULE"),
        ("my.module:laplace", r"Import it: ls.import_kernel\('my.module:laplace'\).* --kernel my.module:laplace"),
        (lambda x, z, v: x @ z.mT, r"must be a function defined in a module.* ls.KERNELS\['mine'\] = function"),
        (3, "kernel = 3: must be one of"),
    ],
)
def test_another_kernel_is_refused_in_words(kernel, words):
    with pytest.raises(ls.InputError, match=words):
        ls.Task(kernel=kernel)


def laplace(x, z, v):
    return torch.exp(-torch.cdist(x, z) / v)


def test_a_function_may_stand_for_its_name(monkeypatch):
    monkeypatch.setattr("layerstep.tasks.kernels.KERNELS", type(ls.KERNELS)(ls.KERNELS))
    monkeypatch.setattr("layerstep.tasks.task.KERNELS", sys.modules["layerstep.tasks.kernels"].KERNELS)
    task = ls.Task(kernel=laplace, d=2, N=4)
    assert task.kernel.endswith("test_kernels:laplace")
    assert set(task.to_dict()["fingerprints"]) == {"kernel"}
    torch.testing.assert_close(task.gram(X[:, :2], Z[:, :2]), ls.Task(kernel="matern12", d=2).gram(X[:, :2], Z[:, :2]))

    def another(x, z, v):
        return 2 * laplace(x, z, v)

    another.__module__, another.__qualname__ = laplace.__module__, laplace.__qualname__
    with pytest.raises(ls.InputError, match="must be another name: there is a function with other values by this one"):
        ls.Task(kernel=another, d=2, N=4)


def test_two_functions_under_one_name_do_not_share_a_run(monkeypatch):
    monkeypatch.setitem(ls.KERNELS, "mine", laplace)
    first = ls.Run(task=ls.Task(kernel="mine"))
    kept, identity = first.to_dict(), first.identity
    monkeypatch.setitem(ls.KERNELS, "mine", lambda x, z, v: laplace(x, z, 2 * v))
    assert ls.Run(task=ls.Task(kernel="mine")).identity != identity
    with pytest.raises(ls.InputError, match="kernel = 'mine': must be the function it was when this was written"):
        ls.Run.from_dict(kept)


MODULE = """
import torch
print("imported")
def rough(x, z, v):
    return torch.exp(-torch.cdist(x, z) / v)
"""


def test_another_process_opens_a_run_only_when_told_to_import(tmp_path):
    (tmp_path / "kernels_of_mine.py").write_text(MODULE)
    write = "import layerstep as ls, json; ls.import_kernel('kernels_of_mine:rough'); "
    write += "r = ls.Run(task=ls.Task(kernel='kernels_of_mine:rough')); "
    write += "json.dump([r.to_dict(), r.identity], open('run.json', 'w'))"
    read = """
    import layerstep as ls, json
    kept, identity = json.load(open('run.json'))
    try:
        ls.Run.from_dict(kept)
    except ls.InputError as error:
        print(error)
    ls.import_kernel('kernels_of_mine:rough')
    print(ls.Run.from_dict(kept).identity == identity)
    """
    outputs = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for code in (write, read)
    ]
    assert outputs[0] == ["imported"]
    error, imported, same = outputs[1]
    assert "ls.import_kernel('kernels_of_mine:rough'), on the command line --kernel kernels_of_mine:rough" in error
    assert (imported, same) == ("imported", "True")


@pytest.mark.parametrize("name", ["nowhere_at_all:f", "layerstep.tasks.kernels:nothing", "layerstep:__version__", "f"])
def test_what_cannot_be_imported_is_said(name):
    with pytest.raises(ls.InputError, match=f"kernel = '{name}': "):
        ls.import_kernel(name)
