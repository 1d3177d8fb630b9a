"""The metrics for all solvers in one table, and weights read off predictions."""

import json

import pytest
import torch

import layerstep as ls
from layerstep.measurement.comparison import _weights

TASK = ls.LinearRegression(d=3, N=8, sigma=0.3)
PROMPTS = ls.sample(TASK, 24, seed=1)
STEPS = [1, 2, 3, 4, 5]


def model(prompts):
    return ls.solve(ls.SOLVERS["newton"], prompts, TASK, STEPS)


def test_a_solver_is_most_like_itself_by_errors_and_by_weights(tmp_path):
    found = ls.compare(model(PROMPTS), PROMPTS, TASK, model_fn=model)
    assert {row["solver"] for row in found.rows} == {family.name for family in ls.linear_families(TASK)}
    newton = next(row for row in found.rows if row["solver"] == "newton")
    assert newton["sime"] > 1 - 1e-12
    assert newton["simw"] > 1 - 1e-9
    assert newton["slope"] == pytest.approx(1)
    assert newton["r2"] == pytest.approx(1)
    rows = json.loads(json.dumps(found.to_dict(), allow_nan=False))["rows"]
    assert [row["sime"] for row in rows] == sorted((row["sime"] for row in rows), reverse=True)
    assert "these numbers rank solvers, and name none" in str(found)
    found.figure(tmp_path / "compare.png")
    assert (tmp_path / "compare.png").stat().st_size > 10_000


def test_weights_read_off_predictions_are_those_of_ridge_regression():
    found = _weights(lambda given: {"": ls.solve(ls.RidgePath(), given, TASK, [1 / TASK.lam])}, PROMPTS)[""][0]
    X, y = PROMPTS.x[:, :-1], PROMPTS.y[:, :-1]
    theta = torch.linalg.solve(X.mT @ X + TASK.lam * torch.eye(3), (X.mT @ y.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(found, theta, rtol=1e-8, atol=1e-8)


def test_solvers_of_the_users_are_compared_too():
    mine = {"mine": (ls.RidgePath(scale=3.0), [0.5, 1, 5, 50]), "newton": (ls.Newton(), range(8))}
    found = ls.compare(model(PROMPTS), PROMPTS, TASK, mine)
    assert [row["solver"] for row in found.rows] == ["newton", "mine"]
    kernel = ls.Task(d=3, N=8)
    prompts = ls.sample(kernel, 8, seed=0)
    path = ls.solve(ls.Richardson(), prompts, kernel, [1, 3, 9])
    names = [row["solver"] for row in ls.compare(path, prompts, kernel, ["richardson", "cg", "newton"]).rows]
    assert names[0] == "richardson"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"solvers": "newton"}, "solvers = 'newton': must be names, or a dictionary"),
        ({"solvers": ["mine"]}, "solvers = 'mine': must be one of"),
        ({"layers": 1}, "layers = 1: must be the first and the last"),
        ({"layers": (3, 1)}, "layers = .*: must be the first and the last"),
        ({"solvers": {}}, "solvers = .*: must be a dictionary of"),
        ({"task": ls.Task(d=3, N=8), "solvers": ["cg"], "model_fn": model}, "left out where the task is not linear"),
    ],
)
@pytest.mark.usefixtures("as_for_a_user")
def test_mistakes_are_named(arguments, words):
    with pytest.raises(ls.InputError, match=words):
        ls.compare(**{"path": model(PROMPTS), "prompts": PROMPTS, "task": TASK} | arguments)
