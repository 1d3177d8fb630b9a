"""Claims in words: each outcome follows from its checks, each check from numbers whose answer is known."""

import pytest
from scipy.stats import linregress

from layerstep.reproduction.claims.findings import findings
from layerstep.reproduction.claims.statements import Claim, claims, in_words

SOLVERS = ("richardson", "cg", "gd", "nesterov")


def model(setting="sphere", *, r2=1.0, rival=0.5, won=12, layers=12, mse=0.06, steps=500_000):
    """The numbers of a model that the claims read; `rival`: R² of the other three solvers."""
    return {
        "setting": setting,
        "trained_steps": steps,
        "layers": list(range(layers + 1)),
        "layer_mse": [[1.0, mse]],
        "over_krr": mse / 0.05,
        "won": {"richardson": won},
        "range": [2, 10],
        "solvers": {
            name: {"r2": r2 if name == "richardson" else rival, "at_cap": layers * [0.0], "mean": list(range(layers))}
            for name in SOLVERS
        },
    }


def laws(prefix="", **numbers):
    return {f"{prefix}{law}": model(law, **numbers) for law in ("sphere", "uniform", "gaussian")}


def seeds(*numbers):
    return dict(zip(("sphere-fast", "sphere-fast-seed-1", "sphere-fast-seed-2"), numbers, strict=True))


def curves(reached):
    """The data of an error figure: each solver reaches 0.05 after the step given, or stays at 1."""
    steps = [float(t) for t in range(201)]
    solvers = {
        name: {"steps": steps, "mse": [[0.05 if at is not None and t >= at else 1.0 for t in steps]]}
        for name, at in reached.items()
    }
    return {"curves": {"solvers": solvers}}


def outcome(where, models, data=None, words=""):
    found = [claim for claim in claims(models, data or {}) if claim.where == where and words in claim.says]
    assert len(found) == 1
    return found[0]


def test_without_models_nothing_is_tested_and_nothing_said():
    assert {claim.outcome for claim in claims({}, {})} == {"not tested"}
    assert findings({}, claims({}, {})) == []


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([True, True], "holds"),
        ([True, False], "holds in part"),
        ([True, None], "holds where it can be told"),
        ([True, None, False], "holds in part"),
        ([False], "does not hold"),
        ([False, None], "does not hold"),
        ([None], "cannot be told"),
        ([], "not tested"),
    ],
    ids=str,
)
def test_the_outcome_follows_from_the_checks(held, expected):
    assert Claim(where="w", says="s", checks=[("seen", each) for each in held]).outcome == expected


def test_outcomes_are_counted_in_words():
    tried = [Claim(where="w", says="s", checks=[("seen", held)]) for held in (True, True, False)]
    assert in_words(tried) == "2 hold, 1 does not hold"
    assert "Of 3 claims of the paper that are not numbers, 2 hold, 1 does not hold" in findings({}, tried)[0]


@pytest.mark.parametrize(
    ("where", "good", "bad"),
    [
        ("Figures 2b, 3", {"r2": 0.97}, {"r2": 0.97, "rival": 0.98}),
        ("Figure 2c", {"r2": 0.91}, {"r2": 0.89}),
        ("Figure 5, arc-cosine text", {"won": 7}, {"won": 5}),
    ],
)
def test_claims_on_the_three_laws(where, good, bad):
    alike = seeds(*(model(r2=0.9, won=6) for _ in range(3)))  # nothing is chance
    assert outcome(where, {**laws(**good), **alike}).outcome == "holds"
    assert outcome(where, {**laws(**bad), **alike}).outcome == "does not hold"
    mixed = {**laws(**good), **alike, "gaussian": model("gaussian", **bad)}
    assert outcome(where, mixed).outcome == "holds in part"
    apart = seeds(*(model(r2=r2, rival=r2, won=won) for r2, won in ((0.85, 5), (0.9, 6), (0.95, 7))))
    for numbers in (good, bad):
        assert outcome(where, {**laws(**numbers), **apart}).outcome == "cannot be told"
        assert outcome(where, laws(**numbers)).outcome == "cannot be told"  # how far seeds move is unknown


def test_a_limit_is_passed_where_no_seed_may_be_on_its_other_side():
    apart = seeds(*(model(r2=r2, won=won) for r2, won in ((0.9, 6), (0.91, 7), (0.92, 8))))
    # t s = 4.303 * 0.01: between 0.857 and 0.943 nothing can be told.
    for r2, expected in ((0.95, True), (0.94, None), (0.86, None), (0.85, False)):
        words, told = outcome("Figure 2c", {"sphere": model(r2=r2), **apart}).checks[0]
        assert (words, told) == (f"sphere: R² {r2:.3f}; a seed moves it by up to 0.043", expected)
    for won, expected in ((11, True), (10, None), (2, None), (1, False)):
        words, told = outcome("Figure 5, arc-cosine text", {"sphere": model(won=won), **apart}).checks[0]
        assert (words, told) == (f"sphere: {won} of 12 layers; a seed moves it by up to 4.3", expected)


def test_probes_of_the_last_token_are_tried_too():
    both = model(r2=0.5, won=3) | {"last": {key: model(r2=0.95)[key] for key in ("solvers", "won", "range")}}
    models = {"sphere": both, **seeds(*(model() for _ in range(3)))}
    read = {name: {**seed, "last": {key: seed[key] for key in ("solvers", "won")}} for name, seed in models.items()}
    for where in ("Figures 2b, 3", "Figure 2c", "Figure 5, arc-cosine text"):
        claim = outcome(where, {**read, "sphere": both})
        assert [held for _, held in claim.checks] == [False, True]
        assert claim.checks[1][0].startswith("sphere, probes of the last token: ")
        # Two seeds that such probes have read are too few: they may be alike by accident.
        unread = {**read, "sphere": both, "sphere-fast": models["sphere-fast"]}
        assert [held for _, held in outcome(where, unread).checks] == [False, None]
        assert "is unknown" in outcome(where, unread).checks[1][0]
    numbers = {"steps-sphere": {"models": {"sphere": {**both, "held": "as listed"}}}}
    words = findings(numbers)[0]
    assert "R² = 0.500 (paper: 0.976); of the four" in words
    assert "Read by probes of the last token alone, the Richardson steps that match its layers best fit" in words
    assert words.endswith("Richardson is most similar in 12 layers.")


def test_a_shorter_training_is_said_beside_the_law():
    words = [words for words, _ in outcome("Figure 2c", {**laws(), "uniform": model("uniform", steps=82_000)}).checks]
    assert [each.split(":")[0] for each in words] == ["sphere", "uniform (82,000 steps)", "Gaussian, s.d. 0.6"]


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        ({"richardson": 150, "cg": 7, "gd": None, "nesterov": None}, "holds"),
        ({"richardson": None, "cg": 12, "gd": None, "nesterov": None}, "does not hold"),
        ({"richardson": 150, "cg": 7, "gd": None, "nesterov": 90}, "does not hold"),
        ({"richardson": 150, "cg": None, "gd": None, "nesterov": None}, "does not hold"),
    ],
)
def test_who_reaches_the_error_of_the_model(reached, expected):
    claim = outcome("Figures 1, 4", {"sphere": model()}, {"trained-sphere": curves(reached)})
    assert claim.outcome == expected
    late = "not in 200" if reached["richardson"] is None else f"after {reached['richardson']}"
    assert f"Preconditioned Richardson {late}" in claim.checks[0][0]


def test_softmax_is_compared_with_models_trained_as_long():
    short = {"steps": 82_000}
    alike = {"sphere-fast": model(r2=0.5, **short), "sphere-fast-seed-1": model(r2=0.501, **short)}
    models = {**laws(r2=0.95), **laws("linear-", r2=0.6, **short), **alike}
    claim = outcome("Figure 8", models)
    # The softmax models of the other two laws were trained longer: they are not held against these.
    assert [held for _, held in claim.checks] == [False]
    assert "0.600 without softmax, 0.500 with it; two seeds differ by up to 0.0127" in claim.checks[0][0]
    models.pop("linear-uniform")
    assert outcome("Figure 8", models).outcome == "not tested"


@pytest.mark.parametrize(
    ("without", "with_it", "spread", "expected"),
    [
        (0.6, 0.95, 0.001, [True, True]),
        (0.6, 0.7, 0.001, [True, False]),
        (0.92, 0.95, 0.001, [False, True]),
        (0.6, 0.95, 0.2, [None, None]),
    ],
)
def test_softmax_matters_where_a_solver_is_straight_with_it_only(without, with_it, spread, expected):
    short = {"steps": 82_000, "rival": 0.3}
    usual = {f"{law}-fast": model(law, r2=with_it, **short) for law in ("sphere", "uniform", "gaussian")}
    seed = {"sphere-fast-seed-1": model(r2=with_it + spread, **short)}
    claim = outcome("Figure 8", {**laws("linear-", r2=without, **short), **usual, **seed})
    seen = "Preconditioned Richardson, R² {:.3f} or more"
    words = [
        f"straightest on all laws without softmax: {seen.format(without)}",
        f"straightest on all laws with softmax, trained as long: {seen.format(with_it)}",
    ]
    assert claim.checks[:2] == list(zip(words, expected, strict=True))
    assert len(claim.checks) == 5
    both = {**laws("linear-", r2=without, **short), **laws("linear-mean-", r2=without, **short), **usual, **seed}
    averaged = outcome("Figure 8", both).checks[5:]
    assert averaged[0] == (words[0].replace("without", "averaged without"), expected[0])
    assert len(averaged) == 4  # what softmax does is said once


def test_another_kernel():
    usual = {"sphere": model(r2=0.9, won=9)}
    same = seeds(*(model(r2=0.9, won=9, steps=82_000) for _ in range(3)))
    assert outcome("arc-cosine kernel", {**usual, **same, "arccos1": model(r2=0.8, won=7)}).outcome == "holds"
    assert outcome("arc-cosine kernel", {**usual, **same, "arccos1": model(r2=0.95, won=7)}).outcome == "holds in part"
    alone = outcome("arc-cosine kernel", {**usual, "arccos1": model(r2=0.8, won=7)})
    assert alone.outcome == "cannot be told"
    assert all("how far two seeds differ is unknown" in words for words, _ in alone.checks)
    shorter = {**usual, "arccos1": model(r2=0.8, won=7, steps=82_000)}
    assert outcome("arc-cosine kernel", shorter).outcome == "not tested"


def test_heads_matter_when_they_move_more_than_seeds():
    apart = seeds(*(model(r2=r2, mse=mse) for r2, mse in ((0.7, 0.06), (0.8, 0.061), (0.75, 0.0605))))
    assert outcome("Figure 9a", {"heads-1": model()}).outcome == "not tested"  # nothing to compare with
    models = {"sphere": model(r2=0.7), **apart}
    assert (
        outcome("Figure 9a", {**models, "heads-1": model(r2=0.75, mse=0.0605)}).outcome == "holds where it can be told"
    )
    claim = outcome("Figure 9a", {**models, "heads-1": model(r2=0.75, mse=0.08)})
    seen = "error over exact KRR with 1 and 8 heads: 1.600, 1.200: 33% apart; seeds differ by up to 5% by chance"
    assert claim.checks[0] == (seen, False)
    seen = "R² with 1 and 8 heads: 0.750, 0.700; a seed moves it by up to 0.215"
    assert claim.checks[1] == (seen, None)
    assert claim.outcome == "does not hold"
    far = outcome("Figure 9a", {**models, "heads-1": model(r2=0.5)})
    assert far.checks[1][1] is False
    alone = outcome("Figure 9a", {"sphere": model(), "heads-1": model()})
    assert alone.outcome == "cannot be told"
    assert "seeds differ by an unknown part" in alone.checks[0][0]
    longer = {**models, "heads-1": model(), "heads-2": model(), "heads-4": model(steps=600_000)}
    words = outcome("Figure 9a", longer).checks[0][0]
    assert "with 1, 2 and 8 heads" in words
    assert words.endswith("seeds differ by up to 7% by chance")  # more in two comparisons than in one


def test_width():
    models = {"sphere": model(mse=0.055), **seeds(*(model(mse=mse) for mse in (0.055, 0.0551, 0.0552)))}
    assert outcome("Figure 9b", {**models, "width-32": model(mse=0.08)}).outcome == "holds"
    assert outcome("Figure 9b", {**models, "width-32": model(mse=0.055)}).outcome == "holds where it can be told"
    wide = outcome("Figure 9b", {**models, "width-32": model(mse=0.08), "width-512": model(mse=0.07)})
    seen = "times exact KRR at widths 32, 256, 512: 1.600, 1.100, 1.400; two seeds differ by up to 0.0122"
    assert wide.checks == [(seen, True), ("1.400 times at the largest; a seed moves it by up to 0.00861", False)]
    assert outcome("Figure 9b", {**models, "width-512": model()}).outcome == "not tested"


def test_depth():
    deep = {"sphere-24": model(layers=24, won=13), "sphere-24-v2": model("sphere-v2", layers=24, won=11)}
    assert outcome("Figures 6, 7", {**deep, **seeds(*(model() for _ in range(3)))}).outcome == "holds in part"
    apart = outcome("Figures 6, 7", {**deep, **seeds(*(model(won=won) for won in (6, 7, 8)))})
    moves = "a seed moves it by up to 8.61 if the share moves as in models of another depth"
    assert [words.split("; ")[1] for words, _ in apart.checks] == 2 * [moves]
    assert apart.outcome == "cannot be told"
    deep["sphere-24"]["won"]["gd"] = 11
    assert outcome("Figures 6, 7", deep).checks[0][0].startswith("sphere: 13 of 24 layers (Gradient descent 11); ")


@pytest.mark.parametrize(
    ("steps", "flat", "expected"), [([0, 1, *range(2, 24)], 2, True), ([1] * 10 + [50, 100] + [200] * 12, 10, False)]
)
def test_a_line_in_the_earlier_layers(steps, flat, expected):
    deep = model(layers=24, r2=0.5)
    deep["solvers"]["richardson"]["mean"] = steps
    claim = outcome("Figure 7, caption", {"sphere-24": deep, **seeds(*(model() for _ in range(3)))})
    r2 = linregress(range(2, 13), steps[1:12]).rvalue ** 2
    seen = f"sphere: R² {r2:.3f} in layers 2 to 12 (0.500 in all); up to layer {flat} the best-matching step is below 2"
    seen += "; a seed moves it by up to 0"
    assert claim.checks == [(seen, expected)]
    assert outcome("Figure 7, caption", {"sphere-24": deep}).outcome == "cannot be told"


def test_noise():
    def law(encoded, best):
        return {
            "TF/EO": {"value": [1.1, 1.2, encoded], "standard_error": 3 * [0.01]},
            "TF/BO": {"value": [1.1, 0.9, best], "standard_error": 3 * [0.01]},
        }

    laws = {"sphere": law(0.7, 4.0), "uniform": law(1.1, 3.0), "gaussian": law(0.99, 3.0)}
    seed = {"sphere-fast": law(0.5, 0.9)}
    data = {"noise-trained": {"sigma_test": [0.01, 0.05, 1.0], "laws": laws, "seeds": seed}}
    models = {"sphere": model(), "uniform": model("uniform", steps=82_000), "sphere-fast": model(steps=82_000)}
    models["gaussian"] = model("gaussian")
    assert outcome("Figure 10", models, data, "nearer").outcome == "holds in part"
    assert outcome("Figure 10", models, data, "stopped early").checks == [
        ("sphere: at 3 of 3 levels; 0.70 times at the largest", True),
        ("uniform (82,000 steps): at 2 of 3 levels; 1.10 times at the largest", False),
        ("Gaussian, s.d. 0.6: at 2 of 3 levels (1 cannot be told); 0.99 times at the largest", None),  # one side only
        ("sphere-fast (82,000 steps): at 3 of 3 levels; 0.50 times at the largest", True),
    ]
    above = outcome("Figure 10", models, data, "At every level")  # but 0.05, where all have 0.9
    assert [held for _, held in above.checks] == [True, True, True, False]
    best = {"noise-trained": {**data["noise-trained"], "laws": {"sphere": law(0.3, 1.1)}, "seeds": {}}}
    assert outcome("Figure 10", models, best, "nearer").outcome == "does not hold"


@pytest.mark.parametrize(
    ("errors", "words", "expected"),
    [
        ([1.0, 0.8, 0.6, 0.5, 0.4], "falls in 4 of 4 layers, in one by 31% of the way", True),
        ([1.0, 1.1, 0.8, 0.6, 0.5, 0.4], "falls in 4 of 5 layers, in one by 35% of the way", False),
        ([1.0, 0.9, 0.4, 0.3], "falls in 3 of 3 layers, in one by 67% of the way", False),
        ([1.0, 0.9, 1.0, 1.0], "falls in 1 of 3 layers", False),
    ],
)
def test_an_error_that_falls_smoothly(errors, words, expected):
    found = {"sphere": {**model(), "layer_mse": [[9.0] * len(errors), errors]}}
    claim = outcome("Figure 1", found, words="smoothly")
    assert claim.checks == [(f"sphere: {words}" + " (logarithms)" * ("way" in words), expected)]


def test_conjugate_gradients_that_rise():
    curves = {"exact": [1.0, 0.5, 0.55, 0.56, 0.4], "float32": [1.0, 0.5, 0.6, 0.4, 0.5], "none": [1.0, 0.5, 0.4]}
    claim = outcome("Figure 1", {}, {"cg-precision": {"curves": curves}}, "oscillates")
    assert claim.checks == [
        ("exact: it rises in 1 of 4 steps, by up to 10%", False),  # and in one by less than 5 %
        ("float32: it rises in 2 of 4 steps, by up to 25%", True),
        ("none: it rises in 0 of 2 steps", False),
    ]


def test_construction_and_verdicts():
    scheme = {"depth": 730, "width": 6, "bound": 0.0099}
    schemes = {"schemes": {"exact-richardson": scheme}, "error": 0.01, "richardson": {"steps": 9, "difference": 1e-13}}
    verdict = {"headline": "richardson", "solver": "richardson", "steps": 500_000}
    trained = {"answer": "none", "reason": "nearest gd, but far", "solver": None, "steps": 500_000}
    verdicts = {"sphere": trained, "uniform": verdict, "control": {**verdict, "truth": "richardson"}}
    assert outcome("theorem", {}, {"schemes": schemes, "verdicts": verdicts}).outcome == "holds"
    broken = {**schemes, "richardson": {"steps": 9, "difference": 1e-3}}
    assert outcome("theorem", {}, {"schemes": broken}).outcome == "holds in part"
    claim = outcome("section on alignment", {}, {"verdicts": verdicts})
    assert claim.checks == [("sphere: none: nearest gd, but far", False), ("uniform: richardson", True)]


def test_layers_that_all_match_one_step_lie_on_no_line():
    flat = model(r2=float("nan"))
    models = {"sphere": flat, **seeds(*(model() for _ in range(3)))}
    assert outcome("Figures 2b, 3", models).outcome == "does not hold"
    assert outcome("Figure 2c", models).checks == [("sphere: R² none; a seed moves it by up to 0", False)]
