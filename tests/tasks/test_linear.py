"""In-context linear regression: drawn as stated, its exact answers against NumPy, scikit-learn and literal sums."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

import layerstep as ls
from layerstep.tasks import require_task, task_from_dict
from layerstep.training.sampling import draw_chunk

ILL = tuple(10.0**-k for k in range(5))
SHIFTED = (1.0, 0.0, 0.0, 0.0, 0.0)
TASKS = [
    ls.LinearRegression(),
    ls.LinearRegression(d=5, N=16, sigma=0.5),
    ls.LinearRegression(d=5, N=16, sigma=0.05, covariance=ILL, mean=SHIFTED),
    ls.LinearRegression(d=5, N=16, sigma=0.5, prior="sparse:2"),
    ls.LinearRegression(d=5, N=16, sigma=0.5, pool=8),
    ls.LinearRegression(d=2, N=6, covariance=[[2.0, 1.0], [1.0, 2.0]], pool=[[1.0, 0.0], [0.0, 1.0]]),
]


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_it_is_a_value_that_files_keep(task):
    again = task_from_dict(task.to_dict())
    assert again == task
    assert hash(again) == hash(task)
    assert task.lam == task.sigma**2
    run = ls.Run(task=task)
    assert ls.Run.from_dict(run.to_dict()) == run
    assert run.identity != ls.Run(task=ls.LinearRegression(d=7)).identity


def test_a_gaussian_process_has_no_type_in_files():
    assert "type" not in ls.Task().to_dict()
    assert task_from_dict(ls.Task(v=2.0).to_dict()) == ls.Task(v=2.0)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_seed_and_step_decide_and_a_prompt_does_not_depend_on_the_batch(task):
    many, few = ls.sample(task, 9, seed=1, step=3), ls.sample(task, 4, seed=1, step=3)
    assert torch.equal(many.x[:4], few.x)
    torch.testing.assert_close(many.y[:4], few.y, rtol=0, atol=1e-12)
    assert not torch.equal(few.y, ls.sample(task, 4, seed=1, step=4).y)


def weights_of(prompts: ls.Prompts) -> np.ndarray:
    return np.stack(
        [np.linalg.lstsq(x, f, rcond=None)[0] for x, f in zip(prompts.x.numpy(), prompts.f.numpy(), strict=True)]
    )


def test_inputs_and_weights_have_the_stated_moments():
    C = np.array([[2.0, 1.0], [1.0, 2.0]])
    prompts = ls.sample(ls.LinearRegression(d=2, N=9, covariance=C, mean=[3.0, 0.0], sigma=0.3), 4000, seed=0)
    x = prompts.x.flatten(0, 1).numpy()
    assert np.abs(x.mean(0) - [3, 0]).max() < 5 * (2 / len(x)) ** 0.5
    assert np.abs(np.cov(x.T) - C).max() < 5 * (8 / len(x)) ** 0.5
    theta = weights_of(prompts)
    assert np.abs(theta.mean(0)).max() < 5 / len(theta) ** 0.5
    assert np.abs(np.cov(theta.T) - np.eye(2)).max() < 5 * (2 / len(theta)) ** 0.5
    assert abs(float((prompts.y - prompts.f).std()) - 0.3) < 5 * 0.3 / (2 * x.shape[0]) ** 0.5


def test_sparse_weights_have_k_coordinates_each_as_often_as_the_others():
    theta = weights_of(ls.sample(ls.LinearRegression(d=6, N=8, prior="sparse:2"), 3000, seed=1))
    there = np.abs(theta) > 1e-9
    assert (there.sum(1) == 2).all()
    assert np.abs(there.mean(0) - 1 / 3).max() < 5 * (2 / 9 / 3000) ** 0.5


def test_weights_are_those_of_the_pool_each_as_often_as_the_others():
    task = ls.LinearRegression(d=4, N=8, pool=5)
    theta = weights_of(ls.sample(task, 3000, seed=1))
    apart = np.abs(theta[:, None] - task.weights.numpy()).max(-1)
    assert (apart.min(1) < 1e-9).all()
    counts = np.bincount(apart.argmin(1), minlength=5) / 3000
    assert np.abs(counts - 0.2).max() < 5 * (0.16 / 3000) ** 0.5
    larger = ls.LinearRegression(d=4, N=8, pool=9).weights
    assert torch.equal(larger[:5], task.weights)
    assert not torch.equal(ls.LinearRegression(d=4, N=8, pool=5, pool_seed=1).weights, task.weights)


@pytest.mark.parametrize("task", TASKS[1:], ids=str)
def test_training_prompts_have_the_moments_of_sampled_ones(task):
    run = ls.Run(task=task, batch=64, steps=100)
    x, y = draw_chunk(run, 0, torch.float64, torch.device("cpu"))
    drawn = ls.sample(task, 4096, seed=9)
    for mine, theirs in ((x.flatten(0, 2), drawn.x.flatten(0, 1)), (y.flatten(), drawn.y.flatten())):
        assert mine.shape[0] == theirs.shape[0]
        for power in (1, 2):
            a, b = mine.double() ** power, theirs.double() ** power
            # Labels of one prompt share their weights: count prompts, not labels.
            error = ((a.var(0) + b.var(0)) / 4096).sqrt()
            assert bool(((a.mean(0) - b.mean(0)).abs() <= 5 * error + 1e-12).all())


@pytest.mark.parametrize("sigma", [0.5, 0.05, 0.001])
@pytest.mark.parametrize("d", [3, 20])
@pytest.mark.parametrize("covariance", ["one", "ill"])
def test_exact_is_ridge_regression(d, sigma, covariance):
    spread = 1.0 if covariance == "one" else np.logspace(0, -4, d)
    task = ls.LinearRegression(d=d, N=24, sigma=sigma, covariance=spread, mean=0.5)
    prompts = ls.sample(task, 3, seed=4)
    answers = ls.exact(prompts, task)
    for b, n in itertools.product(range(3), range(1, 25)):
        x, y = prompts.x[b].numpy(), prompts.y[b].numpy()
        theta = Ridge(alpha=sigma**2, fit_intercept=False, solver="svd").fit(x[:n], y[:n]).coef_
        assert abs(float(answers[b, n - 1]) - x[n] @ theta) < 1e-7


@pytest.mark.parametrize("d", [3, 20])
def test_without_noise_exact_is_least_squares_of_minimum_norm(d):
    task = ls.LinearRegression(d=d, N=24, covariance=np.logspace(0, -3, d))
    prompts = ls.sample(task, 4, seed=5)
    answers = ls.exact(prompts, task)
    for b, n in itertools.product(range(4), range(1, 25)):
        x, y = prompts.x[b].numpy(), prompts.y[b].numpy()
        assert abs(float(answers[b, n - 1]) - x[n] @ np.linalg.lstsq(x[:n], y[:n], rcond=None)[0]) < 1e-8
    assert float((answers - prompts.target)[:, d:].abs().max()) < 1e-10


def test_exact_is_continuous_down_to_no_noise():
    prompts = ls.sample(ls.LinearRegression(), 8, seed=0)
    limit = ls.exact(prompts, ls.LinearRegression())
    away = [float((ls.exact(prompts, ls.LinearRegression(sigma=s)) - limit).abs().max()) for s in (1e-3, 1e-5, 1e-7)]
    assert away[0] > 1e3 * away[1] > 1e6 * away[2]
    assert away[2] < 1e-9


def test_points_that_repeat_have_an_exact_answer_without_noise():
    prompts = ls.sample(ls.LinearRegression(d=3, N=6), 2, seed=0)
    x = prompts.x[:, [0, 0, 1, 1, 0, 1, 2]]
    y = prompts.y[:, [0, 0, 1, 1, 0, 1, 2]]
    answers = ls.exact(ls.Prompts(x, y), ls.LinearRegression(d=3, N=6))
    theta = np.linalg.lstsq(x[0, :6].numpy(), y[0, :6].numpy(), rcond=None)[0]
    assert abs(float(answers[0, -1]) - x[0, 6].numpy() @ theta) < 1e-9


def test_the_posterior_mean_of_sparse_weights_is_the_sum_over_supports():
    task = ls.LinearRegression(d=5, N=7, sigma=0.4, prior="sparse:2", covariance=ILL)
    prompts = ls.sample(task, 3, seed=2)
    answers = ls.exact(prompts, task)
    for b, n in itertools.product(range(3), (1, 2, 4, 7)):
        x, y = prompts.x[b].numpy(), prompts.y[b, :n].numpy()
        logs, means = [], []
        for S in map(list, itertools.combinations(range(5), 2)):
            A = x[:n, S] @ x[:n, S].T + task.lam * np.eye(n)
            logs.append(-0.5 * y @ np.linalg.solve(A, y) - 0.5 * np.linalg.slogdet(A)[1])
            means.append(x[n, S] @ x[:n, S].T @ np.linalg.solve(A, y))
        p = np.exp(np.array(logs) - max(logs))
        assert abs(float(answers[b, n - 1]) - p @ means / p.sum()) < 1e-10


def test_sparse_weights_are_found_without_noise():
    prompts = ls.sample(ls.LinearRegression(prior="sparse:3"), 2, seed=2)
    answers = ls.exact(prompts, ls.LinearRegression(prior="sparse:3"))
    assert float((answers - prompts.target)[:, 3:].abs().median()) < 1e-7  # four equations for three numbers


@pytest.mark.parametrize("sigma", [0.5, 0.05])
def test_the_posterior_mean_over_a_pool_is_dmmse(sigma):
    task = ls.LinearRegression(d=8, N=16, sigma=sigma, pool=32)
    prompts = ls.sample(task, 16, seed=3)
    solver = ls.DiscreteMMSE(pool=task.weights)
    theirs = ls.solve(solver, prompts, task, [1 / task.lam]).values[0]
    torch.testing.assert_close(ls.exact(prompts, task), theirs, rtol=0, atol=1e-12)
    without = ls.exact(prompts.scale_noise(0.0), ls.LinearRegression(d=8, N=16, pool=32))
    torch.testing.assert_close(without[:, 1:], prompts.noiseless_target[:, 1:], rtol=0, atol=1e-9)


def test_the_best_prediction_is_better_than_ridge_regression_where_it_knows_more():
    for more in ({"prior": "sparse:2"}, {"pool": 16}):
        task = ls.LinearRegression(d=8, N=12, sigma=0.3, **more)
        prompts = ls.sample(task, 200, seed=6)
        best, ridge = ls.exact(prompts, task), ls.exact(prompts, ls.LinearRegression(d=8, N=12, sigma=0.3))
        error = [(answer - prompts.noiseless_target)[:, 3:].square().mean() for answer in (best, ridge)]
        assert error[0] < 0.5 * error[1]


@pytest.mark.parametrize("weights", [{}, {"prior": "sparse:1"}, {"pool": 3}])
@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_inputs_of_zero_have_the_answer_zero_and_huge_numbers_are_refused(weights, sigma):
    task = ls.LinearRegression(d=2, N=4, sigma=sigma, **weights)
    nothing = np.zeros((3, 5, 2))
    assert not ls.exact(ls.Prompts(nothing, np.zeros((3, 5))), task).any()
    huge = ls.Prompts(nothing + 1e200, np.ones((3, 5)))
    if not weights:  # from singular values, whose squares are not needed
        assert (ls.exact(huge, task) - 1).abs().max() < 1e-12
        return
    with pytest.raises(ls.InputError, match=r"inputs up to 1e\+200 and labels up to 1: must be of a size whose"):
        ls.exact(huge, task)


def test_labels_that_no_weights_fit_are_said():
    prompts = ls.sample(ls.LinearRegression(d=3, N=10, sigma=0.5), 4, seed=0)
    with pytest.warns(UserWarning, match="no weights fit these labels: least squares leaves .* Give the task"):
        ls.exact(prompts, ls.LinearRegression(d=3, N=10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ls.exact(ls.sample(ls.LinearRegression(d=3, N=10), 4, seed=0), ls.LinearRegression(d=3, N=10))


def test_other_labels_at_the_same_inputs():
    for task in (TASKS[1], ls.Task(N=6)):
        prompts = ls.sample(task, 500, seed=0)
        other = task.relabel(prompts, 0)
        assert torch.equal(other.x, prompts.x)
        share = (other.y * prompts.y).mean() / (other.y.square().mean() * prompts.y.square().mean()).sqrt()
        assert abs(float(share)) < 0.15
        torch.testing.assert_close(other.y.square().mean(), prompts.y.square().mean(), rtol=0.2, atol=0)
        assert abs(float((other.y - other.f).std() / task.sigma - 1)) < 0.1


def test_coordinate_features_are_the_parts_of_a_gradient_and_of_the_answer():
    task = TASKS[1]
    prompts = ls.sample(task, 4, seed=0)
    features = task.features(prompts, [3, 16])
    assert features.shape == (10, 4, 2)
    torch.testing.assert_close(features[5:].sum(0)[:, 0], ls.exact(prompts, task)[:, 2])
    K = task.gram(prompts.x, prompts.x)
    first = torch.stack([(K[:, n, :n] * prompts.y[:, :n]).sum(-1) for n in (3, 16)], dim=-1)
    torch.testing.assert_close(features[:5].sum(0), first)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"d": 0}, "d = 0: must be an integer of at least 1"),
        ({"sigma": -1.0}, "sigma = -1.0: must be a number from 0"),
        ({"sigma": 1e-200}, "sigma = 1e-200: must be 0, or at least 1e-150"),
        ({"covariance": 0.0}, "covariance = 0: must be above 0 in one direction or more"),
        ({"covariance": (1.0, 2.0)}, r"covariance = of shape \[2\]: must be one number or 20 numbers or 20 x 20"),
        ({"d": 2, "covariance": (1.0, -2.0)}, "covariance = -2 as its least eigenvalue: must be without variances"),
        ({"d": 2, "covariance": [[1.0, 2.0], [2.0, 1.0]]}, "covariance = -1 as its least .* positive semi-definite"),
        ({"d": 2, "covariance": [[1.0, 2.0], [0.0, 1.0]]}, "must be symmetric"),
        ({"mean": "0"}, "mean = '0': must be one number or 20 numbers"),
        ({"mean": float("nan")}, "mean = nan: must be a finite number"),
        ({"prior": "sparse"}, "prior = 'sparse': must be 'gaussian', or 'sparse:k' with k from 1 to d = 20"),
        ({"prior": "sparse:21"}, "prior"),
        ({"pool": 0}, "pool = 0: must be an integer of at least 1"),
        ({"pool": [[1.0, 2.0]]}, r"pool = \[1, 2\]: must be the number of weights, or rows of d = 20"),
        ({"pool": "many"}, "pool"),
        ({"pool_seed": -1}, "pool_seed"),
    ],
)
def test_mistakes_are_refused_in_words(change, words):
    with pytest.raises(ls.InputError, match=words):
        ls.LinearRegression(**change)


def test_too_many_supports_are_said():
    task = ls.LinearRegression(prior="sparse:9")
    with pytest.raises(ls.InputError, match="which has 167,960 supports: must be fewer"):
        ls.exact(ls.sample(task, 2, seed=0), task)


def test_an_unknown_type_in_a_file_is_said():
    with pytest.raises(ls.InputError, match=r"task type = 'trees': must be one of linear-regression.*--import MODULE"):
        task_from_dict({"type": "trees"})


class Coin:
    """A task of the user's: no kernel, no exact answer."""

    d, N = 2, 6

    def sample(self, B: int, seed: int, step: int = 0) -> ls.Prompts:
        x = ls.sample(ls.Task(inputs="gaussian", d=2, N=6), B, seed, step).x
        return ls.Prompts(x, x.sum(-1).sign())


def test_a_task_of_the_users_needs_what_is_asked_of_it():
    task = Coin()
    prompts = ls.sample(task, 3, seed=0, dtype="float32")
    assert prompts.y.dtype == torch.float32
    with pytest.raises(ls.InputError, match=r"task = a Coin without exact\(...\): must be a task with exact\(...\)"):
        ls.exact(prompts, task)
    with pytest.raises(ls.InputError, match=r"a Coin without gram\(...\).* ls.match and ls.probe work without it"):
        ls.solve(ls.Richardson(), prompts, task, 3)
    with pytest.raises(ls.InputError, match="task = a dict: must be a Task"):
        require_task({})
    with pytest.raises(ls.InputError, match="task = an ABCMeta"):
        require_task(ls.LinearRegression)
