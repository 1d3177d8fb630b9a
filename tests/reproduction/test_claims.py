"""Claims: each outcome follows from its checks, each check from numbers whose answer is known."""

from dataclasses import replace
from math import inf, nan

import pytest
from scipy.stats import linregress

from layerstep.reproduction.claims.check import Check
from layerstep.reproduction.claims.checks import CROSSING, LINEAR, LITTLE, NEAR
from layerstep.reproduction.claims.findings import key_findings
from layerstep.reproduction.claims.statements import Claim, outcome_counts, paper_claims
from layerstep.reproduction.numbers import (
    SOLVER_LABELS,
    Alignment,
    ModelNoise,
    ModelNumbers,
    ModelVerdict,
    Numbers,
    Precision,
    Ratio,
    Schemes,
    SolverCurves,
    SolverMatch,
)
from layerstep.reproduction.numbers.constructed import BoundCurve, SchemeSize
from layerstep.reproduction.numbers.solvers import SolverCurve
from layerstep.reproduction.settings import DISTRIBUTIONS, SIGMA_TEST

T_TWO = 4.303 * 0.01  # t s of seeds at 0.90, 0.91, 0.92: Student's t with two degrees of freedom


def match(r2, mean):
    flat = {"steps": [1.0], "sime": [], "best_step": [], "best_sime": [], "sd": [], "at_cap": len(mean) * [0.0]}
    return SolverMatch(mean=mean, r2=r2, r2_low=r2, r2_high=r2, slope=0.0, intercept=0.0, **flat)


def alignment(r2=1.0, rival=0.5, won=12, layers=12, mean=None, others=()):
    mean = mean or [float(layer) for layer in range(layers)]
    solvers = {name: match(r2 if name == "richardson" else rival, mean) for name in SOLVER_LABELS}
    counts = {"richardson": won, "cg": 0, "gd": 0, "nesterov": 0, **dict(others)}
    return Alignment(first=2, last=10, solvers=solvers, won=counts, won_low=nan, won_high=nan)


def model(setting="sphere", *, layers=12, mse=0.06, steps=500_000, errors=(), last=None, name="", **aligned):
    """The numbers of a model that the claims read; `rival`: R² of the other three solvers."""
    return ModelNumbers(
        name=name or setting,
        label=setting,
        setting=setting,
        training="as listed",
        trained_steps=steps,
        contexts=[40],
        layers=[float(layer) for layer in range(layers + 1)],
        layer_mse=[list(errors) or [1.0, mse]],
        krr=[0.05],
        over_krr=mse / 0.05,
        alignment=alignment(layers=layers, **aligned),
        last_token=last,
    )


def distributions(prefix="", **numbers):
    return {f"{prefix}{name}": model(name, **numbers) for name in DISTRIBUTIONS}


def seeds(*numbers):
    return dict(zip(("sphere-fast", "sphere-fast-seed-1", "sphere-fast-seed-2"), numbers, strict=True))


def claim(where, models=None, words="", **numbers):
    numbers = Numbers(models=models or {}, **numbers)
    found = [claim for claim in paper_claims(numbers) if claim.where == where and words in claim.says]
    assert len(found) == 1
    return found[0]


def told(claim):
    return [check.supported for check in claim.checks]


# Outcomes -------------------------------------------------------------------------------------------------------------


def test_without_models_nothing_is_tested_and_nothing_said():
    claims = paper_claims(Numbers())
    assert {claim.outcome for claim in claims} == {"not tested"}
    assert key_findings(Numbers(), claims) == []


@pytest.mark.parametrize(
    ("supported", "expected"),
    [
        ([True, True], "supported"),
        ([True, False], "partly supported"),
        ([True, None], "supported where conclusive"),
        ([True, None, False], "partly supported"),
        ([False], "not supported"),
        ([False, None], "not supported"),
        ([None], "inconclusive"),
        ([], "not tested"),
    ],
    ids=str,
)
def test_the_outcome_follows_from_the_checks(supported, expected):
    checks = [Check(of="m", seen="s", supported=each) for each in supported]
    assert Claim(where="w", says="s", checks=checks).outcome == expected


def test_outcomes_are_counted():
    checks = [[Check(of="m", seen="s", supported=supported)] for supported in (True, True, False)]
    claims = [Claim(where="w", says="s", checks=each) for each in checks]
    assert outcome_counts(claims) == "2 supported, 1 not supported"
    assert outcome_counts(claims) in key_findings(Numbers(), claims)[0]


def test_sentences():
    """The one test of what checks say in words."""
    alike = seeds(*(model(r2=r2) for r2 in (0.9, 0.91, 0.92)))
    short = model("uniform", r2=0.95, steps=82_000)
    checks = claim("Figure 2c", {"sphere": model(r2=nan), "uniform": short, **alike}).checks
    assert [check.sentence for check in checks] == [
        "sphere: R² none; a seed moves it by up to 0.043",
        "uniform (82,000 steps): R² 0.950; a seed moves it by up to 0.043",
    ]
    (check,) = claim("Figure 2c", {"sphere": model(r2=0.95)}).checks
    assert check.sentence == "sphere: R² 0.950; how far a seed moves it is unknown"
    (check,) = claim("Figure 1", {"sphere": model(errors=[1.0, 0.8, 0.6, 0.5, 0.4])}, "smoothly").checks
    assert check.sentence == "sphere: falls in 4 of 4 layers, in one by 31% of the way (logarithms)"


# One model at a time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "good", "bad"),
    [
        ("Figures 2b, 3", {"r2": 0.97}, {"r2": 0.97, "rival": 0.98}),
        ("Figure 2c", {"r2": 0.91}, {"r2": 0.89}),
        ("Figure 5, arc-cosine text", {"won": 7}, {"won": 5}),
    ],
)
def test_claims_on_the_three_input_distributions(where, good, bad):
    alike = seeds(*(model(r2=0.9, won=6) for _ in range(3)))  # nothing is chance
    assert claim(where, {**distributions(**good), **alike}).outcome == "supported"
    assert claim(where, {**distributions(**bad), **alike}).outcome == "not supported"
    mixed = {**distributions(**good), **alike, "gaussian": model("gaussian", **bad)}
    assert claim(where, mixed).outcome == "partly supported"
    apart = seeds(*(model(r2=r2, rival=r2, won=won) for r2, won in ((0.85, 5), (0.9, 6), (0.95, 7))))
    for numbers in (good, bad):
        assert claim(where, {**distributions(**numbers), **apart}).outcome == "inconclusive"
        assert claim(where, distributions(**numbers)).outcome == "inconclusive"  # how far seeds move is unknown


def test_a_limit_is_passed_where_no_seed_may_be_on_its_other_side():
    apart = seeds(*(model(r2=r2, won=won) for r2, won in ((0.9, 6), (0.91, 7), (0.92, 8))))
    for r2, expected in ((0.95, True), (0.94, None), (0.86, None), (0.85, False)):
        (check,) = claim("Figure 2c", {"sphere": model(r2=r2), **apart}).checks
        assert (check.value, check.limit, check.supported) == (r2, LINEAR, expected)
        assert check.chance == pytest.approx(T_TWO, rel=1e-3)
    for won, expected in ((11, True), (10, None), (2, None), (1, False)):
        (check,) = claim("Figure 5, arc-cosine text", {"sphere": model(won=won), **apart}).checks
        assert (check.value, check.limit, check.supported) == (won / 12, 0.5, expected)
        assert check.chance == pytest.approx(T_TWO / 0.01 / 12, rel=1e-3)


def test_layers_that_all_match_one_step_lie_on_no_line():
    models = {"sphere": model(r2=nan), **seeds(*(model() for _ in range(3)))}
    assert claim("Figures 2b, 3", models).outcome == "not supported"
    (check,) = claim("Figure 2c", models).checks
    assert (check.value, check.supported) == (0, False)


def test_probes_of_the_last_token_are_tried_too():
    both = model(r2=0.5, won=3, last=alignment(r2=0.95))
    read = seeds(*(model(last=alignment()) for _ in range(3)))
    unread = {**read, "sphere-fast": model()}
    for where in ("Figures 2b, 3", "Figure 2c", "Figure 5, arc-cosine text"):
        found = claim(where, {"sphere": both, **read})
        assert told(found) == [False, True]
        assert found.checks[1].of == "sphere, probes of the last token"
        # Two seeds that such probes have read are too few: they may be alike by accident.
        found = claim(where, {"sphere": both, **unread})
        assert told(found) == [False, None]
        assert found.checks[1].chance == inf
    words = key_findings(Numbers(models={"sphere": both}))[0]
    assert "R² = 0.500 (paper: 0.976); of the four" in words
    assert "Read by probes of the last token alone, the Richardson steps that match its layers best fit" in words
    assert words.endswith("Richardson is most similar in 12 layers.")


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        ({"richardson": 150, "cg": 7, "gd": None, "nesterov": None}, "supported"),
        ({"richardson": None, "cg": 12, "gd": None, "nesterov": None}, "not supported"),
        ({"richardson": 150, "cg": 7, "gd": None, "nesterov": 90}, "not supported"),
        ({"richardson": 150, "cg": None, "gd": None, "nesterov": None}, "not supported"),
    ],
)
def test_who_reaches_the_error_of_the_model(reached, expected):
    """Each solver reaches 0.05 after the step given, or stays at 1; the model has 0.06."""
    steps = [float(step) for step in range(201)]
    solvers = {
        name: SolverCurve(label=name, steps=steps, mse=[[0.05 if at is not None and t >= at else 1.0 for t in steps]])
        for name, at in reached.items()
    }
    curves = {"sphere": SolverCurves(setting="sphere", contexts=[40], krr=[0.05], solvers=solvers)}
    found = claim("Figures 1, 4", {"sphere": model()}, curves=curves)
    assert found.outcome == expected
    late = "not in 200" if reached["richardson"] is None else f"after {reached['richardson']}"
    assert f"Preconditioned Richardson {late}" in found.checks[0].seen


@pytest.mark.parametrize(
    ("errors", "share", "expected"),
    [
        ([1.0, 0.8, 0.6, 0.5, 0.4], 0.314, True),
        ([1.0, 1.1, 0.8, 0.6, 0.5, 0.4], 0.348, False),
        ([1.0, 0.9, 0.4, 0.3], 0.674, False),
        ([1.0, 0.9, 1.0, 1.0], nan, False),
    ],
)
def test_an_error_that_falls_smoothly(errors, share, expected):
    (check,) = claim("Figure 1", {"sphere": model(errors=errors)}, "smoothly").checks
    assert check.value == pytest.approx(share, abs=1e-3, nan_ok=True)
    assert check.supported == expected


def test_conjugate_gradients_that_rise():
    curves = {"exact": [1.0, 0.5, 0.55, 0.56, 0.4], "float32": [1.0, 0.5, 0.6, 0.4, 0.5], "none": [1.0, 0.5, 0.4]}
    found = claim("Figure 1", words="oscillates", cg_precision=Precision(steps=[], curves=curves, krr=0.1))
    # In the first it rises by 10 % once, and once by less than 5 %.
    seen = [(check.of, check.value, check.limit, check.supported) for check in found.checks]
    assert seen == [("exact", 1, 1, False), ("float32", 2, 1, True), ("none", 0, 1, False)]


def test_depth():
    deep = {"sphere-24": model(layers=24, won=13), "sphere-24-v2": model("sphere-v2", layers=24, won=11)}
    assert claim("Figures 6, 7", {**deep, **seeds(*(model() for _ in range(3)))}).outcome == "partly supported"
    apart = claim("Figures 6, 7", {**deep, **seeds(*(model(won=won) for won in (6, 7, 8)))})
    assert [check.value for check in apart.checks] == [13 / 24, 11 / 24]
    assert apart.checks[0].chance == pytest.approx(T_TWO / 0.01 / 12, rel=1e-3)
    assert apart.outcome == "inconclusive"


@pytest.mark.parametrize(
    ("steps", "expected"), [([0, 1, *range(2, 24)], True), ([1] * 10 + [50, 100] + [200] * 12, False)]
)
def test_a_line_in_the_earlier_layers(steps, expected):
    deep = model(layers=24, r2=0.5, mean=[float(step) for step in steps])
    (check,) = claim("Figure 7, caption", {"sphere-24": deep, **seeds(*(model() for _ in range(3)))}).checks
    assert check.value == pytest.approx(linregress(range(2, 13), steps[1:12]).rvalue ** 2)
    assert (check.limit, check.chance, check.supported) == (LINEAR, 0, expected)
    assert claim("Figure 7, caption", {"sphere-24": deep}).outcome == "inconclusive"


# Model against model --------------------------------------------------------------------------------------------------


def test_softmax_is_compared_with_models_trained_as_long():
    short = {"steps": 82_000}
    alike = {"sphere-fast": model(r2=0.5, **short), "sphere-fast-seed-1": model(r2=0.501, **short)}
    models = {**distributions(r2=0.95), **distributions("linear-", r2=0.6, **short), **alike}
    # The softmax models of the other two were trained longer: they are not compared with these.
    (check,) = claim("Figure 8", models).checks
    assert (check.value, check.limit, check.supported) == (0.6, 0.5, False)
    assert check.chance == pytest.approx(0.0127, abs=1e-4)
    models.pop("linear-uniform")
    assert claim("Figure 8", models).outcome == "not tested"


@pytest.mark.parametrize(
    ("without", "with_it", "spread", "expected"),
    [
        (0.6, 0.95, 0.001, [True, True]),
        (0.6, 0.7, 0.001, [True, False]),
        (0.92, 0.95, 0.001, [False, True]),
        (0.6, 0.95, 0.2, [None, None]),
    ],
)
def test_softmax_matters_where_a_solver_is_linear_with_it_only(without, with_it, spread, expected):
    short = {"steps": 82_000, "rival": 0.3}
    usual = {f"{name}-fast": model(name, r2=with_it, **short) for name in DISTRIBUTIONS}
    seed = {"sphere-fast-seed-1": model(r2=with_it + spread, **short)}
    models = {**distributions("linear-", r2=without, **short), **usual, **seed}
    found = claim("Figure 8", models).checks
    assert [(check.value, check.supported) for check in found[:2]] == list(
        zip((without, with_it), expected, strict=True)
    )
    assert len(found) == 5
    both = {**models, **distributions("linear-mean-", r2=without, **short)}
    averaged = claim("Figure 8", both).checks[5:]
    assert "averaged without" in averaged[0].of
    assert averaged[0].supported == expected[0]
    assert len(averaged) == 4  # what softmax does is said once


def test_another_kernel():
    usual = {"sphere": model(r2=0.9, won=9)}
    same = seeds(*(model(r2=0.9, won=9, steps=82_000) for _ in range(3)))
    assert claim("arc-cosine kernel", {**usual, **same, "arccos1": model(r2=0.8, won=7)}).outcome == "supported"
    mixed = claim("arc-cosine kernel", {**usual, **same, "arccos1": model(r2=0.95, won=7)})
    assert mixed.outcome == "partly supported"
    assert [(check.value, check.limit) for check in mixed.checks] == [(7, 9), (0.95, 0.9)]
    alone = claim("arc-cosine kernel", {**usual, "arccos1": model(r2=0.8, won=7)})
    assert [check.chance for check in alone.checks] == [inf, inf]
    assert alone.outcome == "inconclusive"
    shorter = {**usual, "arccos1": model(r2=0.8, won=7, steps=82_000)}
    assert claim("arc-cosine kernel", shorter).outcome == "not tested"


def test_heads_matter_when_they_move_more_than_seeds():
    def heads(number, **numbers):
        return {f"heads-{number}": model(name=f"heads-{number}", **numbers)}

    apart = seeds(*(model(r2=r2, mse=mse) for r2, mse in ((0.7, 0.06), (0.8, 0.061), (0.75, 0.0605))))
    assert claim("Figure 9a", heads(1)).outcome == "not tested"  # nothing to compare with
    models = {"sphere": model(r2=0.7), **apart}
    assert claim("Figure 9a", {**models, **heads(1, r2=0.75, mse=0.0605)}).outcome == "supported where conclusive"
    error, r2 = claim("Figure 9a", {**models, **heads(1, r2=0.75, mse=0.08)}).checks
    assert (error.value, error.limit, error.supported) == (pytest.approx(1 / 3), LITTLE, False)
    assert error.chance == pytest.approx(0.0507, abs=1e-4)  # t s √2 of 1.20, 1.22, 1.21, over 1.2
    assert (r2.value, r2.limit, r2.chance, r2.supported) == (0.7, LINEAR, pytest.approx(0.215, abs=1e-3), None)
    assert told(claim("Figure 9a", {**models, **heads(1, r2=0.5)}))[1] is False
    alone = claim("Figure 9a", {"sphere": model(), **heads(1)})
    assert (alone.outcome, alone.checks[0].chance) == ("inconclusive", inf)
    longer = {**models, **heads(1), **heads(2), **heads(4, steps=600_000)}
    error = claim("Figure 9a", longer).checks[0]
    assert error.of == "error over exact KRR with 1, 2 and 8 heads"
    assert error.chance > 0.07  # more in two comparisons than in one


def test_width():
    models = {"sphere": model(mse=0.055), **seeds(*(model(mse=mse) for mse in (0.055, 0.0551, 0.0552)))}
    assert claim("Figure 9b", {**models, "width-32": model(mse=0.08)}).outcome == "supported"
    assert claim("Figure 9b", {**models, "width-32": model(mse=0.055)}).outcome == "supported where conclusive"
    falls, near = claim("Figure 9b", {**models, "width-32": model(mse=0.08), "width-512": model(mse=0.07)}).checks
    assert (falls.value, falls.limit, falls.supported) == (pytest.approx(1.4), pytest.approx(1.6), True)
    assert (near.value, near.limit, near.supported) == (pytest.approx(1.4), NEAR, False)
    assert (falls.chance, near.chance) == (pytest.approx(0.0122, abs=1e-4), pytest.approx(0.00861, abs=1e-5))
    assert claim("Figure 9b", {**models, "width-512": model()}).outcome == "not tested"


# Noise, constructed transformers, verdicts ----------------------------------------------------------------------------


def ratio(*values):
    """By level: the first value up to the training noise, the second from there on, the third at the largest."""
    below, above, largest = values
    levels = [below if sigma <= CROSSING else above for sigma in SIGMA_TEST[:-1]] + [largest]
    return Ratio(value=levels, standard_error=9 * [0.01], low=levels, high=levels)


def noise(encoded, best):
    return ModelNoise(over_encoded=encoded, over_optimal=best, encoded_over_optimal=best)


def test_noise():
    models = {**distributions(), "sphere-fast": model(steps=82_000)}
    of_model = {
        "sphere": noise(ratio(1.1, 0.8, 0.7), ratio(1.1, 1.5, 4.0)),
        "uniform": noise(ratio(1.1, 1.2, 1.1), ratio(1.1, 1.5, 3.0)),
        "gaussian": noise(ratio(1.1, 1.0, 0.99), ratio(1.1, 1.5, 3.0)),
        "sphere-fast": noise(ratio(1.1, 0.8, 0.5), ratio(1.1, 1.5, 0.9)),
    }
    nearer = claim("Figure 10", models, "nearer", model_noise=of_model)
    assert [(check.value, check.limit) for check in nearer.checks[:2]] == [(pytest.approx(1 / 0.7), 4.0), (1.1, 3.0)]
    assert told(nearer) == [True, True, True, False]
    early = claim("Figure 10", models, "stopped early", model_noise=of_model)
    seen = [(check.of, check.value, check.limit, check.supported) for check in early.checks]
    assert seen == [
        ("sphere", 9, 9, True),
        ("uniform", 6, 9, False),
        ("Gaussian, s.d. 0.6", 6, 9, None),  # on one side only
        ("sphere, 82,000 steps", 9, 9, True),
    ]
    above = claim("Figure 10", models, "At every level", model_noise=of_model)
    assert told(above) == [True, True, True, False]
    assert [check.value for check in above.checks] == [1.1, 1.1, 1.1, 0.9]


def a_verdict(name, solver=None, truth=None):
    words = {"status": "identified" if solver else "none", "reason": "nearest gd, but far", "text": "", "what": ""}
    empty = {"classes": {}, "families": [], "layers": [], "U_layer": [], "rival": None}
    numbers = {"depth": 12, "won": 3, "U": 0.4, "V": 0.2, "margin": 0.001, "trained_steps": 7000}
    kind = {"solver": solver, "headline": solver or "none", "nearest": "richardson", "truth": truth}
    return ModelVerdict(name=name, setting="sphere", **words, **empty, **numbers, **kind)


def test_construction_and_verdicts():
    size = SchemeSize(options={}, steps="Richardson", depth=730, width=6, parameters=9, bound=0.0099)
    curve = BoundCurve(promised=0.01, stages=[], median_error=[], largest_error=[], median_bound=[], largest_bound=[])
    sizes = dict.fromkeys(("paper", "exact-richardson", "exact", "compact"), size)
    schemes = Schemes(B_y=3.0, error=0.01, sizes=sizes, curve=curve, richardson_steps=9, richardson_difference=1e-13)
    verdicts = {
        "sphere": a_verdict("sphere"),
        "uniform": a_verdict("uniform", "richardson"),
        "control": a_verdict("control", "richardson", truth="richardson"),
    }
    found = claim("theorem", schemes=schemes, verdicts=verdicts)
    assert [(check.value, check.limit) for check in found.checks[:2]] == [(0.0099, 0.01), (1e-13, 1e-9)]
    assert told(found) == [True, True, True]
    broken = replace(schemes, richardson_difference=1e-3)
    assert claim("theorem", schemes=broken).outcome == "partly supported"
    assert told(claim("section on alignment", verdicts=verdicts)) == [False, True]


def test_the_first_sentences_are_made_from_the_numbers():
    verdicts = {
        "a": a_verdict("a"),
        "b": replace(a_verdict("b", "richardson"), U=0.01, margin=0.02, trained_steps=9000),
    }
    words = " ".join(key_findings(Numbers(models={"sphere": model()}, verdicts=verdicts)))
    assert "our model on the sphere (as listed)" in words
    assert "R² = 1.000 (paper: 0.976)" in words
    assert "most similar in 12 of 12 layers (paper: 11)" in words
    assert "Of 2 trained transformers (7,000 to 9,000 training steps), 1 can be said to follow a solver" in words
    assert "The nearest class is richardson for 2 (for 1 by more than the margin); it leaves 1% to 40% of" in words
    assert "unexplained, 20% with a pattern, where 1.5% is allowed" in words
