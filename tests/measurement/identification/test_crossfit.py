"""The statistics equal their definitions, written out in NumPy; the library equals the solvers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import layerstep as ls
from layerstep.measurement import CLASSES
from layerstep.measurement.identification.decision import Rule, decide, result_on
from layerstep.measurement.identification.descriptions import Slopes
from layerstep.measurement.identification.domains import default_contexts
from layerstep.measurement.identification.features import residual_features
from layerstep.measurement.identification.filters import FilterFit
from oracles import identification as oracle

TASK = ls.Task(inputs="gaussian")
LAYERS = torch.arange(1, 5, dtype=torch.float64)


def noisy(prompts, contexts, solver="richardson", steps=(2, 6, 15, 40), std=0.05, **task):
    values = ls.solve(ls.SOLVERS[solver], prompts, replace(TASK, **task), steps, contexts=contexts).values
    return values + std * torch.from_numpy(np.random.default_rng(5).standard_normal(values.shape))


def test_the_classes_are_the_thirteen_of_the_contract():
    contract = (
        "richardson richardson-fixed gd nesterov cg chebyshev ridge shrink nadaraya-watson knn boost "
        "causal-richardson causal-boost"
    )
    assert set(CLASSES) == set(contract.split())


def test_the_table_holds_the_solvers_distances_to_krr(prompts, instrument):
    library = instrument.library
    for name in ("richardson", "gd", "nadaraya-watson", "cg"):
        candidate = next(c for c in library.candidates if (c.family.name, c.v) == (name, 0.95))
        task = replace(TASK, v=candidate.v)
        path = ls.solve(candidate.solver, prompts, task, candidate.steps, contexts=library.contexts)
        krr = ls.exact(prompts, TASK)[:, [n - 1 for n in library.contexts]]
        expected = (path.values - krr)[:, library.order]
        torch.testing.assert_close(library.table[candidate.rows].double(), expected, rtol=1e-6, atol=1e-6)


def test_chebyshev_on_a_guaranteed_interval_is_what_a_constructed_transformer_runs(prompts):
    few = prompts[:3]
    for scheme, name in (("exact", "chebyshev-interval"), ("compact", "chebyshev-plain")):
        network = ls.construct(TASK.d, TASK.N, TASK.v, TASK.lam, scheme=scheme, L=9)
        solver = next(family.solver for family in ls.FAMILIES if family.name == name)
        path = network.path(few, contexts=[5, 40])
        ours = ls.solve(solver, few, TASK, range(10), contexts=[5, 40])
        # The network divides by D + lam, the family by D: they differ by lam / D.
        torch.testing.assert_close(path.values, ours.values, atol=5e-3, rtol=0)


def test_the_features_do_not_see_where_the_origin_is(prompts):
    # 2**20 away float64 keeps 2**-33 of an input: round the inputs to that, so that the shift is exact.
    x = (prompts.x[:4] * 2**30).round() / 2**30
    near, far = (residual_features(ls.Prompts(x + shift, prompts.y[:4]), TASK, [30, 40]) for shift in (0, 2**20))
    torch.testing.assert_close(far, near, rtol=1e-9, atol=1e-9)


def test_u_and_v_are_cross_fitted_as_written(prompts, instrument):
    library = instrument.library
    values = noisy(prompts, library.contexts)
    residuals = instrument.cross_fit(values, LAYERS)
    order = library.order.numpy()
    M = values.numpy()[:, order] - library.krr.numpy()
    phi = instrument.features.numpy()
    q = next(i for i, c in enumerate(library.candidates) if c.family.name == "gd")
    A = library.table[library.candidates[q].rows].double().numpy()
    halves = np.array_split(np.arange(len(order)), 2)
    for layer in range(len(M)):
        left, structured = oracle.residuals(M[layer], A, phi, halves)
        np.testing.assert_allclose(residuals.left[q, layer], left, rtol=1e-6)
        np.testing.assert_allclose(residuals.structured[q, layer], structured, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(residuals.distance, (M**2).sum(-1), rtol=1e-12)


def test_scores_are_means_over_usable_layers_of_u_over_e(prompts, instrument):
    residuals = instrument.cross_fit(noisy(prompts, instrument.library.contexts), LAYERS)
    found = result_on(residuals, Rule(), seed=0)
    U = torch.stack([fit.U_layer for fit in found.fits])
    V = torch.stack([fit.V_layer for fit in found.fits])
    E = 1 - (U - V).min(0).values
    torch.testing.assert_close(found.explainable, E)
    for fit in found.fits:
        assert fit.score == pytest.approx(float((fit.U_layer / E).mean()), rel=1e-9)
        assert pytest.approx(float((fit.V_layer / E).mean()), rel=1e-9, abs=1e-12) == fit.V
        assert fit.score_interval[0] <= fit.score <= fit.score_interval[1]


def test_noise_leaves_u_but_no_v(prompts, instrument):
    quiet, loud = (
        result_on(instrument.cross_fit(noisy(prompts, instrument.library.contexts, std=std), LAYERS), Rule(), seed=0)
        for std in (0.0, 0.1)
    )
    assert quiet.U < 1e-3
    assert loud.U > 0.1
    assert abs(loud.V) < 0.01


@pytest.mark.parametrize(
    ("V", "margin", "U", "status"),
    [
        (0.0, 0.05, 0.1, "identified"),
        (0.0, 0.05, 0.9, "none"),
        (0.0, 0.001, 0.1, "ambiguous"),
        (0.03, 0.05, 0.1, "resembles"),
        (0.03, 0.001, 0.1, "none"),
        (0.2, 0.05, 0.1, "none"),
    ],
)
def test_the_rule_is_the_table_of_the_documentation(V, margin, U, status):
    assert decide(V, margin, U, Rule()) == status


@pytest.mark.parametrize(
    ("solver", "steps", "normalisation", "p", "inverse_m", "g"),
    [
        ("richardson", (10, 25, 60, 150), "row sums", 1, 0, 0),
        ("richardson-fixed", (15, 40, 100, 250), "fixed", 1, 0, 1),
        ("ridge", (0.3, 1, 4, 12), "fixed", 1, 1, 1),
        ("gd", (10, 40, 150, 600), "largest eigenvalue", 2, 0, None),
    ],
)
def test_filter_and_slope_name_the_planted_spectrum(prompts, instrument, solver, steps, normalisation, p, inverse_m, g):
    residuals = instrument.cross_fit(noisy(prompts, instrument.library.contexts, solver, steps, std=0), LAYERS)
    found = result_on(residuals, Rule(), seed=0)
    fit = FilterFit.of(residuals, found, Rule(), 0)
    assert (fit.normalisation, fit.p, fit.inverse_m) == (normalisation, p, inverse_m)
    assert fit.U < 0.01
    if g is not None:
        slope = Slopes.of(residuals, found, Rule(), 0)
        assert slope is not None
        middle = float(slope.g[slope.v.tolist().index(slope.fitted)].median())
        assert abs(middle - g) < 0.35


def test_contexts_scale_with_n():
    assert default_contexts(40) == [3, 6, 10, 15, 20, 25, 30, 35, 40]
    assert default_contexts(80)[-1] == 80
    assert default_contexts(4) == [1, 2, 3, 4]
