"""`Trajectory.plot` and `Match.plot`: what is drawn are the numbers, and axes of one's own are drawn into."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import layerstep as ls
from layerstep.plotting import new_axes

TASK = ls.Task(d=2, N=8)


@pytest.fixture(scope="module")
def paths():
    prompts = ls.sample(TASK, 6, seed=0)
    cg, richardson = (ls.solve(ls.SOLVERS[name], prompts, TASK, steps=6) for name in ("cg", "richardson"))
    return prompts, cg, richardson


def test_a_trajectory_shows_its_errors_by_stage(paths):
    prompts, cg, _ = paths
    ax = cg.plot(prompts)
    drawn = {line.get_label(): line for line in ax.get_lines()}
    assert len(drawn) == 6
    np.testing.assert_allclose(drawn["n = 8"].get_ydata(), cg.mse(prompts)[:, -1])
    assert (ax.get_yscale(), ax.get_title(loc="left")) == ("log", cg.label)
    plt.close(ax.figure)


def test_without_a_target_it_is_the_distance_to_the_last_stage(paths):
    _, cg, _ = paths
    _, ax = plt.subplots()
    assert cg.plot(ax=ax) is ax
    drawn = {line.get_label(): line for line in ax.get_lines()}["n = 8"].get_ydata()
    expected = (cg.values - cg.values[-1]).square().mean(1)[:, -1].numpy()
    np.testing.assert_allclose(drawn[:-1], expected[:-1])
    assert np.isnan(drawn[-1])
    plt.close(ax.figure)


def test_a_match_shows_its_similarities_and_the_best_step_of_each_layer(paths):
    prompts, cg, richardson = paths
    found = ls.match(cg, richardson, prompts)
    ax = found.plot()
    [mesh] = ax.collections
    np.testing.assert_allclose(mesh.get_array().data, found.sime.T)
    [squares] = ax.get_lines()
    np.testing.assert_allclose(squares.get_ydata() - 1, found.sime.argmax(1))
    assert len(ax.figure.axes) == 2  # with the colour scale
    ax.figure.canvas.draw()
    plt.close(ax.figure)


def test_what_is_not_a_number_is_left_out():
    path = ls.Trajectory(torch.tensor([[[1.0, 2.0]], [[float("nan"), 1.0]], [[0.5, 1.0]]]), [0, 1, 500])
    ax = path.plot(torch.zeros(1, 2))
    assert ax.get_xscale() == "symlog"
    ax.figure.canvas.draw()
    plt.close(ax.figure)


def test_stages_and_layers_are_whole_numbers():
    ax = new_axes(4, 3)
    ax.plot([0, 1, 2, 3], [4, 3, 2, 1])
    ax.figure.canvas.draw()
    assert all(float(tick).is_integer() for tick in ax.get_xticks())
    plt.close(ax.figure)
